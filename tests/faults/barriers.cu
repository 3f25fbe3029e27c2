/* Faults around barriers and warps: counts, phases, who comes and who does not. */
#include "tools.cuh"

MM_KERNEL(barrier_never_initialised, plant, 32) {
    const smem_t bar = smem_base();
    if (thread_index() == 0) {
        if (!p.planted)
            mbarrier_init(bar, 1);
        mbarrier_init_fence();
        mbarrier_arrive(bar); /* here: barrier_never_initialised */
        wait_phase(bar, 0);
    }
}

/* The copy engine uses a barrier whose initialisation was not made visible to it. */
MM_KERNEL(barrier_init_without_fence, plant, 32) {
    const smem_t bar = smem_base(), data = bar + DATA;
    if (thread_index() == 0) {
        mbarrier_init(bar, 1);
        if (!p.planted)
            mbarrier_init_fence();
    }
    cta_sync();
    if (thread_index() == 0) {
        mbarrier_arrive_expect(bar, 256);
        bulk_load(data, p.in, 256, bar); /* here: barrier_init_without_fence */
    }
    wait_phase(bar, 0);
}

/* A CTA of a cluster arrives at a barrier of its peer that may not be there yet. */
MM_KERNEL(peer_barrier_too_early, plant, 32) {
    const smem_t bar = smem_base();
    if (thread_index() == 0) {
        mbarrier_init(bar, 1);
        mbarrier_init_fence();
    }
    if (p.planted)
        cta_sync();
    else
        cluster_sync();
    if (thread_index() == 0) {
        mbarrier_arrive_cluster(bar, cluster_rank() ^ 1); /* here: peer_barrier_too_early */
        wait_phase(bar, 0);
    }
    cluster_sync();
}

/* A phase gets more arrivals than it counts. */
MM_KERNEL(too_many_arrivals, plant, 32) {
    const smem_t bar = smem_base();
    start_barriers(1, p.planted ? 20 : 32);
    mbarrier_arrive(bar);
    warp_sync();
    wait_phase(bar, 0);
    mbarrier_arrive(bar); /* here: too_many_arrivals */
    warp_sync();
    wait_phase(bar, 1);   /* here: too_many_arrivals */
    mbarrier_arrive(bar); /* here: too_many_arrivals */
    warp_sync();
    wait_phase(bar, 0); /* here: too_many_arrivals */
}

/* A warp looks at every second phase only and takes one for another. */
MM_KERNEL(phases_skipped, plant, 64) {
    const smem_t bar = smem_base(), go = bar + 8;
    if (thread_index() == 0) {
        mbarrier_init(bar, 32);
        mbarrier_init(go, 32);
        mbarrier_init_fence();
    }
    cta_sync();
    for (uint32_t i = 0; i < 6; i++) {
        if (warp_index() == 0) {
            smem_store_u32(bar + DATA + 4 * lane_index(), i); /* here: phases_skipped */
            mbarrier_arrive(bar);
            wait_phase(go, i & 1); /* here: phases_skipped */
        } else {
            if (!p.planted || i % 2 == 0)
                wait_phase(bar, i & 1);
            const uint32_t seen = smem_load_u32(bar + DATA + 4 * lane_index()); /* here: phases_skipped */
            store_u32(p.out + 128 * i + 4 * lane_index(), seen);
            mbarrier_arrive(go);
        }
    }
}

MM_KERNEL(arrival_missing, plant, 64) {
    const smem_t bar = smem_base();
    start_barriers(1, 64);
    if (!p.planted || thread_index() != 40)
        mbarrier_arrive(bar);
    wait_phase(bar, 0); /* here: arrival_missing */
}

/* The warps of a named barrier do not agree on its size. */
MM_KERNEL(named_counts_differ, plant, 96) {
    barrier_sync(3, p.planted && warp_index() == 2 ? 64 : 96); /* here: named_counts_differ */
}

MM_KERNEL(named_not_reached, plant, 96) {
    if (!p.planted || warp_index() != 2)
        barrier_sync(3, 96); /* here: named_not_reached */
}

/* More threads come than the barrier has room for: warp 2 belongs to another one. */
MM_KERNEL(named_wrong_number, plant, 128) {
    const uint32_t pair = warp_index() / 2;
    for (uint32_t i = 0; i < 3; i++)
        barrier_sync(p.planted && warp_index() == 2 ? 1 : 1 + pair, 64); /* here: named_wrong_number */
}

/* The other warps meet without the one that has left. */
MM_KERNEL(warp_left_early, plant, 96) {
    if (p.planted && warp_index() == 1)
        return;
    cta_sync(); /* here: warp_left_early */
}

MM_KERNEL(lane_missing, plant, 32) {
    uint32_t votes = 0;
    if (!p.planted || lane_index() != 7)
        votes = warp_ballot(true);              /* here: lane_missing */
    store_u32(p.out + 4 * lane_index(), votes); /* here: lane_missing */
}

MM_KERNEL(lanes_diverge, plant, 32) {
    uint32_t value = lane_index();
    if (p.planted && lane_index() < 16)
        value += warp_ballot(true); /* here: lanes_diverge */
    else
        value += warp_shuffle_xor(value, 1); /* here: lanes_diverge */
    store_u32(p.out + 4 * lane_index(), value);
}

/* Half the warp votes in a branch of its own while the others go on. */
MM_KERNEL(vote_in_branch, plant, 32) {
    uint32_t votes = 0;
    if (!p.planted || lane_index() < 16)
        votes = warp_ballot(true); /* here: vote_in_branch */
    warp_sync();                   /* here: vote_in_branch */
    store_u32(p.out + 4 * lane_index(), votes);
}

/* One operation with the same arguments, but called in two places. */
MM_KERNEL(votes_at_two_places, plant, 32) {
    uint32_t votes;
    if (p.planted && lane_index() < 16)
        votes = warp_ballot(true); /* here: votes_at_two_places */
    else
        votes = warp_ballot(true); /* here: votes_at_two_places */
    store_u32(p.out + 4 * lane_index(), votes);
}

/* The warp's index is not a lane's alone to ask for. */
MM_KERNEL(index_by_one_lane, plant, 64) {
    if (!p.planted || lane_index() == 5)
        store_u32(p.out + 4 * thread_index(), warp_index()); /* here: index_by_one_lane */
    mbarrier_init_fence();                                   /* here: index_by_one_lane */
}

/* Of a cluster of two, the second CTA leaves while the first one still sends to it. */
MM_KERNEL(peer_left_early, plant, 32) {
    const smem_t bar = smem_base(), data = bar + DATA;
    if (thread_index() == 0) {
        mbarrier_init(bar, 1);
        mbarrier_init_fence();
    }
    cluster_sync();
    if (thread_index() == 0 && cluster_rank() == 0) {
        mbarrier_arrive_expect(bar, BOX_BYTES);
        tma_load<2>(data, &p.swizzled, bar, {0, 0}, 3); /* here: peer_left_early */
        wait_phase(bar, 0);
    }
    if (thread_index() == 0 && cluster_rank() == 1) {
        mbarrier_arrive_expect(bar, BOX_BYTES);
        if (!p.planted)
            wait_phase(bar, 0);
    }
}

/* Two CTAs wait for each other where only one can run. */
MM_KERNEL(waits_for_absent, plant, 32) {
    if (thread_index() == 0) {
        if (p.planted || cta_index() == 1)
            store_release_gpu(p.flags + cta_index(), 1);
        if (p.planted || cta_index() == 1)
            wait_flag(p.flags + (cta_index() ^ 1), 1); /* here: waits_for_absent */
        if (!p.planted && cta_index() == 0)
            store_release_gpu(p.flags, 1);
    }
}

/* A warpgroup takes fewer registers than it has. */
MM_KERNEL(registers_taken_down, plant, 384) {
    if (thread_index() < 128) {
        if (p.planted)
            registers_take<40>(); /* here: registers_taken_down */
        else
            registers_give<40>();
    }
}

/* Three warpgroups; more registers are taken than were given. */
MM_KERNEL(registers_overtaken, plant, 384) {
    if (thread_index() < 128) {
        if (p.planted)
            registers_give<104>();
        else
            registers_give<40>();
    } else {
        registers_take<232>(); /* here: registers_overtaken */
    }
}
