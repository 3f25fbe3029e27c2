/* The producer's copies into a stage. An operand is copied in two halves: the CTA's own alone, a shared one half by
 * each CTA of the cluster to both. */
#ifndef MM_KERNELS_LOAD_CUH
#define MM_KERNELS_LOAD_CUH

#include "kernels/gemm_params.h"
#include "kernels/tile.cuh"
#include "kernels/trace.cuh"

#define BOTH_CTAS ((uint16_t)3)

struct weight_view {
    const tensor_map *map;
    int32_t expert; /* coordinate in the map */
};

MM_DEVICE weight_view weight_of(const weight_map &weight, uint32_t expert) {
    weight_view view = {&weight.whole, (int32_t)expert};
    if (weight.each != nullptr) {
        view.map = weight.each + expert;
        view.expert = 0;
    }
    return view;
}

/* Waits until the stage is free and expects its bytes. Returns its barrier. */
MM_DEVICE smem_t stage_expect(const ring &at, uint32_t bytes) {
    const uint32_t wait = wait_begins();
    mbarrier_wait(empty_barrier(at.stage), at.parity);
    wait_ends(wait);
    const smem_t bar = full_barrier(at.stage);
    mbarrier_arrive_expect(bar, bytes);
    return bar;
}

/* copy(half, mask) starts the copy of one half of an operand. */
template <typename copy_half> MM_DEVICE void copy_operand(bool shared, const copy_half &copy) {
    if (shared) {
        copy(cluster_rank(), BOTH_CTAS);
    } else {
        copy(0u, (uint16_t)0);
        copy(1u, (uint16_t)0);
    }
}

/* A: 128 rows of a pool, K-major, boxes {64, 64}. */
MM_DEVICE void load_rows(const tensor_map *pool, smem_t stage, smem_t bar, int32_t depth, int32_t row, bool shared) {
    copy_operand(shared, [&](uint32_t half, uint16_t mask) {
        tma_load<2>(stage + half * BLOCK_BYTES, pool, bar, {depth, row + (int32_t)half * 64}, mask);
    });
}

/* B: 256 columns of a weight from row `depth` on, MN-major, boxes {64, 64, 2, 1}. */
MM_DEVICE void load_columns(const weight_view &weight, smem_t stage, smem_t bar, int32_t column, int32_t depth,
                            bool shared) {
    copy_operand(shared, [&](uint32_t half, uint16_t mask) {
        tma_load<4>(stage + STAGE_A_BYTES + half * 2 * BLOCK_BYTES, weight.map, bar,
                    {0, depth, column / 64 + (int32_t)half * 2, weight.expert}, mask);
    });
}

#endif
