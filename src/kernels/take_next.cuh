/* How warps of all CTAs share work: each takes the next number. */
#ifndef MM_KERNELS_TAKE_NEXT_CUH
#define MM_KERNELS_TAKE_NEXT_CUH

#include "kernels/isa.cuh"
#include "kernels/work_params.h"

/* Aligned. `base`: where the call's count begins, in lane 0. */
MM_DEVICE uint32_t take_next(call_flag &counter, uint32_t base) {
    uint32_t number = 0;
    if (lane_index() == 0)
        number = fetch_add_relaxed_gpu(&counter.value, 1) - base;
    return warp_shuffle(number, 0);
}

#endif
