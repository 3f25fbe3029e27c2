/* Sums of tokens whose results have all come while others are still computed: by the fetch warp of a forward, once it
 * has nothing left to fetch. The consumers sum the rest at the end.
 *
 * Token t belongs to CTA t mod their number. Of a CTA's tokens the first EARLY_TOKENS can be summed early: who claims
 * one first, in shared memory, sums it.
 *
 * Results come through the buffers in which token rows were carried: of one token up to SUM_SLOTS slots and
 * EARLY_COLUMNS columns at a time, two such pieces in turn. */
#ifndef MM_KERNELS_EARLY_SUMS_CUH
#define MM_KERNELS_EARLY_SUMS_CUH

#include "kernels/fetch_rows.cuh"
#include "kernels/forward_params.h"
#include "kernels/grouped_slots.cuh"
#include "kernels/sum_results.cuh"

#define EARLY_COLUMNS 512u
#define EARLY_PIECES 2u
#define EARLY_PIECE_BYTES (SUM_SLOTS * EARLY_COLUMNS * 2u)
#define EARLY_LOOK_NS 500 /* nobody waits for this warp */
static_assert(FORWARD_SMEM_BYTES <= TRACE_OFFSET, "the logs lie behind all else");
static_assert(EARLY_TOKENS <= 8 * 32, "a lane has a byte for each of its tokens");
static_assert(EARLY_PIECES * EARLY_PIECE_BYTES <= CARRIES * CARRY_BYTES, "they take the place of token rows");

/* ---- Shared with the consumers ---- */

/* How often the CTA's token `i` was claimed. */
MM_DEVICE smem_t claims_of(uint32_t i) {
    return smem_base() + CLAIMS_OFFSET + 4 * i;
}
MM_DEVICE smem_t piece_there(uint32_t number) {
    return smem_base() + FORWARD_BARRIERS_OFFSET + 8 * (number % EARLY_PIECES);
}
/* The consumers sum what is left. */
MM_DEVICE smem_t sums_begun(void) {
    return smem_base() + FORWARD_BARRIERS_OFFSET + 8 * EARLY_PIECES;
}
/* The fetch warp sums nothing any more. */
MM_DEVICE smem_t early_done(void) {
    return smem_base() + FORWARD_BARRIERS_OFFSET + 8 * (EARLY_PIECES + 1);
}

/* By the whole CTA, before a cta_sync(). */
MM_DEVICE void early_init(void) {
    if (thread_index() < EARLY_TOKENS)
        smem_store_u32(claims_of(thread_index()), 0);
    if (thread_index() == 0) {
        smem_store_u32(smem_base() + NEXT_TOKEN_OFFSET, 0);
        for (uint32_t bar = 0; bar < EARLY_PIECES + 2; bar++)
            mbarrier_init(smem_base() + FORWARD_BARRIERS_OFFSET + 8 * bar, 1);
    }
}

MM_DEVICE uint32_t own_tokens(const fused_call &p) {
    return p.tokens > cta_index() ? (p.tokens - cta_index() - 1) / cta_count() + 1 : 0;
}
MM_DEVICE uint32_t own_token(uint32_t i) {
    return cta_index() + i * cta_count();
}

/* Aligned: whether this warp is to sum its CTA's token `i`. */
MM_DEVICE bool claim_token(uint32_t i) {
    uint32_t claims = 0;
    if (lane_index() == 0)
        claims = smem_fetch_add(claims_of(i), 1);
    return warp_shuffle(claims, 0) == 0;
}

/* By all consumer warps, when all results have come. */
MM_DEVICE void sum_rest(const forward_params &p) {
    const bool whole = is_whole(p.y);
    const uint32_t count = own_tokens(p.call);
    for (;;) {
        uint32_t i = 0;
        if (lane_index() == 0)
            i = smem_fetch_add(smem_base() + NEXT_TOKEN_OFFSET, 1);
        i = warp_shuffle(i, 0);
        if (i >= count)
            return;
        if (i < EARLY_TOKENS && !claim_token(i))
            continue;
        const uint32_t token = own_token(i);
        if (p.to_sum != nullptr)
            sum_token<2>(p.call, p.y, whole, token, first_slots_of(p, token));
        else
            sum_token<2>(p.call, p.y, whole, token, every_slot_of(p.call, token));
        note(p.call.trace, TRACE_SUM, 0, 0, token, 1);
    }
}

/* ---- Which tokens are complete ---- */

MM_DEVICE bool slot_is_there(const forward_params &p, uint32_t slot) {
    const int32_t row = (int32_t)load_u32(p.call.slots.row + slot);
    if (row < 0)
        return true;
    const uint32_t rank = load_u32(p.call.slots.expert + slot) / p.local_experts;
    const uint32_t *there = (const uint32_t *)(p.call.group.segment[p.call.group.rank] + p.blocks_there);
    return load_acquire_system(there + (uint64_t)rank * p.most_blocks + (uint32_t)row / TILE_ROWS) ==
           load_u32(&p.call.group.state->call);
}

/* The lane's token; `first`: the slot to look at before the others. */
MM_DEVICE bool token_is_there(const forward_params &p, uint32_t token, uint32_t first) {
    const uint32_t slots = token * p.call.top_k;
    bool there = slot_is_there(p, slots + first);
    for (uint32_t k = 0; k < p.call.top_k && there; k++)
        there = slot_is_there(p, slots + k);
    return there;
}

/* All ranks compute the rows of their experts in order: the slot that comes last, most likely. */
MM_DEVICE uint32_t last_slot(const forward_params &p, uint32_t token) {
    uint32_t last = 0, latest = 0;
    for (uint32_t k = 0; k < p.call.top_k; k++) {
        const uint32_t slot = token * p.call.top_k + k;
        const uint32_t expert = load_u32(p.call.slots.expert + slot) % p.local_experts;
        if ((int32_t)load_u32(p.call.slots.row + slot) >= 0 && expert >= latest) {
            latest = expert;
            last = k;
        }
    }
    return last;
}

/* Of the lane's tokens, a byte each: the slot that is looked at before the others; COMPLETE once all have come. */
typedef uint64_t looked_at;
#define COMPLETE 0xffu
static_assert(CARRY_ROWS < COMPLETE, "that is no slot");

MM_DEVICE looked_at last_slots(const forward_params &p, uint32_t count) {
    looked_at slots = 0;
    for (uint32_t i = lane_index(); i < count; i += 32)
        slots |= (looked_at)last_slot(p, own_token(i)) << (i / 32 * 8);
    return slots;
}

/* Aligned: of the 32 tokens from `first` on those whose results have all come since the last look, a bit each. */
MM_DEVICE uint32_t complete_tokens(const forward_params &p, looked_at &looked, uint32_t first, uint32_t count) {
    const uint32_t i = first + lane_index(), shift = first / 32 * 8;
    const uint32_t slot = (uint32_t)(looked >> shift) & 0xff;
    const bool complete = i < count && slot != COMPLETE && token_is_there(p, own_token(i), slot);
    if (complete)
        looked |= (looked_at)COMPLETE << shift;
    const uint32_t tokens = warp_ballot(complete);
    warp_sync();
    fence_async(); /* the copy engine reads what was acquired */
    return tokens;
}

/* ---- Sums ---- */

/* Pieces of some of a CTA's tokens, one after another. */
struct piece_walk {
    uint32_t tokens; /* a bit each, from the lowest on */
    uint32_t piece;  /* of the lowest one */
    uint32_t number; /* of all that this warp has walked over */
};

struct early_sums {
    uint32_t first;          /* of 32 tokens */
    uint32_t complete;       /* that have still to be claimed, a bit each */
    uint32_t slot_pieces;    /* of the same columns */
    uint32_t pieces;         /* of a token */
    piece_walk asked, added; /* the next piece to be asked for; the next one to be added */
    token_rows rows;         /* of the token that is asked for */
    float sum[EARLY_COLUMNS / STEP_COLUMNS][8];
};

MM_DEVICE void next_piece(piece_walk &walk, uint32_t pieces) {
    walk.number++;
    if (++walk.piece == pieces) {
        walk.piece = 0;
        walk.tokens &= walk.tokens - 1;
    }
}

MM_DEVICE uint32_t walked_token(const early_sums &s, const piece_walk &walk) {
    return own_token(s.first + lowest_bit(walk.tokens));
}

/* What a piece consists of. */
struct sum_piece {
    uint32_t slot, slots; /* the first one, and how many */
    uint32_t column, columns;
};

MM_DEVICE sum_piece sum_piece_of(const fused_call &p, const early_sums &s, uint32_t piece) {
    const uint32_t slot = piece % s.slot_pieces * SUM_SLOTS, column = piece / s.slot_pieces * EARLY_COLUMNS;
    const uint32_t slots = p.top_k - slot, columns = p.hidden - column;
    return {slot, slots < SUM_SLOTS ? slots : SUM_SLOTS, column, columns < EARLY_COLUMNS ? columns : EARLY_COLUMNS};
}

MM_DEVICE smem_t piece_address(uint32_t number) {
    return smem_base() + CARRY_OFFSET + number % EARLY_PIECES * EARLY_PIECE_BYTES;
}

/* Opens the next token that can be claimed. false: there is none. */
MM_DEVICE bool open_sum(const fused_call &p, early_sums &s) {
    while (s.complete != 0) {
        const uint32_t i = lowest_bit(s.complete), bit = s.complete & (0u - s.complete);
        s.complete &= ~bit;
        if (!claim_token(s.first + i))
            continue;
        s.asked.tokens |= bit;
        s.added.tokens |= bit;
        s.rows = token_rows_of(p.slots.row, own_token(s.first + i), p.top_k);
        return true;
    }
    return false;
}

/* Starts the next piece on its way in. false: there is none. */
MM_DEVICE bool ask_for_piece(const fused_call &p, early_sums &s) {
    if (s.asked.piece == 0 && !open_sum(p, s))
        return false;
    const sum_piece piece = sum_piece_of(p, s, s.asked.piece);
    const uint32_t slot = piece.slot + lane_index() % SUM_SLOTS;
    const uint32_t low = warp_shuffle(s.rows.low, slot % 32), high = warp_shuffle(s.rows.high, slot % 32);
    const bool used = lane_index() < piece.slots && (int32_t)(slot < 32 ? low : high) >= 0;
    const uint32_t bytes = piece.columns * sizeof(bf16_t), count = count_bits(warp_ballot(used));
    const smem_t bar = piece_there(s.asked.number);
    if (lane_index() == 0)
        mbarrier_arrive_expect(bar, count * bytes);
    warp_sync();
    if (used) {
        const uint64_t at = ((uint64_t)walked_token(s, s.asked) * p.top_k + slot) * p.hidden + piece.column;
        const bf16_t *results = (const bf16_t *)(p.group.segment[p.group.rank] + p.combine);
        bulk_load(piece_address(s.asked.number) + lane_index() * (EARLY_COLUMNS * sizeof(bf16_t)), results + at, bytes,
                  bar);
    }
    smem_store_u32(carry_rows(s.asked.number % EARLY_PIECES), s.rows.low);
    smem_store_u32(carry_rows(s.asked.number % EARLY_PIECES) + 32 * 4, s.rows.high);
    next_piece(s.asked, s.pieces);
    return true;
}

MM_DEVICE void add_slots(const sum_piece &piece, const token_rows &rows, smem_t results, early_sums &s) {
#pragma unroll
    for (uint32_t k = 0; k < SUM_SLOTS; k++) {
        const int32_t row = k < piece.slots ? row_of_slot(rows, piece.slot + k) : -1;
        if (row < 0)
            continue;
#pragma unroll
        for (uint32_t step = 0; step < EARLY_COLUMNS / STEP_COLUMNS; step++) {
            const uint32_t chunk = step * 32 + lane_index();
            const uint32_t place = k * (EARLY_COLUMNS / 8) + combine_chunk(chunk, (uint32_t)row);
            if (8 * chunk < piece.columns)
                add_eight(s.sum[step], smem_load_u32x4(results + 16 * place));
        }
    }
}

MM_DEVICE void store_sums(const strided_matrix &to, uint32_t token, const sum_piece &piece, early_sums &s) {
    const bool whole = is_whole(to);
#pragma unroll
    for (uint32_t step = 0; step < EARLY_COLUMNS / STEP_COLUMNS; step++) {
        const uint32_t column = step * STEP_COLUMNS + 8 * lane_index();
        if (column < piece.columns)
            store_eight(to, whole, token, piece.column + column, round_eight(s.sum[step]));
#pragma unroll
        for (uint32_t i = 0; i < 8; i++)
            s.sum[step][i] = 0;
    }
}

/* Adds the oldest piece that is on its way in. */
MM_DEVICE void add_piece(const forward_params &p, early_sums &s) {
    const sum_piece piece = sum_piece_of(p.call, s, s.added.piece);
    const smem_t kept = carry_rows(s.added.number % EARLY_PIECES);
    const token_rows rows = {smem_load_u32(kept), smem_load_u32(kept + 32 * 4)};
    mbarrier_wait(piece_there(s.added.number), s.added.number / EARLY_PIECES % 2);
    add_slots(piece, rows, piece_address(s.added.number), s);
    const uint32_t token = walked_token(s, s.added);
    if (piece.slot + piece.slots == p.call.top_k)
        store_sums(p.y, token, piece, s);
    warp_sync();
    next_piece(s.added, s.pieces);
    if (s.added.piece == 0)
        note(p.call.trace, TRACE_SUM, 0, 0, token, 1);
}

MM_DEVICE void sum_complete(const forward_params &p, early_sums &s) {
    bool more = true;
    while (more || s.added.number < s.asked.number) {
        while (more && s.asked.number - s.added.number < EARLY_PIECES)
            more = ask_for_piece(p.call, s);
        if (s.added.number < s.asked.number)
            add_piece(p, s);
    }
}

/* Aligned. */
MM_DEVICE bool have_sums_begun(void) {
    return warp_ballot(mbarrier_test(sums_begun(), 0)) != 0;
}

MM_DEVICE void sum_early(const forward_params &p) {
    const uint32_t own = own_tokens(p.call), count = own < EARLY_TOKENS ? own : EARLY_TOKENS;
    early_sums s = {};
    s.slot_pieces = (p.call.top_k + SUM_SLOTS - 1) / SUM_SLOTS;
    s.pieces = s.slot_pieces * ((p.call.hidden + EARLY_COLUMNS - 1) / EARLY_COLUMNS);
    looked_at looked = last_slots(p, count);
    for (uint32_t left = count; left > 0;) {
        const uint32_t before = left;
        for (s.first = 0; s.first < count && !have_sums_begun(); s.first += 32) {
            s.complete = complete_tokens(p, looked, s.first, count);
            left -= count_bits(s.complete);
            if (s.complete != 0)
                note(p.call.trace, TRACE_AWAIT_RESULTS);
            sum_complete(p, s);
        }
        if (have_sums_begun())
            return;
        if (left == before)
            sleep_ns(EARLY_LOOK_NS);
    }
}

/* The fetch warp is done. */
MM_DEVICE void early_ends(const forward_params &p) {
    close_log(p.call.trace, TRACE_FETCHER);
    warp_sync();
    if (lane_index() == 0)
        mbarrier_arrive(early_done());
}

#endif
