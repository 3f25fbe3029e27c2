/* What the suite's kernels share: waits with an end, and shared memory filled and copied out by a whole CTA. */
#ifndef TESTS_CONFORMANCE_TOOLS_CUH
#define TESTS_CONFORMANCE_TOOLS_CUH

#include "kernels/isa.cuh"
#include "parameters.h"

/* Barriers lie in the first KB of shared memory, data behind it. */
enum { DATA_OFFSET = 1024 };

/* A wait that never ends would take the GPU with it: after so many tries the clock is looked at, and after so long the
 * wait is given up and counted. */
enum { TRIES_BEFORE_CLOCK = 1 << 16 };

struct deadline {
    uint32_t tries;
    uint64_t start;
};

MM_DEVICE bool deadline_passed(deadline &d, uint32_t *late) {
    if (++d.tries < TRIES_BEFORE_CLOCK)
        return false;
    if (d.tries == TRIES_BEFORE_CLOCK)
        d.start = clock_ns();
    if (clock_ns() - d.start < 1000000000u)
        return false;
    add_relaxed_gpu(late, 1);
    return true;
}

MM_DEVICE void wait_phase(smem_t bar, uint32_t parity, uint32_t *late) {
    deadline d = {0, 0};
    while (!mbarrier_test(bar, parity))
        if (deadline_passed(d, late))
            return;
}

MM_DEVICE uint32_t cta_threads(const parameters &p) {
    return p.number[PARAMETER_NUMBERS - 1];
}

/* By all threads; `bytes` is a multiple of 16. */
MM_DEVICE void shared_fill(const parameters &p, smem_t to, uint32_t bytes, uint32_t word) {
    for (uint32_t at = thread_index() * 16; at < bytes; at += cta_threads(p) * 16)
        smem_store_u32x4(to + at, {word, word, word, word});
}

MM_DEVICE void shared_from_global(const parameters &p, smem_t to, const uint8_t *from, uint32_t bytes) {
    for (uint32_t at = thread_index() * 16; at < bytes; at += cta_threads(p) * 16)
        smem_store_u32x4(to + at, load_u32x4(from + at));
}

MM_DEVICE void shared_to_global(const parameters &p, uint8_t *to, smem_t from, uint32_t bytes) {
    for (uint32_t at = thread_index() * 16; at < bytes; at += cta_threads(p) * 16)
        store_u32x4(to + at, smem_load_u32x4(from + at));
}

MM_DEVICE void put(const parameters &p, uint32_t word, uint32_t value) {
    store_u32(p.out + 4 * (uint64_t)word, value);
}

MM_DEVICE uint32_t get(const parameters &p, uint32_t word) {
    return load_u32(p.in + 4 * (uint64_t)word);
}

#endif
