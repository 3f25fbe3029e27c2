/* How the warps of a CTA of a fused kernel work together. Warpgroup 0 has four warps with different tasks: one takes
 * tasks and loads their operands, one fetches token rows, one stores and pushes results. Warpgroups 1 and 2 consume:
 * they multiply and stage results in parts, PARTS of each warp in turn. */
#ifndef MM_KERNELS_FUSED_TILE_CUH
#define MM_KERNELS_FUSED_TILE_CUH

#include "kernels/call_team.cuh"
#include "kernels/fused_shape.h"
#include "kernels/tile.cuh"
#include "kernels/trace.cuh"

#define FUSED_PRODUCER_REGISTERS 56
#define FUSED_CONSUMER_REGISTERS 224

enum fused_warp { LOAD_WARP, GROUP_WARP, FETCH_WARP, STORE_WARP };

MM_DEVICE call_team consumer_team(void) {
    return {CTA_THREADS / 32 - CONSUMER_WARPS, CONSUMER_WARPS, 1, smem_base() + VERDICT_OFFSET};
}

/* The ring of stages, for multiply(). */
struct fused_stages {
    static constexpr uint32_t count = FUSED_STAGES;
    MM_DEVICE smem_t full(uint32_t stage) { return smem_base() + FUSED_FULL_OFFSET + 8 * stage; }
    MM_DEVICE smem_t empty(uint32_t stage) { return smem_base() + FUSED_EMPTY_OFFSET + 8 * stage; }
    MM_DEVICE void release(uint32_t stage) {
        if (lane_index() == 0)
            mbarrier_arrive(empty(stage));
    }
};

/* ---- Tasks ---------------------------------------------------------------------------------------- */

enum task_kind { TASK_END, TASK_GATE_UP, TASK_DOWN, TASK_DGATE_UP, TASK_DX };

/* A tile: 128 rows of block `block` and the columns of number `tile`. */
struct fused_task {
    uint32_t kind, block, tile, expert;
};

/* Tasks on their way from the load warp to the consumers and the store warp. */
struct task_queue {
    uint32_t place, parity;
};

MM_DEVICE void queue_next(task_queue &at) {
    if (++at.place == QUEUE_PLACES) {
        at.place = 0;
        at.parity ^= 1;
    }
}

MM_DEVICE smem_t queue_address(uint32_t place) {
    return smem_base() + QUEUE_OFFSET + 16 * place;
}
MM_DEVICE smem_t queue_full(uint32_t place) {
    return smem_base() + QUEUE_FULL_OFFSET + 8 * place;
}
MM_DEVICE smem_t queue_empty(uint32_t place) {
    return smem_base() + QUEUE_EMPTY_OFFSET + 8 * place;
}

/* By one thread; `at` begins with parity 1. */
MM_DEVICE void queue_put(task_queue &at, const fused_task &task) {
    mbarrier_wait(queue_empty(at.place), at.parity);
    smem_store_u32x4(queue_address(at.place), {task.kind, task.block, task.tile, task.expert});
    mbarrier_arrive(queue_full(at.place));
    queue_next(at);
}

/* By each warp of the consumers and the store warp; `at` begins with parity 0. */
MM_DEVICE fused_task queue_take(task_queue &at) {
    mbarrier_wait(queue_full(at.place), at.parity);
    const u32x4 words = smem_load_u32x4(queue_address(at.place));
    warp_sync();
    if (lane_index() == 0)
        mbarrier_arrive(queue_empty(at.place));
    queue_next(at);
    return {words.x, words.y, words.z, words.w};
}

/* ---- Parts ---------------------------------------------------------------------------------------- */

MM_DEVICE smem_t part_address(uint32_t part) {
    return smem_base() + FUSED_STAGING_OFFSET + part * PART_BYTES;
}
MM_DEVICE smem_t part_full(uint32_t part) {
    return smem_base() + PART_FULL_OFFSET + 8 * part;
}
MM_DEVICE smem_t part_empty(uint32_t part) {
    return smem_base() + PART_EMPTY_OFFSET + 8 * part;
}
/* The part that consumer warp `warp` fills in its turn number `turn`, and the parity of that use. */
MM_DEVICE uint32_t part_of_turn(uint32_t warp, uint32_t turn) {
    return warp * PARTS + turn % PARTS;
}
MM_DEVICE uint32_t part_parity(uint32_t turn) {
    return turn / PARTS % 2;
}

/* A consumer warp's next part, once it has been stored. */
MM_DEVICE smem_t part_take(uint32_t turn) {
    const uint32_t part = part_of_turn(consumer_warp(), turn);
    const uint32_t wait = wait_begins();
    mbarrier_wait(part_empty(part), part_parity(turn) ^ 1);
    wait_ends(wait);
    return part_address(part);
}

/* The warp has filled it. */
MM_DEVICE void part_give(uint32_t &turn) {
    const uint32_t part = part_of_turn(consumer_warp(), turn++);
    fence_async_shared();
    warp_sync();
    if (lane_index() == 0)
        mbarrier_arrive(part_full(part));
}

/* ---- Result rows ---------------------------------------------------------------------------------- */

/* Result rows lie in combine slots with the 16-byte chunks of each 128 bytes in an order of their own, by the number of
 * the row on the rank that computed it: as they are staged, so that eight rows don't meet in the banks. Which place has
 * chunk `chunk` of row `row`, and the other way round. */
MM_DEVICE uint32_t combine_chunk(uint32_t chunk, uint32_t row) {
    return chunk ^ (row & 7);
}

/* ---- Beginning ------------------------------------------------------------------------------------ */

MM_DEVICE smem_t carry_full(uint32_t carry) {
    return smem_base() + CARRY_FULL_OFFSET + 8 * carry;
}

MM_DEVICE void fused_barriers_init(void) {
    fused_stages stages;
    for (uint32_t stage = 0; stage < FUSED_STAGES; stage++) {
        mbarrier_init(stages.full(stage), 1);
        mbarrier_init(stages.empty(stage), CONSUMER_WARPS);
    }
    for (uint32_t part = 0; part < CONSUMER_WARPS * PARTS; part++) {
        mbarrier_init(part_full(part), 1);
        mbarrier_init(part_empty(part), 1);
    }
    for (uint32_t carry = 0; carry < CARRIES; carry++)
        mbarrier_init(carry_full(carry), 1);
    for (uint32_t place = 0; place < QUEUE_PLACES; place++) {
        mbarrier_init(queue_full(place), 1);
        mbarrier_init(queue_empty(place), CONSUMER_WARPS + 1);
    }
    mbarrier_init_fence();
}

#endif
