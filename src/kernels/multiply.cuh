/* The consumers' main loop: d = sum over steps of the ring's stages, A 128 x 64 times B 64 x 256. */
#ifndef MM_KERNELS_MULTIPLY_CUH
#define MM_KERNELS_MULTIPLY_CUH

#include "kernels/tile.cuh"
#include "kernels/trace.cuh"

/* Bytes from one 16-deep slice of an operand to the next. */
template <operand_major major> MM_DEVICE constexpr uint32_t slice_bytes(void) {
    return major == K_MAJOR ? 32 : 2048;
}

/* How far a tile's products have come. */
struct multiplied {
    uint32_t steps, last; /* that have been started; the last one's stage */
};

/* This warpgroup's 64 rows of the tile, until `end` steps have been started. One group of products stays in flight, so
 * a stage is released a step late. `stages` is the kind of ring, as tile.cuh has it. */
template <operand_major a_major, operand_major b_major, typename stages = cluster_stages>
MM_DEVICE void multiply_until(float (&d)[128], ring &at, multiplied &done, uint32_t end) {
    const wgmma_operand a_first = wgmma_operand_at<a_major>(stage_address(0) + (warpgroup_index() - 1) * BLOCK_BYTES);
    const wgmma_operand b_first = wgmma_operand_at<b_major>(stage_address(0) + STAGE_A_BYTES);
    stages ring_of;
    for (; done.steps < end; done.steps++) {
        const uint32_t wait = wait_begins();
        mbarrier_wait(ring_of.full(at.stage), at.parity);
        wait_ends(wait);
        const wgmma_operand a = wgmma_operand_add(a_first, at.stage * STAGE_BYTES);
        const wgmma_operand b = wgmma_operand_add(b_first, at.stage * STAGE_BYTES);
        wgmma_fence();
#pragma unroll
        for (uint32_t slice = 0; slice < TILE_DEPTH / 16; slice++)
            wgmma_bf16<a_major, b_major>(d, wgmma_operand_add(a, slice * slice_bytes<a_major>()),
                                         wgmma_operand_add(b, slice * slice_bytes<b_major>()),
                                         slice > 0 || done.steps > 0);
        wgmma_commit();
        wgmma_wait<1>();
        if (done.steps > 0)
            ring_of.release(done.last);
        done.last = at.stage;
        ring_next<stages::count>(at);
    }
}

template <typename stages = cluster_stages> MM_DEVICE void multiply_end(float (&d)[128], const multiplied &done) {
    stages ring_of;
    wgmma_wait<0>();
    wgmma_settle(d);
    ring_of.release(done.last);
}

/* `steps` is at least 1. */
template <operand_major a_major, operand_major b_major, typename stages = cluster_stages>
MM_DEVICE void multiply(float (&d)[128], ring &at, uint32_t steps) {
    multiplied done = {0, 0};
    multiply_until<a_major, b_major, stages>(d, at, done, steps);
    multiply_end<stages>(d, done);
}

#endif
