/* Who a thread is, and what the lanes of a warp tell each other. */
#include "tools.cuh"

/* 13 words a thread. */
MM_KERNEL(warp_identity, parameters, 96) {
    const uint32_t t = thread_index(), first = (cta_index() * cta_threads(p) + t) * 13;
    put(p, first, t);
    put(p, first + 1, warp_index());
    put(p, first + 2, lane_index());
    put(p, first + 3, cta_index());
    put(p, first + 4, cta_count());
    put(p, first + 5, cluster_rank());
    put(p, first + 6, smem_base() % 1024);

    /* Cycles and nanoseconds pass, and pass forwards. */
    const uint32_t cycles = clock_cycles();
    const uint64_t ns = clock_ns();
    sleep_ns(20000);
    put(p, first + 7, clock_cycles() - cycles < 1u << 31);
    put(p, first + 8, clock_ns() >= ns);
    put(p, first + 9, clock_cycles() != cycles);

    const bool chosen = elect_one();
    const uint32_t votes = warp_ballot(chosen);
    put(p, first + 10, votes != 0 && (votes & (votes - 1)) == 0);
    put(p, first + 11, (votes >> lane_index() & 1) == (uint32_t)chosen);
    put(p, first + 12, multiprocessor_index() < 1024);
}

/* Input: 2 words a lane, a value and the lane to read from. Output, words a lane: shuffle, 5 butterflies of integers, 5
 * of floats, 6 shifts up, ballot. */
enum { EXCHANGE_WORDS = 18 };

MM_KERNEL(warp_exchange, parameters, 64) {
    const uint32_t t = thread_index(), first = t * EXCHANGE_WORDS, value = get(p, 2 * t), from = get(p, 2 * t + 1);
    put(p, first, warp_shuffle(value, from));
    for (uint32_t bit = 0; bit < 5; bit++) {
        put(p, first + 1 + bit, warp_shuffle_xor(value, 1u << bit));
        put(p, first + 6 + bit, float_bits(warp_shuffle_xor(bits_float(value), 1u << bit)));
    }
    for (uint32_t bit = 0; bit < 5; bit++)
        put(p, first + 11 + bit, warp_shuffle_up(value, 1u << bit));
    put(p, first + 16, warp_shuffle_up(value, 5));
    put(p, first + 17, warp_ballot((value & 1) != 0));
}

/* number[0] rounds in which the lanes of a warp pass words on through shared memory. */
MM_KERNEL(warp_pass, parameters, 64) {
    const uint32_t lane = lane_index();
    const smem_t words = smem_base() + warp_index() * 128;
    uint32_t value = thread_index();
    for (uint32_t round = 0; round < p.number[0]; round++) {
        smem_store_u32(words + lane * 4, value);
        warp_sync();
        value = smem_load_u32(words + (lane + round) % 32 * 4) + 1;
        warp_sync();
    }
    put(p, thread_index(), value);
}
