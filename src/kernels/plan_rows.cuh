/* The rows of a warp's slots, one after another in plan order, and what is known of each row. */
#ifndef MM_KERNELS_PLAN_ROWS_CUH
#define MM_KERNELS_PLAN_ROWS_CUH

#include "kernels/plan_segments.cuh"

#define PLAN_UNUSED 0xffffffffu /* as the host plan's -1 and -2 */
#define PLAN_DROPPED 0xfffffffeu

/* How slots lie on lanes. A step takes as many whole tokens as fit in a warp; a token of more than 32 slots takes two
 * steps. Both lie in one batch, so that a batch knows all rows of its tokens. */
struct place_steps {
    uint32_t tokens, parts;     /* of a step; of a token */
    uint32_t token, slot;       /* of this lane in a step */
    uint32_t first_lane, lanes; /* those of the lane's token */
};
static_assert(PLAN_BATCH % 2 == 0, "both steps of a token lie in a batch");

MM_DEVICE place_steps place_steps_of(uint32_t top_k) {
    place_steps steps;
    steps.lanes = least(top_k, 32);
    steps.tokens = 32 / steps.lanes;
    steps.parts = top_k > 32 ? 2 : 1;
    steps.token = lane_index() / steps.lanes;
    steps.first_lane = steps.token * steps.lanes;
    steps.slot = lane_index() - steps.first_lane;
    return steps;
}

/* Which lanes have the same key; aligned. Keys are at most `greatest`. */
MM_DEVICE uint32_t lanes_with_same(uint32_t key, uint32_t greatest) {
    uint32_t same = ~0u;
    for (uint32_t bit = 0; greatest >> bit != 0; bit++) {
        const bool one = key >> bit & 1;
        const uint32_t ones = warp_ballot(one);
        same &= one ? ones : ~ones;
    }
    return same;
}

/* The next row of the lane's key, lanes in order; aligned. PLAN_UNUSED when the lane has none. */
MM_DEVICE uint32_t take_row(const plan_params &p, const key_range &range, uint32_t key) {
    const uint32_t same = lanes_with_same(key, range.count), lower = same & ((1u << lane_index()) - 1);
    const smem_t next_row = place_array_at(p, OF_WARP + warp_index(), key);
    uint32_t row = PLAN_UNUSED;
    if (key < range.count)
        row = smem_load_u32(next_row) + count_bits(lower);
    warp_sync();
    if (key < range.count && lower == 0)
        smem_store_u32(next_row, row + count_bits(same));
    warp_sync();
    if (key < range.count && row >= smem_load_u32(place_array_at(p, END_ROW, key)))
        row = PLAN_DROPPED;
    return row;
}

/* The least value among the lanes of a token; aligned. */
MM_DEVICE uint32_t least_of_token(uint32_t value, const place_steps &steps) {
    for (uint32_t delta = 1; delta < steps.lanes; delta *= 2) {
        const uint32_t lower = warp_shuffle_up(value, delta);
        value = steps.slot >= delta ? least(value, lower) : value;
    }
    return warp_shuffle(value, least(steps.first_lane + steps.lanes, 32) - 1);
}

/* A slot on its way to its row. */
struct plan_slot {
    uint32_t token, slot;
    uint32_t index; /* among its rank's slots */
    uint32_t key;   /* range.count: not used, or no slot at all */
    uint32_t weight, row, primary;
    bool real;  /* else the lane has no slot here */
    bool local; /* its row is on this rank */
};

/* The lane's slot in step `i` of the batch that begins at token `first`. */
MM_DEVICE plan_slot slot_in_step(const plan_params &p, const place_steps &steps, const plan_chunk &chunk,
                                 uint32_t first, uint32_t i) {
    plan_slot s = {};
    s.token = first + (steps.parts == 2 ? i / 2 : i * steps.tokens + steps.token);
    s.slot = steps.slot + (steps.parts == 2 ? i % 2 * 32 : 0);
    s.index = s.token * p.top_k + s.slot;
    s.real = steps.token < steps.tokens && s.slot < p.top_k && s.token < chunk.end;
    return s;
}

/* Of each slot of a batch, the lowest row of its token on this rank; aligned. */
MM_DEVICE void find_primaries(plan_slot (&slots)[PLAN_BATCH], const place_steps &steps) {
#pragma unroll
    for (uint32_t i = 0; i < PLAN_BATCH; i++)
        slots[i].primary = least_of_token(slots[i].local ? slots[i].row : PLAN_UNUSED, steps);
#pragma unroll
    for (uint32_t i = 0; i < PLAN_BATCH; i += 2)
        if (steps.parts == 2)
            slots[i].primary = slots[i + 1].primary = least(slots[i].primary, slots[i + 1].primary);
}

MM_DEVICE void write_row(const plan_rows &rows, const plan_slot &s, uint32_t source) {
    store_u32(rows.source + s.row, source);
    store_u32(rows.token + s.row, s.token);
    store_u32(rows.slot + s.row, s.slot);
    store_u32(rows.primary + s.row, s.primary);
    store_u32(rows.weight + s.row, s.weight);
}

/* Places the warp's slots of a chunk. `local_key` is the key of this rank's first expert. */
MM_DEVICE void place_slots(const plan_params &p, const plan_chunk &chunk, const key_range &range, uint32_t local_key) {
    const place_steps steps = place_steps_of(p.top_k);
    const int32_t *ids = p.ids + chunk.source * p.rank_stride;
    const float *weights = p.weights + chunk.source * p.rank_stride;
    const uint32_t local_experts = p.experts / p.world, batch_tokens = steps.tokens * PLAN_BATCH / steps.parts;
    const bool own = chunk.source == p.rank, fit = rows_fit(p);
    int32_t *token_rows = p.token_rows + chunk.source * p.token_stride * p.top_k;
    for (uint32_t first = chunk.first; first < chunk.end; first += batch_tokens) {
        plan_slot slots[PLAN_BATCH];
#pragma unroll
        for (uint32_t i = 0; i < PLAN_BATCH; i++) {
            slots[i] = slot_in_step(p, steps, chunk, first, i);
            slots[i].key = slots[i].real ? key_of(range, load_u32(ids + slots[i].index)) : range.count;
        }
#pragma unroll
        for (uint32_t i = 0; i < PLAN_BATCH; i++) {
            slots[i].local = fit && slots[i].key - local_key < local_experts;
            slots[i].weight = slots[i].local ? load_u32(weights + slots[i].index) : 0;
        }
#pragma unroll
        for (uint32_t i = 0; i < PLAN_BATCH; i++) {
            slots[i].row = take_row(p, range, slots[i].key);
            slots[i].local = slots[i].local && slots[i].row != PLAN_DROPPED;
        }
        find_primaries(slots, steps);
#pragma unroll
        for (uint32_t i = 0; i < PLAN_BATCH; i++) {
            if (own && slots[i].real) {
                store_u32(p.slots.row + slots[i].index, slots[i].row);
                store_u32(p.slots.expert + slots[i].index, slots[i].key < range.count ? slots[i].key : PLAN_UNUSED);
            }
            if (slots[i].real)
                store_u32(token_rows + slots[i].index, slots[i].local ? slots[i].row : PLAN_UNUSED);
            if (slots[i].local)
                write_row(p.rows, slots[i], chunk.source);
        }
    }
}

#endif
