/* The tile engine's shape: one CTA of 384 threads computes tiles of 128 x 256, 64 of the contraction a step.
 *
 * Warpgroup 0 produces: one thread issues the copies that fill a ring of stages. Warpgroups 1 and 2 consume: each
 * multiplies 64 of the tile's rows with all its columns, accumulators in registers, and writes them out. Clusters of
 * two CTAs share one operand of their tiles: each CTA copies half of it to both. */
#ifndef MM_KERNELS_TILE_CUH
#define MM_KERNELS_TILE_CUH

#include "kernels/isa.cuh"
#include "kernels/tile_shape.h"

/* Registers a thread once the roles have parted; together not more than 168 a thread of the CTA. */
#define PRODUCER_REGISTERS 40
#define CONSUMER_REGISTERS 232

MM_DEVICE void mbarrier_wait(smem_t bar, uint32_t parity) {
    while (!mbarrier_test(bar, parity)) {
    }
}

/* A place in the ring of stages. A producer starts with parity 1 (every stage is free), a consumer with 0. */
struct ring {
    uint32_t stage, parity;
};

template <uint32_t count = STAGES> MM_DEVICE void ring_next(ring &at) {
    if (++at.stage == count) {
        at.stage = 0;
        at.parity ^= 1;
    }
}

MM_DEVICE smem_t stage_address(uint32_t stage) {
    return smem_base() + stage * STAGE_BYTES;
}
MM_DEVICE smem_t full_barrier(uint32_t stage) {
    return smem_base() + FULL_OFFSET + 8 * stage;
}
MM_DEVICE smem_t empty_barrier(uint32_t stage) {
    return smem_base() + EMPTY_OFFSET + 8 * stage;
}

MM_DEVICE uint32_t warpgroup_index(void) {
    return warp_index() / 4;
}
MM_DEVICE uint32_t consumer_warp(void) { /* 0 .. 7, in consumer warpgroups */
    return warp_index() - 4;
}
/* First row, within the tile, of the 16 that this consumer warp holds. */
MM_DEVICE uint32_t warp_row(void) {
    return consumer_warp() * 16;
}

/* A consumer warp has read the stage: the producers of both CTAs, which fill it together, may fill it again. */
MM_DEVICE void stage_release(uint32_t stage) {
    if (lane_index() < CLUSTER_CTAS)
        mbarrier_arrive_cluster(empty_barrier(stage), lane_index());
}

/* The ring of the kernels that work in clusters, for multiply(). */
struct cluster_stages {
    static constexpr uint32_t count = STAGES;
    MM_DEVICE smem_t full(uint32_t stage) { return full_barrier(stage); }
    MM_DEVICE void release(uint32_t stage) { stage_release(stage); }
};

MM_DEVICE void barriers_init(void) {
    for (uint32_t stage = 0; stage < STAGES; stage++) {
        mbarrier_init(full_barrier(stage), 1);
        mbarrier_init(empty_barrier(stage), CONSUMER_WARPS * CLUSTER_CTAS);
    }
    for (uint32_t piece = 0; piece < CONSUMER_WARPS * PIECES; piece++)
        mbarrier_init(smem_base() + PREFETCH_OFFSET + 8 * piece, 1);
    mbarrier_init_fence();
}

/* The whole of a GEMM kernel: one thread runs produce(), the consumer warpgroups run consume(), and the warps that are
 * left meanwhile(). A CTA stays until its peer has made its last signal to it. */
template <int producer_registers, int consumer_registers, typename producer, typename consumer, typename other_work>
MM_DEVICE void gemm_run(const producer &produce, const consumer &consume, const other_work &meanwhile) {
    if (thread_index() == 0)
        barriers_init();
    cluster_sync();
    if (warpgroup_index() == 0) {
        registers_give<producer_registers>();
        if (warp_index() > 0)
            meanwhile();
        else if (elect_one())
            produce();
    } else {
        registers_take<consumer_registers>();
        consume();
    }
    cluster_sync();
}

template <int producer_registers = PRODUCER_REGISTERS, int consumer_registers = CONSUMER_REGISTERS, typename producer,
          typename consumer>
MM_DEVICE void gemm_run(const producer &produce, const consumer &consume) {
    gemm_run<producer_registers, consumer_registers>(produce, consume, [] {});
}

#endif
