/* dA = w * (dy W2) with the SwiGLU gradient as its epilogue: dg, du and w*h, and each row's part of dw. */
#include "kernels/dgate_up_tile.cuh"
#include "kernels/load.cuh"
#include "kernels/multiply.cuh"
#include "kernels/row_tasks.cuh"

MM_DEVICE void produce(const dgate_up_params &p) {
    ring at = {0, 1};
    row_walk walk = row_walk_begin(p.intermediate);
    row_task task;
    while (row_walk_next(walk, p.segments, task)) {
        const weight_view down = weight_of(p.down, task.expert);
        for (int32_t depth = 0; depth < (int32_t)p.hidden; depth += TILE_DEPTH) {
            const smem_t bar = stage_expect(at, STAGE_BYTES), stage = stage_address(at.stage);
            load_rows(&p.dy, stage, bar, depth, task.row, task.shares_a);
            load_columns(down, stage, bar, task.column, depth, !task.shares_a);
            ring_next(at);
        }
        for (int32_t part = 0; part < (int32_t)DGATE_UP_PARTS; part++) {
            const smem_t bar = stage_expect(at, 2 * STAGED_BYTES), stage = stage_address(at.stage);
            tma_load<2>(stage + STAGED_GATE, &p.gate, bar, {task.column + part * 64, task.row});
            tma_load<2>(stage + STAGED_UP, &p.up, bar, {task.column + part * 64, task.row});
            ring_next(at);
        }
    }
}

/* A stage is released once its stores have read it. */
MM_DEVICE void release_stored(uint32_t stage) {
    if (lane_index() == 0)
        bulk_wait_read<0>();
    warp_sync();
    stage_release(stage);
}

MM_DEVICE void store_part(const dgate_up_params &p, smem_t rows, int32_t column, int32_t row) {
    if (staging_ready()) {
        tma_store<2>(&p.dgate, rows + STAGED_GATE, {column, row});
        tma_store<2>(&p.dup, rows + STAGED_UP, {column, row});
        tma_store<2>(&p.h_weighted, rows + STAGED_WEIGHTED, {column, row});
        bulk_commit();
    }
}

template <bool clamp>
MM_DEVICE void epilogue(const float (&d)[128], const dgate_up_params &p, const row_task &task, ring &at,
                        row_state &state) {
    const int32_t row = task.row + (int32_t)warp_row();
    uint32_t previous = 0;
#pragma unroll
    for (uint32_t part = 0; part < DGATE_UP_PARTS; part++) {
        const smem_t rows = stage_address(at.stage) + warp_row() * 128;
        mbarrier_wait(full_barrier(at.stage), at.parity);
        /* Half way through, the part before has left its stage. */
        part_of_gradient<clamp>(d, part, rows, p.limit, state, [&] {
            if (part > 0)
                release_stored(previous);
        });
        store_part(p, rows, task.column + (int32_t)part * 64, row);
        previous = at.stage;
        ring_next(at);
    }
    release_stored(previous);
    if (task.column < (int32_t)p.intermediate)
        store_dw(p.dw_parts + (size_t)(task.column / TILE_COLUMNS) * p.padded_rows, state, row);
}

MM_DEVICE void consume(const dgate_up_params &p) {
    ring at = {0, 0};
    row_walk walk = row_walk_begin(p.intermediate);
    row_task task;
    float d[128];
    while (row_walk_next(walk, p.segments, task)) {
        row_state state = {};
        load_row_weights(state.weight, p.row_weight, task.row + (int32_t)warp_row());
        multiply<K_MAJOR, MN_MAJOR>(d, at, p.hidden / TILE_DEPTH);
        if (p.clamp)
            epilogue<true>(d, p, task, at, state);
        else
            epilogue<false>(d, p, task, at, state);
    }
    bulk_wait<0>();
}

/* The epilogue works on more numbers at once than a consumer of the other products: it gets the producer's registers.
 */
MM_KERNEL(mm_dgate_up, dgate_up_params, CTA_THREADS) {
    gemm_run<24, 240>([&] { produce(p); }, [&] { consume(p); });
}
