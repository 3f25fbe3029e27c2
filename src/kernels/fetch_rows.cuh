/* The fetch warp: pulls rows of tokens from the ranks that own them, each token once, through shared memory to all its
 * rows on this rank, and counts them in at their blocks.
 *
 * Warps take groups of rows in plan order, so that blocks become complete one after another. A token is pulled with its
 * first row and carried in pieces of CARRY_BYTES, CARRIES in turn: first those of its first fetched row, then those of
 * the next one. Pads are filled with zeros, and counted like rows.
 */
#ifndef MM_KERNELS_FETCH_ROWS_CUH
#define MM_KERNELS_FETCH_ROWS_CUH

#include "kernels/bits.cuh"
#include "kernels/call_end.cuh"
#include "kernels/fused_tile.cuh"
#include "kernels/fused_trace.cuh"
#include "kernels/take_next.cuh"
#include "kernels/token_rows.cuh"

#define FETCH_ROWS 8u /* of a group */
static_assert(TILE_ROWS % FETCH_ROWS == 0, "a group lies in one block");

/* Rows of a token: lane l has those of slots l and l + 32; negative: none. */
struct fanned_rows {
    int32_t low, high;
};

struct row_fetcher {
    uint32_t groups, base;  /* of this call; where its count begins */
    uint32_t next, taken;   /* the next group; how many this warp has taken */
    uint32_t wanted;        /* rows of the group that are still to be pulled, a bit each */
    uint32_t source, token; /* of the lane's row of the group */
    uint32_t row_pieces;    /* of one fetched row of a token */
    uint32_t pieces, piece; /* of a token; the next one of the token being pulled, 0: none is */
    uint64_t there;         /* ranks whose tokens are known to be in their slots, a bit each */
    const unsigned char *from[FETCHED_MOST];
    fanned_rows rows;
    uint32_t issued, carried; /* pieces */
    fanned_rows newer, older; /* rows on their way that are not counted in yet */
    bool odd;
};

/* Aligned. */
MM_DEVICE uint32_t take_group(const fused_call &p, const row_fetcher &f) {
    return take_next(p.work.counters->fetch, f.base);
}

MM_DEVICE unsigned char *row_at(const fused_call &p, const fetched_rows &fetched, int32_t row) {
    return (unsigned char *)fetched.rows + (uint64_t)(uint32_t)row * p.hidden * sizeof(bf16_t);
}

MM_DEVICE void count_row(const fused_call &p, int32_t row) {
    if (row >= 0)
        add_relaxed_gpu(p.work.rows.now + (uint32_t)row / TILE_ROWS, 1);
}

MM_DEVICE void count_rows(const fused_call &p, fanned_rows &rows) {
    count_row(p, rows.low);
    count_row(p, rows.high);
    rows = {-1, -1};
}

/* ---- Pads ---- */

MM_DEVICE void clear_row(const fused_call &p, const fetched_rows &fetched, uint32_t row) {
    for (uint32_t col = 8 * lane_index(); col < p.hidden; col += 8 * 32)
        store_u32x4(row_at(p, fetched, (int32_t)row) + col * sizeof(bf16_t), {0, 0, 0, 0});
}

MM_DEVICE void clear_pads(const fused_call &p, uint32_t first_row, uint32_t pads) {
    const uint32_t count = count_bits(pads);
    for (; pads != 0; pads &= pads - 1) {
        clear_row(p, p.fetched[0], first_row + lowest_bit(pads));
        if (p.fetched_count > 1)
            clear_row(p, p.fetched[1], first_row + lowest_bit(pads));
    }
    warp_sync();
    if (lane_index() == 0 && count > 0) {
        fence_gpu();
        add_relaxed_gpu(p.work.rows.now + first_row / TILE_ROWS, count);
    }
}

/* ---- In ---- */

/* Opens the next group. false: there is none. */
MM_DEVICE bool open_group(const fused_call &p, row_fetcher &f) {
    const uint32_t group = f.next;
    if (group >= f.groups)
        return false;
    f.taken++;
    f.next = take_group(p, f);
    const uint32_t row = group * FETCH_ROWS + lane_index() % FETCH_ROWS;
    const bool first = lane_index() < FETCH_ROWS;
    const uint32_t primary = load_u32(p.rows.primary + row);
    f.source = load_u32(p.rows.source + row);
    f.token = load_u32(p.rows.token + row);
    f.wanted = warp_ballot(first && primary == row);
    const uint32_t pads = warp_ballot(first && (int32_t)f.source < 0);
    if (pads != 0) {
        clear_pads(p, group * FETCH_ROWS, pads);
        note(p.trace, TRACE_CLEAR_PADS, group * FETCH_ROWS / TILE_ROWS, 0, 0, count_bits(pads));
    }
    return true;
}

/* Aligned. Until a rank's tokens are in its slot, for the copy engine too. false: the call has been stopped. */
MM_DEVICE bool await_tokens(const fused_call &p, row_fetcher &f, uint32_t source) {
    bool good = true;
    if (lane_index() == 0) {
        good = await_rank(p.group, &own_control(p.group)->tokens_there[source], load_u32(&p.group.state->call),
                          CALL_AWAITS_TOKENS, source);
        fence_async();
    }
    good = warp_ballot(!good) == 0;
    note(p.trace, TRACE_AWAIT_TOKENS, 0, 0, 0, 0, 0, 0, (uint64_t)1 << source);
    f.there |= (uint64_t)good << source;
    return good;
}

/* Where a rank's tokens are; NULL: the call has been stopped. */
MM_DEVICE const unsigned char *tokens_of(const fused_call &p, row_fetcher &f, const fetched_rows &fetched,
                                         uint32_t source) {
    if (source == p.group.rank && fetched.own != nullptr)
        return (const unsigned char *)fetched.own;
    if ((f.there >> source & 1) == 0 && !await_tokens(p, f, source))
        return nullptr;
    return p.group.segment[source] + fetched.slot;
}

/* Where the pieces of a token come from. false: the call has been stopped. */
MM_DEVICE bool find_token(const fused_call &p, row_fetcher &f, uint32_t source, uint32_t token) {
#pragma unroll
    for (uint32_t i = 0; i < FETCHED_MOST; i++) {
        if (i >= p.fetched_count)
            break;
        const unsigned char *tokens = tokens_of(p, f, p.fetched[i], source);
        if (tokens == nullptr)
            return false;
        f.from[i] = tokens + (uint64_t)token * p.hidden * sizeof(bf16_t);
    }
    return true;
}

/* Opens the next token to be pulled. false: there is none, or the call has been stopped. */
MM_DEVICE bool open_token(const fused_call &p, row_fetcher &f) {
    while (f.wanted == 0)
        if (!open_group(p, f))
            return false;
    const uint32_t lane = lowest_bit(f.wanted);
    const uint32_t source = warp_shuffle(f.source, lane), token = warp_shuffle(f.token, lane);
    f.wanted &= f.wanted - 1;
    if (!find_token(p, f, source, token))
        return false;
    const int32_t *rows = rows_of_token(p, source, token);
    f.rows.low = lane_index() < p.top_k ? (int32_t)load_u32(rows + lane_index()) : -1;
    f.rows.high = lane_index() + 32 < p.top_k ? (int32_t)load_u32(rows + lane_index() + 32) : -1;
    note_row(source, token);
    return true;
}

MM_DEVICE smem_t carry_address(uint32_t number) {
    return smem_base() + CARRY_OFFSET + number % CARRIES * CARRY_BYTES;
}
/* Each lane keeps its own rows there. */
MM_DEVICE smem_t carry_rows(uint32_t number) {
    return smem_base() + CARRY_ROWS_OFFSET + (number % CARRIES * CARRY_ROWS + lane_index()) * 4;
}

/* What piece number `piece` of a token is a part of, and where it begins there. */
struct token_piece {
    bool second; /* of the token's fetched rows */
    uint32_t offset, bytes;
};

MM_DEVICE token_piece piece_at(const fused_call &p, const row_fetcher &f, uint32_t piece) {
    const bool second = piece >= f.row_pieces;
    const uint32_t offset = (second ? piece - f.row_pieces : piece) * CARRY_BYTES;
    const uint32_t left = p.hidden * sizeof(bf16_t) - offset;
    return {second, offset, left < CARRY_BYTES ? left : CARRY_BYTES};
}

/* Starts the next piece on its way in. false: there is none. */
MM_DEVICE bool pull_piece(const fused_call &p, row_fetcher &f) {
    if (f.piece == 0 && !open_token(p, f))
        return false;
    const token_piece piece = piece_at(p, f, f.piece);
    note_departure(p.trace, f.issued, f.piece, piece.bytes);
    if (lane_index() == 0) {
        const smem_t bar = carry_full(f.issued % CARRIES);
        mbarrier_arrive_expect(bar, piece.bytes);
        bulk_load(carry_address(f.issued), (piece.second ? f.from[1] : f.from[0]) + piece.offset, piece.bytes, bar);
    }
    smem_store_u32(carry_rows(f.issued), (uint32_t)f.rows.low);
    smem_store_u32(carry_rows(f.issued) + 32 * 4, (uint32_t)f.rows.high);
    f.issued++;
    f.piece = f.piece + 1 < f.pieces ? f.piece + 1 : 0;
    return true;
}

/* ---- Out ---- */

/* Two tokens at a time: a fence for each would wait for each. The last piece may still be on its way. */
MM_DEVICE void count_token(const fused_call &p, row_fetcher &f, const fanned_rows &rows) {
    if (f.odd) {
        bulk_wait<1>();
        fence_gpu();
        count_rows(p, f.older);
        count_rows(p, f.newer);
    }
    f.odd = !f.odd;
    f.older = f.newer;
    f.newer = rows;
}

/* Sends the oldest piece that is on its way in to the token's rows; what held the one before may be filled again. */
MM_DEVICE void carry_piece(const fused_call &p, row_fetcher &f) {
    const uint32_t number = f.carried++;
    const token_piece piece = piece_at(p, f, number % f.pieces);
    const fetched_rows &fetched = piece.second ? p.fetched[1] : p.fetched[0];
    const fanned_rows rows = {(int32_t)smem_load_u32(carry_rows(number)),
                              (int32_t)smem_load_u32(carry_rows(number) + 32 * 4)};
    mbarrier_wait(carry_full(number % CARRIES), number / CARRIES % 2);
    note_arrival(p.trace, number);
    if (rows.low >= 0)
        bulk_store(row_at(p, fetched, rows.low) + piece.offset, carry_address(number), piece.bytes);
    if (rows.high >= 0)
        bulk_store(row_at(p, fetched, rows.high) + piece.offset, carry_address(number), piece.bytes);
    bulk_commit();
    bulk_wait_read<1>();
    warp_sync();
    note_spread(p.trace, rows.low, rows.high, piece.bytes);
    if (f.carried % f.pieces == 0)
        count_token(p, f, rows);
}

/* Whoever brings the last groups says for this rank that it has left. */
MM_DEVICE void finish_fetching(const fused_call &p, const row_fetcher &f) {
    uint32_t fetched = 0;
    if (lane_index() == 0 && f.taken > 0)
        fetched =
            fetch_add_acq_rel_gpu(&p.work.counters->fetched.value, f.taken) - load_u32(&p.work.base->fetched) + f.taken;
    const bool last = f.groups == 0 ? cta_index() == 0 : warp_shuffle(fetched, 0) == f.groups;
    if (!last)
        return;
    warp_sync(); /* lane 0 has acquired that all warps are done, and whether one gave up: all lanes go by it */
    if (stopped_by(p.group) == 0)
        post_left(p.group, load_u32(&p.group.state->call));
}

/* `blocks` of rows, by one warp of each CTA. */
MM_DEVICE void fetch_rows(const fused_call &p, uint32_t blocks) {
    open_log(TRACE_FETCHER);
    open_log(TRACE_FLIGHTS);
    row_fetcher f = {};
    f.groups = blocks * (TILE_ROWS / FETCH_ROWS);
    f.base = load_u32(&p.work.base->fetch);
    f.row_pieces = (p.hidden * sizeof(bf16_t) + CARRY_BYTES - 1) / CARRY_BYTES;
    f.pieces = f.row_pieces * p.fetched_count;
    f.newer = f.older = {-1, -1};
    f.next = take_group(p, f);
    bool more = true;
    while (more || f.carried < f.issued) {
        while (more && f.issued - f.carried < CARRIES - 1)
            more = pull_piece(p, f);
        if (f.carried < f.issued)
            carry_piece(p, f);
    }
    bulk_wait<0>();
    fence_gpu();
    count_rows(p, f.older);
    count_rows(p, f.newer);
    warp_sync();
    finish_fetching(p, f);
    close_log(p.trace, TRACE_FETCHER);
    close_log(p.trace, TRACE_FLIGHTS);
}

#endif
