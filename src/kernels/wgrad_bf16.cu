/* Weight gradients in bf16. Accumulation reads what is there, adds in fp32 and rounds once. */
#include "kernels/wgrad.cuh"

/* Pieces are loaded and stored in turn; a barrier a piece says that the old values are in. */
struct old_pieces {
    staging out;
    smem_t barriers; /* of this warp's pieces */
    uint32_t parity; /* bit i: of piece i */
};

MM_DEVICE old_pieces old_pieces_begin(void) {
    return {staging_begin(), smem_base() + PREFETCH_OFFSET + 8 * consumer_warp() * PIECES, 0};
}

/* Starts the load of the old values into the piece whose turn comes `ahead` pieces from now. */
MM_DEVICE void prefetch_old(const old_pieces &old, uint32_t ahead, const weight_view &view, int32_t column,
                            int32_t row) {
    if (lane_index() == 0) {
        const uint32_t turn = (old.out.turn + ahead) % PIECES;
        const smem_t bar = old.barriers + 8 * turn;
        bulk_wait_read<0>();
        mbarrier_arrive_expect(bar, PIECE_BYTES);
        tma_load<3>(old.out.base + turn * PIECE_BYTES, view.map, bar, {column, row, view.expert});
    }
    warp_sync();
}

MM_DEVICE void wait_old(old_pieces &old) {
    const uint32_t turn = old.out.turn;
    const uint32_t wait = wait_begins();
    mbarrier_wait(old.barriers + 8 * turn, old.parity >> turn & 1);
    wait_ends(wait);
    old.parity ^= 1u << turn;
}

MM_DEVICE void epilogue(const float (&d)[128], const wgrad_params &p, const wgrad_task &task, old_pieces &old) {
    const weight_view view = weight_of(p.out[task.output], task.expert);
    const int32_t row = task.row + (int32_t)warp_row();
    if (p.accumulate)
        prefetch_old(old, 0, view, task.column, row);
#pragma unroll
    for (uint32_t part = 0; part < TILE_COLUMNS / 64; part++) {
        const int32_t column = task.column + (int32_t)part * 64;
        if (p.accumulate) {
            if (part + 1 < TILE_COLUMNS / 64)
                prefetch_old(old, 1, view, column + 64, row);
            wait_old(old);
        }
        const smem_t piece = staging_take(old.out);
#pragma unroll
        for (uint32_t group = 0; group < 8; group += 2) {
            uint32_t values[4];
            if (p.accumulate) {
                uint32_t before[4];
                matrix_load(matrix_row(piece, group), before);
#pragma unroll
                for (uint32_t i = 0; i < 4; i++) {
                    const uint32_t first = 4 * (part * 8 + group + i / 2) + 2 * (i % 2);
                    values[i] = pack_bf16(d[first] + bf16_low(before[i]), d[first + 1] + bf16_high(before[i]));
                }
            } else {
                pack_groups(values, d, part * 8 + group);
            }
            matrix_store(matrix_row(piece, group), values);
        }
        if (staging_ready()) {
            tma_store<3>(view.map, piece, {column, row, view.expert});
            bulk_commit();
        }
    }
}

MM_DEVICE void consume(const wgrad_params &p) {
    old_pieces old = old_pieces_begin();
    wgrad_consume(p, 64, 0x7fc07fc0, old.out,
                  [&](const float(&d)[128], const wgrad_task &task) { epilogue(d, p, task, old); });
}

#if TRACED
MM_KERNEL(mm_wgrad_bf16_traced, wgrad_params, CTA_THREADS) {
#else
MM_KERNEL(mm_wgrad_bf16, wgrad_params, CTA_THREADS) {
#endif
    wgrad_run(p, [&] { consume(p); });
}
