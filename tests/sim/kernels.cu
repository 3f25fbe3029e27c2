/* Small kernels, each for one thing that the simulator must do. */
#include "kernels.h"
#include "kernels/isa.cuh"

/* to[i] = from[i] + 1 */
MM_KERNEL(add_one, words, 64) {
    for (uint32_t i = cta_index() * 64 + thread_index(); i < p.count; i += cta_count() * 64)
        store_u32(p.to + i, load_u32(p.from + i) + 1);
}

/* to[0]: CTAs that run; to[1]: the most that ever did; to[2] counts those that have ended. */
MM_KERNEL(count_residents, words, 32) {
    if (thread_index() != 0)
        return;
    const uint32_t now = fetch_add_relaxed_gpu(p.to, 1) + 1;
    uint32_t most = load_relaxed_system(p.to + 1);
    while (most < now) {
        const uint32_t seen = compare_swap_system(p.to + 1, most, now);
        if (seen == most)
            break;
        most = seen;
    }
    sleep_ns(500);
    add_relaxed_gpu(p.to, ~0u);
    add_release_gpu(p.to + 2, 1);
}

/* Waits for the flag to reach `count`, then says so. */
MM_KERNEL(wait_for_flag, words, 32) {
    if (thread_index() == 0) {
        while (load_acquire_system(p.flag) < p.count)
            sleep_ns(100);
        store_u32(p.to, load_u32(p.from));
    }
}

/* Gives up after `count` nanoseconds. */
MM_KERNEL(wait_until_deadline, words, 32) {
    if (thread_index() != 0)
        return;
    const uint64_t start = clock_ns();
    uint32_t came = 1;
    while (load_acquire_system(p.flag) == 0) {
        if (clock_ns() - start > p.count) {
            came = 0;
            break;
        }
    }
    store_u32(p.to, came);
}

/* The same, with a look at the clock every 256th time, and a sleep between two looks at the flag. */
MM_KERNEL(wait_seldom_looking, words, 32) {
    if (thread_index() != 0)
        return;
    const uint64_t start = clock_ns();
    uint32_t looks = 0, came = 1;
    while (load_acquire_system(p.flag) == 0) {
        sleep_ns(40);
        if (++looks % 256 == 0 && clock_ns() - start > p.count) {
            came = 0;
            break;
        }
    }
    store_u32(p.to, came);
}

/* Waits for nothing that ever comes. */
MM_KERNEL(wait_for_ever, words, 32) {
    if (thread_index() == 0)
        while (load_acquire_system(p.flag) == 0) {
        }
}

/* Lets the next grid start long before it writes what that one reads. */
MM_KERNEL(let_then_write, words, 32) {
    grid_launch_dependents();
    sleep_ns(2000);
    if (thread_index() == 0) {
        store_release_system(p.flag, 1);
        store_u32(p.to, 7);
    }
}

/* from[0] is the other grid's; to[1]: whether this one began before the other one ended. */
MM_KERNEL(begin_then_read, words, 32) {
    if (thread_index() == 0)
        store_u32(p.to + 1, load_acquire_system(p.flag) == 0);
    grid_dependency_wait();
    if (thread_index() == 0)
        store_u32(p.to, load_u32(p.from) + 1);
}

/* The store to the other device's word is released at that scope only when `count` is 1. */
MM_KERNEL(store_to_peer, words, 32) {
    if (thread_index() == 0) {
        store_u32(p.to, 5);
        if (p.count == 1)
            store_release_system(p.flag, 1);
        else
            store_release_gpu(p.flag, 1);
    }
}

MM_KERNEL(read_from_peer, words, 32) {
    if (thread_index() == 0) {
        while (load_acquire_system(p.flag) == 0) {
        }
        store_u32(p.to, load_u32(p.from));
    }
}

/* Every device sends a word to the next one, `rounds` times; three warps play: one sends, one receives, one sums. */
MM_KERNEL(pass_round, ring_parameters, RING_THREADS) {
    const uint32_t next = (p.device + 1) % p.devices, warp = warp_index();
    const smem_t full = smem_base(), empty = full + 8, word = full + 16;
    if (thread_index() == 0) {
        mbarrier_init(full, 1);
        mbarrier_init(empty, 1);
    }
    cta_sync();
    uint32_t sum = 0;
    for (uint32_t round = 1; round <= p.rounds; round++) {
        if (warp == 0 && lane_index() == 0) {
            while (load_acquire_system(p.taken[p.device]) != round - 1) {
            }
            store_u32(p.slot[next], round * (p.device + 1));
            store_release_system(p.ready[next], round);
        }
        if (warp == 1 && lane_index() == 0) {
            while (load_acquire_system(p.ready[p.device]) != round) {
            }
            while (!mbarrier_test(empty, (round - 1) % 2 ^ 1)) {
            }
            smem_store_u32(word, load_u32(p.slot[p.device]));
            mbarrier_arrive(full);
            const uint32_t previous = (p.device + p.devices - 1) % p.devices;
            store_release_system(p.taken[previous], round);
        }
        if (warp == 2) {
            while (!mbarrier_test(full, (round - 1) % 2)) {
            }
            sum += smem_load_u32(word);
            warp_sync();
            if (lane_index() == 0)
                mbarrier_arrive(empty);
        }
    }
    if (warp == 2)
        store_u32(p.sums + lane_index(), warp_shuffle_xor(sum, 31));
}

/* Nothing but aligned operations. */
MM_KERNEL(shuffle_on, words, 256) {
    uint32_t value = thread_index();
    for (uint32_t i = 0; i < p.count; i++)
        value += warp_shuffle_xor(value, 1 + i % 31);
    store_u32(p.to + cta_index() * 256 + thread_index(), value);
}

/* CTA 1 writes a piece of its shared memory with ordinary stores, stores it with the copy engine and tells CTA 0, which
 * copies into the same piece. The arrival orders only what waits for asynchronous work have shown to be over. */
MM_KERNEL(refill, refill_parameters, 32) {
    const smem_t full = smem_base(), empty = full + 8, piece = full + 1024;
    const uint32_t lane = lane_index(), bytes = 1024;
    if (thread_index() == 0) {
        mbarrier_init(full, 1);
        mbarrier_init(empty, 1);
        mbarrier_init_fence();
    }
    cluster_sync();
    if (cluster_rank() == 1) {
        for (uint32_t at = 16 * lane; at < bytes; at += 512)
            smem_store_u32x4(piece + at, {lane, at, 2, 3});
        fence_async_shared();
        warp_sync();
        if (lane == 0) {
            if (p.way != ONLY_FENCED)
                bulk_store(p.to, piece, bytes);
            bulk_commit();
            if (p.way == STORED_AND_WAITED)
                bulk_wait_read<0>();
            mbarrier_arrive_expect(full, bytes);
            mbarrier_arrive_cluster(empty, 0);
            bulk_wait_read<0>();
        }
        while (!mbarrier_test(full, 0)) {
        }
        store_u32(p.to + bytes / 4 + lane, smem_load_u32(piece + 4 * lane));
    } else if (lane == 0) {
        while (!mbarrier_test(empty, 0)) {
        }
        tma_load<2>(piece, &p.from, full, {0, 0}, 2);
    }
    cluster_sync();
}
