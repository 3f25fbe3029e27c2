/* Where the counters of a fused kernel's work stand before it begins, and where they will stand. */
#ifndef MM_KERNELS_PLAN_WORK_CUH
#define MM_KERNELS_PLAN_WORK_CUH

#include "kernels/isa.cuh"
#include "kernels/work_params.h"

/* By one thread. */
MM_DEVICE void note_work(const call_work &work) {
    const work_counters *now = work.counters;
    store_u32(&work.base->task, load_u32(&now->task.value));
    store_u32(&work.base->fetch, load_u32(&now->fetch.value));
    store_u32(&work.base->fetched, load_u32(&now->fetched.value));
    store_u32(&work.base->sum, load_u32(&now->sum.value));
    store_u32(&work.base->group, load_u32(&now->group.value));
    store_u32(&work.base->ended, load_u32(&now->ended.value));
}

/* A block is complete when `count` more of what is counted have come. */
MM_DEVICE void await_more(const block_counters &counters, uint32_t block, uint32_t count) {
    store_u32(counters.target + block, load_u32(counters.now + block) + count);
}

#endif
