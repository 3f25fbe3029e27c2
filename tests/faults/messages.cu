/* Faults in messages between CTAs and between devices: flags, epochs, arrivals. */
#include "tools.cuh"

/* Messages, where there are several: enough that both sides run at once under most seeds. */
enum { EPOCHS = 40 };

/* Of the output, where old data lie. */
enum { OLD = PLANT_OUT_BYTES / 2 };

/* In the first ones CTA 0 stores a word and raises a flag; CTA 1 awaits the flag and loads the word. */
MM_KERNEL(flag_without_release, plant, 32) {
    if (thread_index() != 0)
        return;
    if (cta_index() == 0) {
        store_u32(p.out, 1);
        if (!p.planted)
            fence_gpu();
        add_relaxed_gpu(p.flags, 1);
    } else {
        wait_flag(p.flags, 1);
        store_u32(p.out + 4096, load_u32(p.out)); /* here: flag_without_release */
    }
}

MM_KERNEL(flag_without_acquire, plant, 32) {
    if (thread_index() != 0)
        return;
    if (cta_index() == 0) {
        store_u32(p.out, 1);
        store_release_system(p.flags, 1);
    } else {
        while (load_relaxed_system(p.flags) == 0)
            ;
        if (!p.planted)
            fence_system();
        store_u32(p.out + 4096, load_u32(p.out)); /* here: flag_without_acquire */
    }
}

/* One thread acquires; another loads without having met it. */
MM_KERNEL(acquired_by_another, plant, 32) {
    if (cta_index() == 0) {
        if (thread_index() == 0) {
            store_u32(p.out + OLD, 1); /* here: acquired_by_another */
            store_release_gpu(p.flags, 1);
        }
    } else {
        if (thread_index() == 0)
            wait_flag(p.flags, 1);
        if (!p.planted)
            warp_sync();
        if (thread_index() == 9)
            store_u32(p.out + 4096, load_u32(p.out + OLD)); /* here: acquired_by_another */
    }
}

/* The same, and a vote tells the other that the flag has come. */
MM_KERNEL(vote_taken_for_sync, plant, 32) {
    if (cta_index() == 0) {
        if (thread_index() == 0) {
            store_u32(p.out + OLD, 1); /* here: vote_taken_for_sync */
            store_release_gpu(p.flags, 1);
        }
    } else {
        if (thread_index() == 0)
            wait_flag(p.flags, 1);
        const uint32_t votes = warp_ballot(true);
        if (!p.planted)
            warp_sync();
        if (thread_index() == 9 && votes != 0)
            store_u32(p.out + 4096, load_u32(p.out + OLD)); /* here: vote_taken_for_sync */
    }
}

/* The flag counts epochs; later messages are awaited with the first one's. */
MM_KERNEL(epoch_not_advanced, plant, 32) {
    if (thread_index() != 0)
        return;
    for (uint32_t epoch = 1; epoch <= EPOCHS; epoch++) {
        if (cta_index() == 0) {
            sleep_ns(100);
            store_u32(p.out + OLD + 4 * epoch, epoch); /* here: epoch_not_advanced */
            store_release_gpu(p.flags, epoch);
        } else {
            wait_flag(p.flags, p.planted ? 1 : epoch);
            const uint32_t word = load_u32(p.out + OLD + 4 * epoch); /* here: epoch_not_advanced */
            store_u32(p.out + 4096 + 4 * epoch, word);
        }
    }
}

/* The word is stored again before the reader has answered. */
MM_KERNEL(answer_not_awaited, plant, 32) {
    if (thread_index() != 0)
        return;
    for (uint32_t epoch = 1; epoch <= EPOCHS; epoch++) {
        if (cta_index() == 0) {
            if (epoch > 1 && !p.planted)
                wait_flag(p.flags + 1, epoch - 1);
            sleep_ns(100);
            store_u32(p.out, epoch); /* here: answer_not_awaited */
            store_release_gpu(p.flags, epoch);
        } else {
            wait_flag(p.flags, epoch);
            store_u32(p.out + 4096 + 4 * epoch, load_u32(p.out)); /* here: answer_not_awaited */
            store_release_gpu(p.flags + 1, epoch);
        }
    }
}

/* Data that a bulk store brings, announced before the store is known to have landed. */
MM_KERNEL(bulk_not_landed, plant, 32) {
    if (thread_index() != 0)
        return;
    if (cta_index() == 0) {
        smem_store_u32x4(smem_base(), {1, 2, 3, 4});
        fence_async_shared();
        bulk_store(p.out, smem_base(), 16);
        bulk_commit();
        if (p.planted)
            bulk_wait_read<0>();
        else
            bulk_wait<0>();
        fence_async();
        store_release_gpu(p.flags, 1);
    } else {
        wait_flag(p.flags, 1);
        store_u32(p.out + 4096, load_u32(p.out)); /* here: bulk_not_landed */
    }
}

/* An arrival at a peer's mbarrier without a scope is taken for a release. */
MM_KERNEL(arrival_taken_for_release, plant, 32) {
    const smem_t bar = smem_base();
    if (thread_index() == 0) {
        mbarrier_init(bar, 1);
        mbarrier_init_fence();
    }
    cluster_sync();
    if (thread_index() == 0) {
        if (cluster_rank() == 0) {
            store_u32(p.out, 1); /* here: arrival_taken_for_release */
            if (p.planted)
                mbarrier_arrive_cluster(bar, 1);
            else
                store_release_gpu(p.flags, 1);
        } else {
            if (p.planted)
                wait_phase(bar, 0);
            else
                wait_flag(p.flags, 1);
            store_u32(p.out + 4096, load_u32(p.out)); /* here: arrival_taken_for_release */
        }
    }
    cluster_sync();
}

/* Device 0 stores into device 1's memory and raises device 1's flag, released for its own device alone. */
MM_KERNEL(release_scope_too_small, plant, 32) {
    if (thread_index() != 0)
        return;
    if (p.device == 0) {
        store_u32(p.peer_out, 1);
        if (p.planted)
            store_release_gpu(p.peer_flags, 1); /* here: release_scope_too_small */
        else
            store_release_system(p.peer_flags, 1);
    } else {
        wait_flag(p.flags, 1);
        store_u32(p.out + 4096, load_u32(p.out)); /* here: release_scope_too_small */
    }
}

MM_KERNEL(peer_store_without_release, plant, 32) {
    if (thread_index() != 0)
        return;
    if (p.device == 0) {
        store_u32(p.peer_out, 1);
        if (p.planted)
            add_relaxed_gpu(p.peer_flags, 1); /* here: peer_store_without_release */
        else
            add_release_system(p.peer_flags, 1);
    } else {
        wait_flag(p.flags, 1);
        store_u32(p.out + 4096, load_u32(p.out)); /* here: peer_store_without_release */
    }
}

/* Two CTAs of device 0 each push a row into a slot of device 1, which sums when it believes that both are there. */
MM_KERNEL(slot_read_before_arrival, plant, 32) {
    enum { ROWS = 2 };
    if (p.device == 0) {
        uint8_t *slot = p.peer_out + OLD + cta_index() * 128;
        store_u32(slot + 4 * lane_index(), cta_index() + lane_index()); /* here: slot_read_before_arrival */
        warp_sync();
        if (lane_index() == 0)
            add_release_system(p.peer_flags, 1);
    } else if (cta_index() == 0) {
        if (lane_index() == 0)
            wait_flag(p.flags, p.planted ? ROWS - 1 : ROWS);
        warp_sync();
        uint32_t sum = 0;
        for (uint32_t row = 0; row < ROWS; row++)
            sum += load_u32(p.out + OLD + row * 128 + 4 * lane_index()); /* here: slot_read_before_arrival */
        store_u32(p.out + 4096 + 4 * lane_index(), sum);
    }
}

/* Both devices wait for the other to begin. */
MM_KERNEL(ranks_wait_for_each_other, plant, 32) {
    if (thread_index() != 0)
        return;
    if (!p.planted || p.device == 1)
        store_release_system(p.peer_flags, p.planted ? 0 : 1);
    wait_flag(p.flags, 1); /* here: ranks_wait_for_each_other */
}
