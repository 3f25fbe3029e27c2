/* A forward that sums on the rank of the experts: what it computed of a token becomes one row, which travels.
 *
 * A row whose token has no other one here is pushed as it is. The others stay until their blocks are complete; then a
 * warp of its own in each CTA sums them, in the order of the token's slots, and pushes the rounded sum to the first of
 * these slots. It counts there as all the rows that it stands for. */
#ifndef MM_KERNELS_GROUPED_SUMS_CUH
#define MM_KERNELS_GROUPED_SUMS_CUH

#include "kernels/bits.cuh"
#include "kernels/forward_params.h"
#include "kernels/push_results.cuh"
#include "kernels/sum_results.cuh"
#include "kernels/take_next.cuh"

static_assert(FORWARD_SMEM_BYTES <= TRACE_OFFSET, "the logs lie behind all else");

/* ---- Store warp ---- */

/* In the place of a row's rank: it stays here, as a row of its own number. No rank has a higher one. */
#define STAYS CALL_MAX_WORLD

MM_DEVICE bool is_alone(const fused_call &p, uint32_t source, uint32_t row) {
    const int32_t *rows = rows_of_token(p, source, load_u32(p.rows.token + row));
    bool alone = true;
    for (uint32_t k = 0; k < p.top_k; k++) {
        const int32_t other = (int32_t)load_u32(rows + k);
        alone = alone && (other < 0 || other == (int32_t)row);
    }
    return alone;
}

/* Stores a tile of results, and pushes those that are alone. */
MM_DEVICE block_rows push_alone(const forward_params &p, const fused_task &task, part_stores &s) {
    const fused_call &call = p.call;
    block_rows rows = rows_of_block(call, task.block, EVERY_RANK);
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t row = task.block * TILE_ROWS + 32 * i + lane_index();
        if (rows.source[i] < call.group.world && !is_alone(call, rows.source[i], row)) {
            rows.source[i] = STAYS;
            rows.slot[i] = row;
        }
    }
    store_result_rows(
        call, task, rows, [&](uint32_t source) { return source <= STAYS; },
        [&](uint32_t source, uint32_t slot) {
            return source == STAYS ? result_row(call, p.to_sum, slot) : combine_slot(call, source, slot);
        },
        s);
    return rows;
}

/* ---- Which sums ---- */

#define GROUPED_ROWS 16u /* that a warp takes at a time */
static_assert(TILE_ROWS % GROUPED_ROWS == 0 && GROUPED_ROWS <= 32, "they lie in one block, a lane each");

/* Aligned. */
MM_DEVICE uint32_t take_rows(const fused_call &p) {
    return take_next(p.work.counters->group, load_u32(&p.work.base->group)) * GROUPED_ROWS;
}

/* How many rows its token has here, when a row is the last of several; else 0. */
MM_DEVICE uint32_t rows_to_sum(const fused_call &p, uint32_t row) {
    const uint32_t source = load_u32(p.rows.source + row);
    if (source >= p.group.world)
        return 0;
    const int32_t *rows = rows_of_token(p, source, load_u32(p.rows.token + row));
    uint32_t count = 0;
    bool last = true;
    for (uint32_t k = 0; k < p.top_k && last; k++) {
        const int32_t other = (int32_t)load_u32(rows + k);
        last = other <= (int32_t)row;
        count += other >= 0;
    }
    return last && count > 1 ? count : 0;
}

/* Aligned: until the blocks up to `last` are complete. Those before `complete` are known to be. false: the call has
 * been stopped. */
MM_DEVICE bool await_blocks(const fused_call &p, uint32_t &complete, uint32_t last) {
    bool good = true;
    for (uint32_t block = complete + lane_index(); block <= last && good; block += 32)
        good = await_here(p.group, p.work.results.now + block, load_u32(p.work.results.target + block),
                          CALL_AWAITS_RESULTS);
    good = warp_ballot(!good) == 0;
    warp_sync(); /* all lanes go by what each has acquired */
    complete = last + 1;
    return good;
}

/* ---- Sums ---- */

#define GROUPED_LOADS 8u /* in flight in a lane */

/* The rows of the token that is summed, in the order of their slots. */
MM_DEVICE smem_t listed_row(uint32_t i) {
    return smem_base() + GROUPED_LIST_OFFSET + 4 * i;
}

/* Aligned: lists them, and finds the slot that the sum is for: of all ranks' slots. */
MM_DEVICE uint32_t list_rows(const fused_call &p, uint32_t source, uint32_t token) {
    const token_rows rows = token_rows_of(rows_of_token(p, source, token), 0, p.top_k);
    const uint32_t low = warp_ballot((int32_t)rows.low >= 0), high = warp_ballot((int32_t)rows.high >= 0);
    const uint32_t before = (1u << lane_index()) - 1;
    warp_sync(); /* the rows of the token before have been read */
    if ((int32_t)rows.low >= 0)
        smem_store_u32(listed_row(count_bits(low & before)), rows.low);
    if ((int32_t)rows.high >= 0)
        smem_store_u32(listed_row(count_bits(low) + count_bits(high & before)), rows.high);
    warp_sync();
    return token * p.top_k + (low != 0 ? lowest_bit(low) : 32 + lowest_bit(high));
}

/* Sums the `count` rows of the list, STEP_COLUMNS after STEP_COLUMNS. However many there are, GROUPED_LOADS of a lane
 * are on their way together. `to` is where its first eight columns go. */
MM_DEVICE void sum_rows(const forward_params &p, uint32_t count, unsigned char *to) {
    const uint32_t hidden = p.call.hidden, own = 8 * lane_index();
    uint32_t asked = 0, asked_rows = 0, added_rows = 0;
    float sum[8] = {};
    for (uint32_t added = 0; added < hidden;) {
        u32x4 eight[GROUPED_LOADS];
#pragma unroll
        for (uint32_t i = 0; i < GROUPED_LOADS; i++) {
            if (asked >= hidden)
                continue;
            const uint32_t row = smem_load_u32(listed_row(asked_rows)), place = combine_chunk(lane_index(), row);
            if (asked + own < hidden)
                eight[i] = load_u32x4_l2(result_row(p.call, p.to_sum, row) + (asked + 8 * place) * sizeof(bf16_t));
            if (++asked_rows == count) {
                asked_rows = 0;
                asked += STEP_COLUMNS;
            }
        }
#pragma unroll
        for (uint32_t i = 0; i < GROUPED_LOADS; i++) {
            if (added >= hidden)
                continue;
            const bool inside = added + own < hidden;
            if (inside)
                add_eight(sum, eight[i]);
            if (++added_rows < count)
                continue;
            if (inside)
                store_u32x4(to + added * sizeof(bf16_t), round_eight(sum));
            added_rows = 0;
            added += STEP_COLUMNS;
#pragma unroll
            for (uint32_t j = 0; j < 8; j++)
                sum[j] = 0;
        }
    }
}

/* Sums the rows of the token whose last one is `last`, and pushes the sum. */
MM_DEVICE void sum_on_rank(const forward_params &p, uint32_t last, uint32_t count) {
    const fused_call &call = p.call;
    const uint32_t source = load_u32(call.rows.source + last), token = load_u32(call.rows.token + last);
    const uint32_t slot = list_rows(call, source, token);
    const uint32_t place = combine_chunk(lane_index(), smem_load_u32(listed_row(0)));
    sum_rows(p, count, combine_slot(call, source, slot) + 8 * place * sizeof(bf16_t));
}

/* Aligned: each lane tells the rank of its row, whose `count` rows are summed there now. */
MM_DEVICE void count_sum(const fused_call &p, uint32_t row, uint32_t count) {
    warp_sync(); /* all lanes have stored */
    if (count > 0)
        add_release_system(&control_of(p.group, load_u32(p.rows.source + row))->rows_arrived[p.group.rank].value,
                           count * TILES_OF(p.hidden));
}

/* What the lanes' sums were, for a trace alone. */
MM_DEVICE void note_sums(const fused_call &p, uint32_t first, uint32_t count) {
    if (!TRACED)
        return;
    const uint32_t source = count > 0 ? load_u32(p.rows.source + first + lane_index()) : p.group.world;
    const uint64_t rank = count > 0 ? (uint64_t)1 << source : 0;
    const uint32_t sums = count_bits(warp_ballot(count > 0));
    const uint32_t peers = count_bits(warp_ballot(count > 0 && source != p.group.rank));
    note(p.trace, TRACE_PUSH, first / TILE_ROWS, 0, 0, sums, peers, p.hidden * sizeof(bf16_t),
         or_of_warp((uint32_t)rank) | (uint64_t)or_of_warp((uint32_t)(rank >> 32)) << 32);
}

/* By one warp of each CTA. Warps take rows in plan order, and a token is summed with its last row: so what is waited
 * for has been taken by CTAs that are running. */
MM_DEVICE void sum_grouped(const forward_params &p) {
    const fused_call &call = p.call;
    uint32_t complete = 0;
    open_log(TRACE_GROUPER);
    for (;;) {
        const uint32_t first = take_rows(call);
        if (first >= load_u32(&call.tables.all->padded_rows))
            break;
        const uint32_t count = lane_index() < GROUPED_ROWS ? rows_to_sum(call, first + lane_index()) : 0;
        uint32_t last = warp_ballot(count > 0);
        if (last == 0)
            continue;
        if (!await_blocks(call, complete, first / TILE_ROWS))
            break;
        note(call.trace, TRACE_AWAIT_RESULTS);
        for (; last != 0; last &= last - 1)
            sum_on_rank(p, first + lowest_bit(last), warp_shuffle(count, lowest_bit(last)));
        count_sum(call, first + lane_index(), count);
        note_sums(call, first, count);
    }
    close_log(call.trace, TRACE_GROUPER);
}

#endif
