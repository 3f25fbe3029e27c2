/* Barriers of a CTA and of a cluster, by what their threads see of each other's stores. */
#include "tools.cuh"

/* number[0] rounds: each thread writes a word of shared memory and one of global memory, and after the barrier reads
 * other threads'. */
MM_KERNEL(sync_cta, parameters, 128) {
    const uint32_t t = thread_index(), threads = cta_threads(p);
    uint8_t *scratch = p.out + 4 * threads;
    uint32_t sum = 0;
    for (uint32_t round = 0; round < p.number[0]; round++) {
        smem_store_u32(smem_base() + 4 * t, round * 1000 + t);
        store_u32(scratch + 4 * t, round * 7 + t);
        cta_sync();
        const uint32_t other = (t + 33 * (round + 1)) % threads;
        sum += smem_load_u32(smem_base() + 4 * other) * 3 + load_u32(scratch + 4 * other);
        cta_sync();
    }
    put(p, t, sum);
}

/* Each pair of warps meets at a barrier of its own, number[0] times, more often the higher its number. */
MM_KERNEL(sync_named, parameters, 256) {
    const uint32_t t = thread_index(), pair = t / 64, mate = t ^ 32;
    uint32_t sum = 0;
    for (uint32_t round = 0; round < p.number[0] * (pair + 1); round++) {
        smem_store_u32(smem_base() + 4 * t, round + t);
        barrier_sync(1 + pair, 64);
        sum += smem_load_u32(smem_base() + 4 * mate) * (round + 1);
        barrier_sync(1 + pair, 64);
    }
    put(p, t, sum);
}

/* Warp 0 fills two slots by turns, warps 1 to 3 read them: a barrier for full and one for empty, a slot each, at which
 * one side arrives and the other waits. number[0] fills. */
enum { FULL = 4, EMPTY = 6 };

MM_KERNEL(sync_producer_consumer, parameters, 128) {
    const uint32_t fills = p.number[0], warp = warp_index(), lane = lane_index();
    uint32_t sum = 0;
    for (uint32_t i = 0; i < fills; i++) {
        const uint32_t slot = i % 2;
        const smem_t word = smem_base() + slot * 128 + 4 * lane;
        if (warp == 0) {
            if (i >= 2)
                barrier_sync(EMPTY + slot, 128);
            smem_store_u32(word, i * 100 + lane);
            barrier_arrive(FULL + slot, 128);
        } else {
            barrier_sync(FULL + slot, 128);
            sum += smem_load_u32(word) * warp;
            if (i + 2 < fills)
                barrier_arrive(EMPTY + slot, 128);
        }
    }
    put(p, thread_index(), sum);
}

/* Launched several times, each launch free to start early: every one adds to what the one before it wrote. */
MM_KERNEL(sync_launches, parameters, 64) {
    const uint32_t word = cta_index() * cta_threads(p) + thread_index();
    grid_launch_dependents();
    sleep_ns(10000);
    grid_dependency_wait();
    put(p, word, load_u32(p.out + 4 * word) * 3 + word);
}

/* Clusters of 2. number[0] rounds: each CTA stores words that the other reads after the barrier. */
MM_KERNEL(sync_cluster, parameters, 64) {
    const uint32_t t = thread_index(), threads = cta_threads(p), cta = cta_index();
    uint8_t *words = p.out + 4 * (uint64_t)cta_count() * threads;
    uint32_t sum = 0;
    for (uint32_t round = 0; round < p.number[0]; round++) {
        store_u32(words + 4 * (cta * threads + t), round * 31 + cta * 1000 + t);
        cluster_sync();
        sum = sum * 5 + load_u32(words + 4 * ((cta ^ 1) * threads + (t + round) % threads));
        cluster_sync();
    }
    put(p, cta * threads + t, sum);
}
