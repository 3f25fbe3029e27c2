/* The tables of a plan and its pads, from the segments that mm_place_slots has laid. */
#ifndef MM_KERNELS_PLAN_TABLES_CUH
#define MM_KERNELS_PLAN_TABLES_CUH

#include "kernels/plan_rows.cuh"
#include "kernels/plan_work.cuh"

/* Counts of the source rank of this CTA's chunk, which has a key for every expert. */
MM_DEVICE void write_counts(const plan_params &p, uint32_t source) {
    for (uint32_t e = thread_index(); e < p.experts; e += 32 * p.warps)
        store_u32(p.tables.counts + source * p.experts + e, smem_load_u32(place_array_at(p, OF_SOURCE, e)));
}

/* Which blocks and pads the segments of this rank's experts have, and what completes a block: its pads come as rows
 * do. An expert by one CTA. */
MM_DEVICE void write_segments(const plan_params &p, uint32_t local_key) {
    const uint32_t threads = 32 * p.warps;
    if (!rows_fit(p))
        return;
    for (uint32_t e = cta_index(); e < p.experts / p.world; e += cta_count()) {
        const uint32_t first = smem_load_u32(place_array_at(p, FIRST_ROW, local_key + e));
        const uint32_t end = smem_load_u32(place_array_at(p, END_ROW, local_key + e));
        const uint32_t blocks_end = (end + PLAN_ROW_BLOCK - 1) / PLAN_ROW_BLOCK;
        for (uint32_t block = first / PLAN_ROW_BLOCK + thread_index(); block < blocks_end; block += threads) {
            store_u32(p.rows.block_expert + block, e);
            store_u32(p.rows.block_rows + block, least(end - block * PLAN_ROW_BLOCK, PLAN_ROW_BLOCK));
            await_more(p.work.rows, block, PLAN_ROW_BLOCK);
            await_more(p.work.h, block, p.h_tiles);
            await_more(p.work.results, block, p.result_tiles);
        }
        plan_slot pad = {};
        pad.token = pad.slot = pad.primary = PLAN_UNUSED;
        for (pad.row = end + thread_index(); pad.row < blocks_end * PLAN_ROW_BLOCK; pad.row += threads)
            write_row(p.rows, pad, PLAN_UNUSED);
    }
}

/* Slots of this rank that a rank keeps, by one warp of this rank's first CTA, whose BEFORE is the slots of the ranks
 * before this one. */
MM_DEVICE void count_kept(const plan_params &p, uint32_t owner) {
    const uint32_t local_experts = p.experts / p.world;
    uint32_t used = 0, kept = 0;
    for (uint32_t e = lane_index(); e < local_experts; e += 32) {
        const uint32_t key = owner * local_experts + e;
        const uint32_t first =
            smem_load_u32(place_array_at(p, FIRST_ROW, key)) + smem_load_u32(place_array_at(p, BEFORE, key));
        const uint32_t end = smem_load_u32(place_array_at(p, END_ROW, key));
        const uint32_t wanted = smem_load_u32(place_array_at(p, OF_SOURCE, key));
        used += wanted;
        kept += first < end ? least(wanted, end - first) : 0;
    }
    used = warp_shuffle(sum_to_lane(used), 31);
    kept = warp_shuffle(sum_to_lane(kept), 31);
    if (lane_index() == 0) {
        store_u32(p.tables.slots_on + owner, kept);
        smem_fetch_add(place_word_at(OWN_USED), used);
        smem_fetch_add(place_word_at(OWN_KEPT), kept);
    }
}

/* How often results of each rank will have arrived at the end of the call. */
MM_DEVICE void await_results(const plan_params &p) {
    for (uint32_t rank = thread_index(); rank < p.world; rank += 32 * p.warps) {
        uint32_t *target = p.state->rows_target + rank;
        store_u32(target, load_u32(target) + load_u32_l2(p.tables.slots_on + rank) * p.result_tiles);
    }
}

/* After count_kept() of all ranks, by one thread. */
MM_DEVICE void write_summary(const plan_params &p) {
    plan_summary *all = p.tables.all;
    const uint32_t used = smem_load_u32(place_word_at(OWN_USED)), kept = smem_load_u32(place_word_at(OWN_KEPT));
    uint32_t over_rank = NOBODY, over_demand = 0;
    for (uint32_t rank = p.world; rank-- > 0;) {
        const uint32_t demand = smem_load_u32(place_word_at(rank));
        if (!p.drop && demand > p.capacity) {
            over_rank = rank;
            over_demand = demand;
        }
    }
    store_u32(&all->rows, least(smem_load_u32(place_word_at(p.rank)), p.capacity));
    store_u32(&all->padded_rows, smem_load_u32(place_word_at(PADDED_ROWS)));
    store_u32(&all->slots, kept);
    store_u32(&all->slots_dropped, used - kept);
    store_u32(&all->over_rank, over_rank);
    store_u32(&all->over_demand, over_demand);
    store_u32(&all->call, load_u32(&p.state->call));
    if (over_rank != NOBODY) {
        store_u32(&p.state->result.outcome, CALL_CAPACITY);
        store_u32(&p.state->result.rank, over_rank);
        store_u32(&p.state->result.rows, over_demand);
    }
}

/* What one CTA writes for all: this rank's first one. */
MM_DEVICE void write_tables(const plan_params &p) {
    const uint32_t local_experts = p.experts / p.world;
    const uint32_t first_key = p.rank * local_experts;
    for (uint32_t rank = warp_index(); rank < p.world; rank += p.warps)
        count_kept(p, rank);
    for (uint32_t rank = thread_index(); rank < p.world; rank += 32 * p.warps) {
        const uint32_t demand = smem_load_u32(place_word_at(rank));
        store_u32(p.tables.tokens + rank, load_u32(p.tokens + rank));
        store_u64(p.tables.demand + rank, demand);
        store_u64(p.tables.dropped + rank, p.drop && demand > p.capacity ? demand - p.capacity : 0);
    }
    for (uint32_t e = thread_index(); e < local_experts; e += 32 * p.warps) {
        const uint32_t first = smem_load_u32(place_array_at(p, FIRST_ROW, first_key + e));
        store_u32(p.tables.expert_offset + e, first);
        store_u32(p.tables.expert_rows + e, smem_load_u32(place_array_at(p, END_ROW, first_key + e)) - first);
    }
    cta_sync();
    if (thread_index() == 0) {
        store_u32(p.tables.expert_offset + local_experts, smem_load_u32(place_word_at(PADDED_ROWS)));
        write_summary(p);
        note_work(p.work);
    }
    cta_sync();
    if (rows_fit(p) && load_u32(&p.tables.all->over_rank) == NOBODY)
        await_results(p);
}

#endif
