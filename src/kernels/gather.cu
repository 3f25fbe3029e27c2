/* Rows of tokens to the rows of their experts. A token's row is read once, however many rows it goes to. */
#include "kernels/strided.cuh"
#include "kernels/token_rows.cuh"

#define PIECES 8u /* 16-byte words in flight in a lane */

MM_DEVICE bf16_t *row_at(const gather_params &p, uint32_t row, uint32_t col) {
    return (bf16_t *)p.rows + ((uint64_t)row * p.hidden + col);
}

/* Column of piece i of a lane, in the stretch of columns that begins at `first`. */
MM_DEVICE uint32_t piece_col(uint32_t first, uint32_t i) {
    return first + 8 * (32 * i + lane_index());
}

MM_DEVICE void gather_token(const gather_params &p, bool whole, uint32_t token) {
    const token_rows rows = token_rows_of(p.slot_row, token, p.top_k);
    for (uint32_t first = 0; first < p.hidden; first += 8 * 32 * PIECES) {
        u32x4 piece[PIECES];
        for (uint32_t i = 0; i < PIECES; i++)
            if (piece_col(first, i) < p.hidden)
                piece[i] = load_eight(p.from, whole, token, piece_col(first, i));
        for (uint32_t slot = 0; slot < p.top_k; slot++) {
            const int32_t row = row_of_slot(rows, slot);
            for (uint32_t i = 0; i < PIECES && row >= 0; i++)
                if (piece_col(first, i) < p.hidden)
                    store_u32x4(row_at(p, (uint32_t)row, piece_col(first, i)), piece[i]);
        }
    }
}

/* The pads among 32 rows. */
MM_DEVICE void clear_pads(const gather_params &p, uint32_t first_row) {
    const uint32_t row = first_row + lane_index();
    uint32_t pads = warp_ballot(row < p.padded_rows && (int32_t)load_u32(p.row_token + row) < 0);
    for (uint32_t i = 0; i < 32; i++)
        if (pads >> i & 1)
            for (uint32_t col = 8 * lane_index(); col < p.hidden; col += 8 * 32)
                store_u32x4(row_at(p, first_row + i, col), {0, 0, 0, 0});
}

MM_KERNEL(mm_gather, gather_params, ROW_THREADS) {
    const bool whole = is_whole(p.from);
    for (uint32_t token = first_warp(); token < p.tokens; token += warp_count())
        gather_token(p, whole, token);
    for (uint32_t row = 32 * first_warp(); row < p.padded_rows; row += 32 * warp_count())
        clear_pads(p, row);
}
