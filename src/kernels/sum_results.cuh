/* The sum over a token's slots, in their order: result rows come to the combine slots from all ranks, in any order. */
#ifndef MM_KERNELS_SUM_RESULTS_CUH
#define MM_KERNELS_SUM_RESULTS_CUH

#include "kernels/call_team.cuh"
#include "kernels/call_wait.cuh"
#include "kernels/fused_trace.cuh"
#include "kernels/take_next.cuh"
#include "kernels/token_rows.cuh"
#include "kernels/token_sum.cuh"

#define SUM_TOKENS 4u /* that a warp takes at a time */
#define SUM_SLOTS 8u  /* in flight in a lane */
#define STEP_COLUMNS (8u * 32u)

/* By the team: whether all of the `target` arrivals that each rank has still to post in `arrived` have come. */
MM_DEVICE bool await_arrivals(const call_group &group, const call_team &team, const call_flag *arrived,
                              const uint32_t *target) {
    bool good = true;
    if (is_first_warp(team))
        for (uint32_t rank = lane_index(); rank < group.world && good; rank += 32)
            good = await_rank(group, &arrived[rank], load_u32(&target[rank]), CALL_AWAITS_RESULTS, rank);
    return tell_team(team, warp_ballot(!good) == 0) != 0;
}

/* What is added up for a token: its slots, in order. Others may stand in their place. */
struct every_slot {
    token_rows rows;
    uint32_t count;
};

/* Number `i` of them, and its row; negative: there is none. Aligned. */
MM_DEVICE uint32_t listed_slot(const every_slot &, uint32_t i) {
    return i;
}
MM_DEVICE int32_t row_of_listed(const every_slot &list, uint32_t i) {
    return row_of_slot(list.rows, i);
}

MM_DEVICE every_slot every_slot_of(const fused_call &p, uint32_t token) {
    return {token_rows_of(p.slots.row, token, p.top_k), p.top_k};
}

/* Where a lane finds the results of SUM_SLOTS slots, from its first column on. */
struct slot_results {
    const bf16_t *at[SUM_SLOTS];
    uint32_t used; /* a bit each */
};

/* Aligned. `results` are those of the token's first slot. Steps are multiples of 128 bytes, so a lane's chunk has the
 * same place in all of them. */
template <typename slot_list>
MM_DEVICE slot_results slot_results_of(const fused_call &p, const bf16_t *results, const slot_list &list,
                                       uint32_t first) {
    slot_results slots = {};
#pragma unroll
    for (uint32_t i = 0; i < SUM_SLOTS; i++) {
        const int32_t row = first + i < list.count ? row_of_listed(list, first + i) : -1;
        const uint64_t slot = listed_slot(list, first + i);
        slots.used |= (uint32_t)(row >= 0) << i;
        slots.at[i] = results + slot * p.hidden + 8 * combine_chunk(lane_index(), (uint32_t)row);
    }
    return slots;
}

/* Adds the slots' columns of `steps` steps; `past` of them lie before, for all lanes. */
template <uint32_t steps>
MM_DEVICE void sum_columns(const slot_results &slots, uint32_t past, uint32_t hidden, float (&sum)[steps][8]) {
    const uint32_t col = past + 8 * lane_index();
    u32x4 eight[steps][SUM_SLOTS];
#pragma unroll
    for (uint32_t step = 0; step < steps; step++)
#pragma unroll
        for (uint32_t i = 0; i < SUM_SLOTS; i++)
            if ((slots.used >> i & 1) != 0 && col + step * STEP_COLUMNS < hidden)
                eight[step][i] = load_u32x4_l2(slots.at[i] + past + step * STEP_COLUMNS);
#pragma unroll
    for (uint32_t step = 0; step < steps; step++)
#pragma unroll
        for (uint32_t i = 0; i < SUM_SLOTS; i++)
            if ((slots.used >> i & 1) != 0 && col + step * STEP_COLUMNS < hidden)
                add_eight(sum[step], eight[step][i]);
}

template <uint32_t steps, typename slot_list>
MM_DEVICE void sum_token(const fused_call &p, const strided_matrix &to, bool whole, uint32_t token,
                         const slot_list &list) {
    const bf16_t *results =
        (const bf16_t *)(p.group.segment[p.group.rank] + p.combine) + (uint64_t)token * p.top_k * p.hidden;
    const slot_results front = slot_results_of(p, results, list, 0);
    for (uint32_t past = 0; past < p.hidden; past += steps * STEP_COLUMNS) {
        float sum[steps][8] = {};
        sum_columns(front, past, p.hidden, sum);
        for (uint32_t first = SUM_SLOTS; first < list.count; first += SUM_SLOTS)
            sum_columns(slot_results_of(p, results, list, first), past, p.hidden, sum);
#pragma unroll
        for (uint32_t step = 0; step < steps; step++) {
            const uint32_t col = past + 8 * lane_index() + step * STEP_COLUMNS;
            if (col < p.hidden)
                store_eight(to, whole, token, col, round_eight(sum[step]));
        }
    }
}

/* Aligned: the first token of the next group to be summed. */
MM_DEVICE uint32_t take_tokens(const fused_call &p, uint32_t base) {
    return take_next(p.work.counters->sum, base) * SUM_TOKENS;
}

/* Each warp takes tokens until there are no more, or enough() says so. `steps`: 256 columns each that a lane has in
 * flight together. list_of(token): what is added up for it. */
template <uint32_t steps, typename until, typename token_list>
MM_DEVICE void sum_tokens(const fused_call &p, const strided_matrix &to, const until &enough,
                          const token_list &list_of) {
    const uint32_t base = load_u32(&p.work.base->sum);
    const bool whole = is_whole(to);
    for (uint32_t first = take_tokens(p, base); first < p.tokens;) {
        const bool last = enough();
        const uint32_t next = last ? p.tokens : take_tokens(p, base);
        const uint32_t end = first + SUM_TOKENS < p.tokens ? first + SUM_TOKENS : p.tokens;
        for (uint32_t token = first; token < end; token++)
            sum_token<steps>(p, to, whole, token, list_of(token));
        note(p.trace, TRACE_SUM, 0, 0, first, end - first);
        first = next;
    }
}

template <uint32_t steps, typename until>
MM_DEVICE void sum_tokens(const fused_call &p, const strided_matrix &to, const until &enough) {
    sum_tokens<steps>(p, to, enough, [&](uint32_t token) { return every_slot_of(p, token); });
}

MM_DEVICE void sum_all_tokens(const fused_call &p, const strided_matrix &to) {
    sum_tokens<2>(p, to, [] { return false; });
}

#endif
