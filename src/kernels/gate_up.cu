/* gate and up products with the SwiGLU epilogue. */
#include "kernels/gate_up_tile.cuh"
#include "kernels/load.cuh"
#include "kernels/multiply.cuh"
#include "kernels/row_tasks.cuh"

MM_DEVICE void produce(const gate_up_params &p) {
    ring at = {0, 1};
    row_walk walk = row_walk_begin(2 * p.intermediate);
    row_task task;
    while (row_walk_next(walk, p.segments, task)) {
        const weight_view gate = weight_of(p.gate, task.expert), up = weight_of(p.up, task.expert);
        for (int32_t depth = 0; depth < (int32_t)p.hidden; depth += TILE_DEPTH) {
            const smem_t bar = stage_expect(at, STAGE_BYTES), stage = stage_address(at.stage);
            load_rows(&p.x, stage, bar, depth, task.row, task.shares_a);
            copy_operand(!task.shares_a, [&](uint32_t half, uint16_t mask) {
                const weight_view &w = half == 0 ? gate : up;
                tma_load<3>(stage + STAGE_A_BYTES + half * STAGE_A_BYTES, w.map, bar,
                            {depth, task.column / 2, w.expert}, mask);
            });
            ring_next(at);
        }
    }
}

/* The three kinds of pieces of 64 columns, one after another. */
template <bool clamp>
MM_DEVICE void epilogue(const float (&d)[128], const gate_up_params &p, const row_task &task, staging &out) {
    const int32_t row = task.row + (int32_t)warp_row();
#pragma unroll
    for (uint32_t part = 0; part < TILE_INTERMEDIATE / 64; part++) {
        const int32_t column = task.column / 2 + (int32_t)part * 64;
        uint32_t gate[4][4], up[4][4];
        const smem_t h_piece = staging_take(out);
#pragma unroll
        for (uint32_t pair = 0; pair < 4; pair++) {
            uint32_t h[4];
            activate<clamp>(d, part * 8 + pair * 2, p.limit, gate[pair], up[pair], h);
            matrix_store(matrix_row(h_piece, pair * 2), h);
        }
        store_piece(&p.h, h_piece, column, row);
        if (p.keep) {
            const smem_t gate_piece = staging_take(out);
#pragma unroll
            for (uint32_t pair = 0; pair < 4; pair++)
                matrix_store(matrix_row(gate_piece, pair * 2), gate[pair]);
            store_piece(&p.gate_out, gate_piece, column, row);
            const smem_t up_piece = staging_take(out);
#pragma unroll
            for (uint32_t pair = 0; pair < 4; pair++)
                matrix_store(matrix_row(up_piece, pair * 2), up[pair]);
            store_piece(&p.up_out, up_piece, column, row);
        }
    }
}

MM_DEVICE void consume(const gate_up_params &p) {
    ring at = {0, 0};
    row_walk walk = row_walk_begin(2 * p.intermediate);
    row_task task;
    staging out = staging_begin();
    float d[128];
    while (row_walk_next(walk, p.segments, task)) {
        multiply<K_MAJOR, K_MAJOR>(d, at, p.hidden / TILE_DEPTH);
        if (p.clamp)
            epilogue<true>(d, p, task, out);
        else
            epilogue<false>(d, p, task, out);
    }
    bulk_wait<0>();
}

MM_KERNEL(mm_gate_up, gate_up_params, CTA_THREADS) {
    gemm_run([&] { produce(p); }, [&] { consume(p); });
}
