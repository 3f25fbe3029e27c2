/* A warp and the rows of one token. */
#ifndef MM_KERNELS_TOKEN_ROWS_CUH
#define MM_KERNELS_TOKEN_ROWS_CUH

#include "kernels/fused_params.h"
#include "kernels/isa.cuh"

/* [K] of a token of rank `source`: its rows on this rank. */
MM_DEVICE const int32_t *rows_of_token(const fused_call &p, uint32_t source, uint32_t token) {
    return p.token_rows + (source * p.token_stride + token) * p.top_k;
}

/* Lane l holds the rows of slots l and l + 32. */
struct token_rows {
    uint32_t low, high;
};

MM_DEVICE token_rows token_rows_of(const int32_t *slot_row, uint32_t token, uint32_t top_k) {
    const int32_t *slots = slot_row + (uint64_t)token * top_k;
    const uint32_t lane = lane_index(), none = 0xffffffff;
    return {lane < top_k ? load_u32(slots + lane) : none, lane + 32 < top_k ? load_u32(slots + lane + 32) : none};
}

/* Aligned. Negative: the slot has no row. */
MM_DEVICE int32_t row_of_slot(const token_rows &rows, uint32_t slot) {
    return (int32_t)warp_shuffle(slot < 32 ? rows.low : rows.high, slot % 32);
}

#endif
