/* Weight gradients in fp32. Accumulation adds in the copy engine: one add an element and call. */
#include "kernels/wgrad.cuh"

#define PIECE_COLUMNS 32

/* Writes the 16 x 32 piece whose first column group is `group`, in the 128-byte swizzle. Neighbouring rows go to the
 * piece's halves in opposite order, so that the eight threads of two rows meet no bank twice. */
MM_DEVICE void stage_f32(const float (&d)[128], uint32_t group, smem_t piece) {
    const uint32_t quad_row = lane_index() / 4, odd = quad_row & 1;
#pragma unroll
    for (uint32_t half = 0; half < 2; half++) {
        const uint32_t row = quad_row + 8 * half;
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) {
            const float *near = &d[4 * (group + i) + 2 * half], *far = near + 8;
            const float near_pair[2] = {near[0], near[1]}, far_pair[2] = {far[0], far[1]};
#pragma unroll
            for (uint32_t turn = 0; turn < 2; turn++) {
                const bool take_far = turn ^ odd;
                const uint32_t column_group = i + (take_far ? 2 : 0);
                const uint32_t chunk = (2 * column_group + lane_index() % 4 / 2) ^ quad_row;
                smem_store_u64(piece + row * 128 + chunk * 16 + lane_index() % 2 * 8,
                               float_bits(take_far ? far_pair[0] : near_pair[0]),
                               float_bits(take_far ? far_pair[1] : near_pair[1]));
            }
        }
    }
}

MM_DEVICE void epilogue(const float (&d)[128], const wgrad_params &p, const wgrad_task &task, staging &out) {
    const weight_view view = weight_of(p.out[task.output], task.expert);
    const int32_t row = task.row + (int32_t)warp_row();
#pragma unroll
    for (uint32_t part = 0; part < TILE_COLUMNS / PIECE_COLUMNS; part++) {
        const smem_t piece = staging_take(out);
        stage_f32(d, part * PIECE_COLUMNS / 8, piece);
        if (staging_ready()) {
            const int32_t column = task.column + (int32_t)part * PIECE_COLUMNS;
            if (p.accumulate)
                tma_reduce_add<3>(view.map, piece, {column, row, view.expert});
            else
                tma_store<3>(view.map, piece, {column, row, view.expert});
            bulk_commit();
        }
    }
}

MM_DEVICE void consume(const wgrad_params &p) {
    staging out = staging_begin();
    wgrad_consume(p, PIECE_COLUMNS, 0x7fc00000, out,
                  [&](const float(&d)[128], const wgrad_task &task) { epilogue(d, p, task, out); });
}

#if TRACED
MM_KERNEL(mm_wgrad_f32_traced, wgrad_params, CTA_THREADS) {
#else
MM_KERNEL(mm_wgrad_f32, wgrad_params, CTA_THREADS) {
#endif
    wgrad_run(p, [&] { consume(p); });
}
