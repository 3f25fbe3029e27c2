/* Where each expert's rows lie, from the counts of all chunks; computed again by each CTA of mm_place_slots, for the
 * experts whose slots it places. */
#ifndef MM_KERNELS_PLAN_SEGMENTS_CUH
#define MM_KERNELS_PLAN_SEGMENTS_CUH

#include "kernels/plan_chunk.cuh"

/* Shared memory: a few words, then arrays of a word for each key. */
enum place_word { PADDED_ROWS = PLAN_MAX_WORLD /* after the demand of each rank */, OWN_USED, OWN_KEPT };
enum place_array {
    TOTAL,     /* slots of the expert, before dropping */
    BEFORE,    /* those in chunks before this CTA's */
    OF_SOURCE, /* those of the source rank of this CTA's chunk */
    FIRST_ROW, /* of the expert's segment */
    END_ROW,   /* after the last row kept */
    OF_WARP    /* and the next ones: slots in each warp; then the warp's next row */
};

MM_DEVICE smem_t place_word_at(uint32_t word) {
    return smem_base() + 4 * word;
}

MM_DEVICE smem_t place_array_at(const plan_params &p, uint32_t array, uint32_t key) {
    return smem_base() + 4 * (PLAN_PLACE_OTHER_WORDS + array * p.experts + key);
}

/* A warp adds up so many chunks for 32 keys at a time: their loads overlap. */
#define CHUNK_BATCH 16

MM_DEVICE void add_chunks(const plan_params &p, const plan_chunk &own, const key_range &range) {
    const uint32_t chunks = cta_count(), pieces = (range.count + 31) / 32;
    const uint32_t tasks = (chunks + CHUNK_BATCH - 1) / CHUNK_BATCH * pieces;
    for (uint32_t task = warp_index(); task < tasks; task += p.warps) {
        const uint32_t key = task % pieces * 32 + lane_index(), from = task / pieces * CHUNK_BATCH;
        if (key >= range.count)
            continue;
        uint32_t count[CHUNK_BATCH], total = 0, before = 0, of_source = 0;
#pragma unroll
        for (uint32_t i = 0; i < CHUNK_BATCH; i++)
            count[i] = from + i < chunks
                           ? load_u32_l2(p.chunk_counts + (uint64_t)(from + i) * p.experts + range.first + key)
                           : 0;
#pragma unroll
        for (uint32_t i = 0; i < CHUNK_BATCH; i++) {
            total += count[i];
            before += from + i < cta_index() ? count[i] : 0;
            of_source += from + i - own.source * p.chunks < p.chunks ? count[i] : 0;
        }
        smem_fetch_add(place_array_at(p, TOTAL, key), total);
        smem_fetch_add(place_array_at(p, BEFORE, key), before);
        smem_fetch_add(place_array_at(p, OF_SOURCE, key), of_source);
    }
}

/* Sum over this lane and the lanes below it; aligned. */
MM_DEVICE uint32_t sum_to_lane(uint32_t value) {
#pragma unroll
    for (uint32_t delta = 1; delta < 32; delta *= 2) {
        const uint32_t lower = warp_shuffle_up(value, delta);
        value += lane_index() >= delta ? lower : 0;
    }
    return value;
}

/* The segments of one rank's experts, whose keys begin at `first_key`, by one warp. Rows past the capacity are dropped
 * in plan order, so an expert keeps what the experts before it have left over. */
MM_DEVICE void lay_segments(const plan_params &p, uint32_t rank, uint32_t first_key) {
    const uint32_t local_experts = p.experts / p.world;
    uint32_t demand = 0, padded_rows = 0;
    for (uint32_t base = 0; base < local_experts; base += 32) {
        const bool inside = base + lane_index() < local_experts;
        const uint32_t key = first_key + base + lane_index();
        const uint32_t wanted = inside ? smem_load_u32(place_array_at(p, TOTAL, key)) : 0;
        const uint32_t wanted_to = demand + sum_to_lane(wanted);
        const uint32_t kept = least(wanted, p.capacity - least(p.capacity, wanted_to - wanted));
        const uint32_t padded = (kept + PLAN_ROW_BLOCK - 1) / PLAN_ROW_BLOCK * PLAN_ROW_BLOCK;
        const uint32_t padded_to = padded_rows + sum_to_lane(padded);
        if (inside) {
            smem_store_u32(place_array_at(p, FIRST_ROW, key), padded_to - padded);
            smem_store_u32(place_array_at(p, END_ROW, key), padded_to - padded + kept);
        }
        demand = warp_shuffle(wanted_to, 31);
        padded_rows = warp_shuffle(padded_to, 31);
    }
    if (lane_index() == 0) {
        smem_store_u32(place_word_at(rank), demand);
        if (rank == p.rank)
            smem_store_u32(place_word_at(PADDED_ROWS), padded_rows);
    }
}

/* After lay_segments(): no row may be written that has no room. */
MM_DEVICE bool rows_fit(const plan_params &p) {
    return smem_load_u32(place_word_at(PADDED_ROWS)) <= p.row_room;
}

/* The next row of each warp and key, from the slots of the warps before it. */
MM_DEVICE void start_warps(const plan_params &p, const key_range &range) {
    for (uint32_t key = thread_index(); key < range.count; key += 32 * p.warps) {
        uint32_t row = smem_load_u32(place_array_at(p, FIRST_ROW, key)) + smem_load_u32(place_array_at(p, BEFORE, key));
        for (uint32_t first = 0; first < p.warps; first += PLAN_BATCH) {
            uint32_t count[PLAN_BATCH];
#pragma unroll
            for (uint32_t i = 0; i < PLAN_BATCH; i++)
                count[i] = first + i < p.warps ? smem_load_u32(place_array_at(p, OF_WARP + first + i, key)) : 0;
#pragma unroll
            for (uint32_t i = 0; i < PLAN_BATCH; i++) {
                if (first + i < p.warps)
                    smem_store_u32(place_array_at(p, OF_WARP + first + i, key), row);
                row += count[i];
            }
        }
    }
}

#endif
