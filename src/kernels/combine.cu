/* Rows of experts back to their tokens: sums over the slots of a token, in the order of the slots. */
#include "kernels/token_rows.cuh"
#include "kernels/token_sum.cuh"

#define SLOTS 8u /* rows in flight in a lane */

/* Aligned; lanes past the last column only keep the others company. */
MM_DEVICE void sum_columns(const combine_params &p, bool whole, uint32_t token, const token_rows &rows, uint32_t col) {
    const bool inside = col < p.hidden;
    float sum[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    for (uint32_t first = 0; first < p.top_k; first += SLOTS) {
        u32x4 piece[SLOTS];
        bool used[SLOTS];
        for (uint32_t i = 0; i < SLOTS; i++) {
            const int32_t row = first + i < p.top_k ? row_of_slot(rows, first + i) : -1;
            used[i] = row >= 0 && inside;
            if (used[i])
                piece[i] = load_u32x4((const bf16_t *)p.rows + ((uint64_t)(uint32_t)row * p.hidden + col));
        }
        for (uint32_t i = 0; i < SLOTS; i++)
            if (used[i])
                add_eight(sum, piece[i]);
    }
    if (inside)
        store_eight(p.to, whole, token, col, round_eight(sum));
}

MM_KERNEL(mm_combine, combine_params, ROW_THREADS) {
    const bool whole = is_whole(p.to);
    for (uint32_t token = first_warp(); token < p.tokens; token += warp_count()) {
        const token_rows rows = token_rows_of(p.slot_row, token, p.top_k);
        for (uint32_t first = 0; first < p.hidden; first += 8 * 32)
            sum_columns(p, whole, token, rows, first + 8 * lane_index());
    }
}

MM_KERNEL(mm_combine_dw, combine_dw_params, ROW_THREADS) {
    const uint32_t slots = p.tokens * p.top_k;
    for (uint32_t i = cta_index() * ROW_THREADS + thread_index(); i < slots; i += cta_count() * ROW_THREADS) {
        const int32_t row = (int32_t)load_u32(p.slot_row + i);
        float sum = 0;
        for (uint32_t part = 0; part < p.part_count && row >= 0; part++)
            sum += bits_float(load_u32(p.parts + ((uint64_t)part * p.padded_rows + (uint32_t)row)));
        const int64_t offset = i / p.top_k * p.to.stride[0] + i % p.top_k * p.to.stride[1];
        store_u32((float *)p.to.data + offset, float_bits(sum));
    }
}
