/* What the warps of a fused kernel record beyond the tasks that they work on. */
#ifndef MM_KERNELS_FUSED_TRACE_CUH
#define MM_KERNELS_FUSED_TRACE_CUH

#include "kernels/fused_params.h"
#include "kernels/fused_tile.cuh"
#include "kernels/trace.cuh"

static_assert(FUSED_SMEM_BYTES <= TRACE_OFFSET, "the logs lie behind all else");

/* ---- Consumers ---- */

MM_DEVICE void open_consumer_log(const trace_params &trace) {
    if (!TRACED)
        return;
    open_log(own_role());
    if (own_role() == TRACE_CONSUMER && lane_index() == 0)
        anchor_cta(trace, TRACE_BEGIN);
}

MM_DEVICE void close_consumer_log(const trace_params &trace) {
    if (!TRACED)
        return;
    close_log(trace, own_role());
    if (own_role() == TRACE_CONSUMER && lane_index() == 0)
        anchor_cta(trace, TRACE_END);
}

/* What all consumers do together: the first warp of a warpgroup tells. */
MM_DEVICE void note_together(const trace_params &trace, uint32_t kind, uint32_t block = 0, uint32_t tile = 0) {
    if (TRACED && own_role() % 4 == 0)
        note(trace, kind, block, tile);
}

/* ---- Token rows ---- */

/* The pieces that will be pulled next belong to this token. */
MM_DEVICE void note_row(uint32_t rank, uint32_t token) {
    if (TRACED && writes_log())
        set_log(TRACE_FLIGHTS, {rank, token, log_of(TRACE_FLIGHTS).count});
}

/* Piece `number` of all that this warp pulls, number `piece` of its token, is on its way; and has come. */
MM_DEVICE void note_departure(const trace_params &trace, uint32_t number, uint32_t piece, uint32_t bytes) {
    if (!TRACED || !writes_log())
        return;
    const trace_log log = log_of(TRACE_FLIGHTS);
    const uint64_t ranks = (uint64_t)1 << log.last;
    trace_record *record = record_at(trace, TRACE_FLIGHTS, number);
    set_log(TRACE_FLIGHTS, {log.last, log.waited, number + 1});
    if (record == nullptr)
        return;
    store_u32x4(&record->begin, {clock_cycles(), 0, 0, TRACE_PULL});
    store_u32x4(&record->block, {0, piece, log.waited, 1});
    store_u32x4(&record->peer_rows, {0, bytes, (uint32_t)ranks, (uint32_t)(ranks >> 32)});
}
MM_DEVICE void note_arrival(const trace_params &trace, uint32_t number) {
    trace_record *record = TRACED && writes_log() ? record_at(trace, TRACE_FLIGHTS, number) : nullptr;
    if (record != nullptr)
        store_u32(&record->end, clock_cycles());
    if (TRACED)
        note(trace, TRACE_AWAIT_PIECE);
}

/* Aligned: a piece has been sent to the rows that the lanes hold. */
MM_DEVICE void note_spread(const trace_params &trace, int32_t low, int32_t high, uint32_t bytes) {
    if (!TRACED)
        return;
    const uint32_t rows = count_bits(warp_ballot(low >= 0)) + count_bits(warp_ballot(high >= 0));
    note(trace, TRACE_SPREAD, 0, 0, 0, rows, 0, bytes);
}

/* ---- Results ---- */

/* Aligned: the lanes' words together. */
MM_DEVICE uint32_t or_of_warp(uint32_t word) {
    for (uint32_t mask = 16; mask > 0; mask /= 2)
        word |= warp_shuffle_xor(word, mask);
    return word;
}

/* Aligned: `bytes` of each row of a block have been pushed to the rank in `source`. */
MM_DEVICE void note_push(const trace_params &trace, const call_group &group, uint32_t kind, const fused_task &task,
                         const uint32_t (&source)[4], uint32_t bytes) {
    if (!TRACED)
        return;
    uint32_t rows = 0, own_rows = 0;
    uint64_t ranks = 0;
    for (uint32_t i = 0; i < 4; i++) {
        rows += count_bits(warp_ballot(source[i] < group.world));
        own_rows += count_bits(warp_ballot(source[i] == group.rank));
        ranks |= source[i] < group.world ? (uint64_t)1 << source[i] : 0;
    }
    ranks = or_of_warp((uint32_t)ranks) | (uint64_t)or_of_warp((uint32_t)(ranks >> 32)) << 32;
    note(trace, kind, task.block, task.tile, 0, rows, rows - own_rows, bytes, ranks);
}

#endif
