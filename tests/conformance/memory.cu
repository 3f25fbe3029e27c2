/* Loads and stores of every width, and additions that many threads make to one word. */
#include "tools.cuh"

/* 64 bytes a thread, moved by all widths, through shared memory on the way. */
MM_KERNEL(memory_widths, parameters, 64) {
    const uint64_t at = (uint64_t)(cta_index() * cta_threads(p) + thread_index()) * 64;
    const smem_t mine = smem_base() + thread_index() * 64;
    smem_store_u32(mine, load_u16(p.in + at) | load_u16(p.in + at + 2) << 16);
    smem_store_u32(mine + 4, load_u32_l2(p.in + at + 4));
    const uint64_t pair = load_u64(p.in + at + 8);
    smem_store_u64(mine + 8, (uint32_t)pair, (uint32_t)(pair >> 32));
    smem_store_u32x4(mine + 16, load_u32x4(p.in + at + 16));
    smem_store_u32x4(mine + 32, load_u32x4_l2(p.in + at + 32));
    smem_store_u32x4(mine + 48, load_u32x4(p.in + at + 48));

    store_u32x4(p.out + at, smem_load_u32x4(mine));
    for (uint32_t i = 16; i < 28; i += 4)
        store_u32(p.out + at + i, smem_load_u32(mine + i));
    store_u16(p.out + at + 28, smem_load_u32(mine + 28));
    store_u16(p.out + at + 30, smem_load_u32(mine + 28) >> 16);
    for (uint32_t i = 32; i < 64; i += 8)
        store_u64(p.out + at + i, smem_load_u32(mine + i) | (uint64_t)smem_load_u32(mine + i + 4) << 32);
}

/* Words of the output: 8 counters, that all threads of all CTAs add to; then for each thread what its two fetches and
 * its fetch in shared memory gave, and what a swap that must fail gave; then a word a CTA, its sum in shared memory. */
enum { COUNTERS = 8, RESULTS = 4, NEVER = 0xfffffff0 };

MM_KERNEL(memory_additions, parameters, 64) {
    uint32_t *counter = (uint32_t *)p.out;
    const uint32_t t = thread_index(), thread = cta_index() * cta_threads(p) + t, first = COUNTERS + thread * RESULTS;
    const smem_t shared = smem_base();
    if (t == 0)
        smem_store_u32(shared, 5);
    cta_sync();
    add_relaxed_gpu(counter, thread);
    add_release_gpu(counter + 1, thread * 3);
    add_release_system(counter + 2, 0u - thread);
    put(p, first, fetch_add_relaxed_gpu(counter + 3, 1));
    put(p, first + 1, fetch_add_acq_rel_gpu(counter + 4, 7));
    put(p, first + 2, smem_fetch_add(shared, 2));

    /* A counter raised by swaps that are tried until they succeed; other threads' successes are finitely many. */
    for (uint32_t seen = load_relaxed_system(counter + 5);;) {
        const uint32_t found = compare_swap_system(counter + 5, seen, seen + 1);
        if (found == seen)
            break;
        seen = found;
    }
    put(p, first + 3, compare_swap_system(counter + 6, NEVER, 1));
    cta_sync();
    if (t == 0)
        put(p, COUNTERS + cta_count() * cta_threads(p) * RESULTS + cta_index(), smem_load_u32(shared));
}
