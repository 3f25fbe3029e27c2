/* Faults around places in memory, and threads of one CTA that do not wait for each other. */
#include "tools.cuh"

MM_KERNEL(shared_out_of_bounds, plant, 32) {
    smem_store_u32(smem_base() + 4 * lane_index() + (p.planted ? DATA : 0), 1); /* here: shared_out_of_bounds */
}

MM_KERNEL(global_out_of_bounds, plant, 32) {
    uint8_t *last = p.out + PLANT_OUT_BYTES - 128 + 4 * lane_index();
    store_u32(last + (p.planted ? 4 : 0), 1); /* here: global_out_of_bounds */
}

MM_KERNEL(bulk_out_of_bounds, plant, 32) {
    const smem_t bar = smem_base(), data = bar + DATA;
    start_barriers(1, 1);
    if (thread_index() == 0) {
        mbarrier_arrive_expect(bar, 256);
        bulk_load(data, p.in + PLANT_IN_BYTES - (p.planted ? 128 : 256), 256, bar); /* here: bulk_out_of_bounds */
    }
    wait_phase(bar, 0);
}

MM_KERNEL(shared_uninitialised, plant, 32) {
    if (!p.planted || lane_index() != 5)
        smem_store_u32(smem_base() + 4 * lane_index(), 1);
    warp_sync();
    const uint32_t word = smem_load_u32(smem_base() + 4 * (lane_index() ^ 1)); /* here: shared_uninitialised */
    store_u32(p.out + 4 * lane_index(), word);
}

MM_KERNEL(global_uninitialised, plant, 32) {
    if (!p.planted || lane_index() != 5)
        store_u32(p.out + 4 * lane_index(), 1);
    const uint32_t value = load_u32(p.out + 4 * lane_index()); /* here: global_uninitialised */
    store_u32(p.out + 4096 + 4 * lane_index(), value);
}

MM_KERNEL(misaligned_word, plant, 32) {
    store_u64(p.out + 8 * lane_index() + (p.planted ? 4 : 0), 1); /* here: misaligned_word */
}

MM_KERNEL(warp_sync_missing, plant, 32) {
    const smem_t mine = smem_base() + 4 * lane_index(), other = smem_base() + 4 * (lane_index() ^ 1);
    smem_store_u32(mine, 0);
    warp_sync();
    smem_store_u32(mine, lane_index()); /* here: warp_sync_missing */
    if (!p.planted)
        warp_sync();
    store_u32(p.out + 4 * lane_index(), smem_load_u32(other)); /* here: warp_sync_missing */
}

/* A lane hears from another one, and looks at what that has stored. */
MM_KERNEL(shuffle_taken_for_sync, plant, 32) {
    const smem_t mine = smem_base() + 4 * lane_index();
    smem_store_u32(mine, lane_index()); /* here: shuffle_taken_for_sync */
    const smem_t other = warp_shuffle_xor(mine, 1);
    if (!p.planted)
        warp_sync();
    store_u32(p.out + 4 * lane_index(), smem_load_u32(other)); /* here: shuffle_taken_for_sync */
}

/* One lane is chosen to read what all have stored. */
MM_KERNEL(election_taken_for_sync, plant, 32) {
    smem_store_u32(smem_base() + 4 * lane_index(), lane_index()); /* here: election_taken_for_sync */
    const bool chosen = elect_one();
    if (!p.planted)
        warp_sync();
    for (uint32_t lane = 0; lane < 32 && chosen; lane++) {
        const uint32_t word = smem_load_u32(smem_base() + 4 * lane); /* here: election_taken_for_sync */
        store_u32(p.out + 4 * lane, word);
    }
}

MM_KERNEL(cta_sync_missing, plant, 64) {
    const uint32_t t = thread_index();
    smem_store_u32(smem_base() + 4 * t, t);
    cta_sync();
    const uint32_t other = smem_load_u32(smem_base() + 4 * (t ^ 32)); /* here: cta_sync_missing */
    if (!p.planted)
        cta_sync();
    smem_store_u32(smem_base() + 4 * t, other + 1); /* here: cta_sync_missing */
    cta_sync();
    store_u32(p.out + 4 * t, smem_load_u32(smem_base() + 4 * t));
}

/* Two CTAs store to the same word. */
MM_KERNEL(two_writers, plant, 32) {
    if (thread_index() == 0)
        store_u32(p.out + (p.planted ? 0 : 4 * cta_index()), cta_index()); /* here: two_writers */
}
