/* The end of a forward: once all results of this rank's tokens have come, the consumer warps sum them; the CTA that
 * ends last closes the call. */
#ifndef MM_KERNELS_FORWARD_SUM_CUH
#define MM_KERNELS_FORWARD_SUM_CUH

#include "kernels/call_end.cuh"
#include "kernels/forward_trace.cuh"
#include "kernels/token_rows.cuh"
#include "kernels/token_sum.cuh"

#define SUM_TOKENS 4u /* that a warp takes at a time */
#define SUM_SLOTS 8u  /* in flight in a lane, */
#define SUM_STEPS 2u  /* of so many times eight columns */
#define STEP_COLUMNS (8u * 32u)
#define CONSUMERS 1 /* named barrier */
#define CONSUMER_THREADS (32u * CONSUMER_WARPS)

MM_DEVICE bool first_consumer_warp(void) {
    return consumer_warp() == 0;
}

/* The word of the first consumer warp's first lane, to all consumers. */
MM_DEVICE uint32_t tell_consumers(uint32_t word) {
    if (first_consumer_warp() && lane_index() == 0)
        smem_store_u32(smem_base() + VERDICT_OFFSET, word);
    barrier_sync(CONSUMERS, CONSUMER_THREADS);
    word = smem_load_u32(smem_base() + VERDICT_OFFSET);
    barrier_sync(CONSUMERS, CONSUMER_THREADS);
    return word;
}

/* Whether all have come. */
MM_DEVICE bool await_results(const forward_params &p) {
    bool good = true;
    if (first_consumer_warp())
        for (uint32_t rank = lane_index(); rank < p.group.world && good; rank += 32)
            good = await_rank(p.group, &own_control(p.group)->rows_arrived[rank],
                              load_u32(&p.group.state->rows_target[rank]), CALL_AWAITS_RESULTS, rank);
    return tell_consumers(warp_ballot(!good) == 0) != 0;
}

/* Where a lane finds the results of SUM_SLOTS slots, from its first column on. */
struct slot_results {
    const bf16_t *at[SUM_SLOTS];
    uint32_t used; /* a bit each */
};

/* Aligned. `results` are those of the token's first slot. Steps are multiples of 128 bytes, so a lane's chunk has the
 * same place in all of them. */
MM_DEVICE slot_results slot_results_of(const forward_params &p, const bf16_t *results, const token_rows &rows,
                                       uint32_t first) {
    slot_results slots = {};
#pragma unroll
    for (uint32_t i = 0; i < SUM_SLOTS; i++) {
        const int32_t row = first + i < p.top_k ? row_of_slot(rows, first + i) : -1;
        slots.used |= (uint32_t)(row >= 0) << i;
        slots.at[i] = results + (uint64_t)(first + i) * p.hidden + 8 * combine_chunk(lane_index(), (uint32_t)row);
    }
    return slots;
}

/* Adds the slots' columns of SUM_STEPS steps; `past` of them lie before, for all lanes. */
MM_DEVICE void sum_columns(const slot_results &slots, uint32_t past, uint32_t hidden, float (&sum)[SUM_STEPS][8]) {
    const uint32_t col = past + 8 * lane_index();
    u32x4 eight[SUM_STEPS][SUM_SLOTS];
#pragma unroll
    for (uint32_t step = 0; step < SUM_STEPS; step++)
#pragma unroll
        for (uint32_t i = 0; i < SUM_SLOTS; i++)
            if ((slots.used >> i & 1) != 0 && col + step * STEP_COLUMNS < hidden)
                eight[step][i] = load_u32x4_l2(slots.at[i] + past + step * STEP_COLUMNS);
#pragma unroll
    for (uint32_t step = 0; step < SUM_STEPS; step++)
#pragma unroll
        for (uint32_t i = 0; i < SUM_SLOTS; i++)
            if ((slots.used >> i & 1) != 0 && col + step * STEP_COLUMNS < hidden)
                add_eight(sum[step], eight[step][i]);
}

MM_DEVICE void sum_token(const forward_params &p, bool whole, uint32_t token) {
    const token_rows rows = token_rows_of(p.slots.row, token, p.top_k);
    const bf16_t *results =
        (const bf16_t *)(p.group.segment[p.group.rank] + p.combine) + (uint64_t)token * p.top_k * p.hidden;
    const slot_results front = slot_results_of(p, results, rows, 0);
    for (uint32_t past = 0; past < p.hidden; past += SUM_STEPS * STEP_COLUMNS) {
        float sum[SUM_STEPS][8] = {};
        sum_columns(front, past, p.hidden, sum);
        for (uint32_t first = SUM_SLOTS; first < p.top_k; first += SUM_SLOTS)
            sum_columns(slot_results_of(p, results, rows, first), past, p.hidden, sum);
#pragma unroll
        for (uint32_t step = 0; step < SUM_STEPS; step++) {
            const uint32_t col = past + 8 * lane_index() + step * STEP_COLUMNS;
            if (col < p.hidden)
                store_eight(p.y, whole, token, col, round_eight(sum[step]));
        }
    }
}

/* Aligned: the first token of the next group to be summed. */
MM_DEVICE uint32_t take_tokens(const forward_params &p, uint32_t base) {
    uint32_t group = 0;
    if (lane_index() == 0)
        group = fetch_add_relaxed_gpu(&p.work.counters->sum.value, 1) - base;
    return warp_shuffle(group, 0) * SUM_TOKENS;
}

MM_DEVICE void sum_tokens(const forward_params &p) {
    note_together(p.trace, TRACE_AWAIT_RESULTS);
    resume_log();
    const uint32_t base = load_u32(&p.work.base->sum);
    const bool whole = is_whole(p.y);
    for (uint32_t first = take_tokens(p, base); first < p.tokens;) {
        const uint32_t next = take_tokens(p, base), end = first + SUM_TOKENS < p.tokens ? first + SUM_TOKENS : p.tokens;
        for (uint32_t token = first; token < end; token++)
            sum_token(p, whole, token);
        note(p.trace, TRACE_SUM, 0, 0, first, end - first);
        first = next;
    }
}

/* By all consumers. */
MM_DEVICE void fill_nan(const forward_params &p) {
    const uint64_t elements = (uint64_t)p.tokens * p.hidden;
    for (uint64_t i = thread_index() - (FUSED_THREADS - CONSUMER_THREADS); i < elements; i += CONSUMER_THREADS)
        store_u16(element_at(p.y, (uint32_t)(i / p.hidden), (uint32_t)(i % p.hidden)), 0x7fc0);
}

MM_DEVICE bool ends_last(const forward_params &p) {
    uint32_t ended = 0;
    barrier_sync(CONSUMERS, CONSUMER_THREADS);
    if (first_consumer_warp() && lane_index() == 0)
        ended = fetch_add_acq_rel_gpu(&p.work.counters->ended.value, 1) + 1 - load_u32(&p.work.base->ended);
    return tell_consumers(ended) == cta_count();
}

/* After the last CTA. */
MM_DEVICE call_result final_result(const forward_params &p) {
    const call_state *state = p.group.state;
    const uint32_t call = load_u32(&state->call);
    if (load_u32_l2(&state->gave_up) != 0)
        return {CALL_STOPPED, stopped_by(p.group) - 1, 0, call};
    return {load_u32(&state->result.outcome), load_u32(&state->result.rank), load_u32(&state->result.rows), call};
}

/* A call that failed anywhere on this rank leaves nothing that looks like a result. */
MM_DEVICE void close_call(const forward_params &p) {
    const call_result result = final_result(p);
    if (result.outcome != CALL_GOOD)
        fill_nan(p);
    barrier_sync(CONSUMERS, CONSUMER_THREADS);
    if (first_consumer_warp() && (result.outcome == CALL_CAPACITY || result.outcome == CALL_STOPPED))
        tell_failure(p.group, result); /* of others the host has been told when the ranks met */
    if (first_consumer_warp() && lane_index() == 0)
        tell_end(p.group, result.call);
}

/* A CTA that begins late still finds that the call is good, and does its part. */
MM_DEVICE void note_stop(const call_group &group) {
    if (first_consumer_warp() && lane_index() == 0)
        store_release_gpu(&group.state->gave_up, 1);
}

/* By all consumers, after their last task. `good`: the call could be made at all. */
MM_DEVICE void finish_forward(const forward_params &p, bool good) {
    if (good) {
        if (await_results(p))
            sum_tokens(p);
        else
            note_stop(p.group);
    }
    if (ends_last(p))
        close_call(p);
}

#endif
