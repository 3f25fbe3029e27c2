/* What the kernels with planted faults share. A line that a report may name says so at its end: "here: name". */
#ifndef TESTS_FAULTS_TOOLS_CUH
#define TESTS_FAULTS_TOOLS_CUH

#include "kernels/isa.cuh"
#include "plant.h"

enum { BOX_BYTES = 64 * 64 * 2, DATA = 1024 };

MM_DEVICE void wait_phase(smem_t bar, uint32_t parity) {
    while (!mbarrier_test(bar, parity)) /* here: wait_phase */
        ;
}

MM_DEVICE void wait_flag(uint32_t *flag, uint32_t value) {
    while (load_acquire_system(flag) < value) /* here: wait_flag */
        ;
}

/* By thread 0, seen by all afterwards. */
MM_DEVICE void start_barriers(uint32_t count, uint32_t arrivals) {
    if (thread_index() == 0) {
        for (uint32_t i = 0; i < count; i++)
            mbarrier_init(smem_base() + 8 * i, arrivals);
        mbarrier_init_fence();
    }
    cta_sync();
}

MM_DEVICE void load_box(const plant &p, smem_t to, smem_t bar, int32_t row) {
    mbarrier_arrive_expect(bar, BOX_BYTES);
    tma_load<2>(to, &p.swizzled, bar, {0, row}); /* here: load_box */
}

/* A box of shared memory by ordinary stores of 128 threads. */
MM_DEVICE void write_box(smem_t box) {
    for (uint32_t at = thread_index() * 16; at < BOX_BYTES; at += 128 * 16)
        smem_store_u32x4(box + at, {0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80});
}

#endif
