/* The gradient of the expert's input rows: dg W1 + du W3, one contraction over 2I whose second half reads W3. */
#include "kernels/load.cuh"
#include "kernels/multiply.cuh"
#include "kernels/row_tasks.cuh"
#include "kernels/store.cuh"

MM_DEVICE void produce(const dx_params &p) {
    ring at = {0, 1};
    row_walk walk = row_walk_begin(p.hidden);
    row_task task;
    while (row_walk_next(walk, p.segments, task)) {
        const weight_view gate = weight_of(p.gate, task.expert), up = weight_of(p.up, task.expert);
        for (int32_t depth = 0; depth < 2 * (int32_t)p.intermediate; depth += TILE_DEPTH) {
            const bool in_gate = depth < (int32_t)p.intermediate;
            const weight_view w = {in_gate ? gate.map : up.map, in_gate ? gate.expert : up.expert};
            const int32_t w_row = in_gate ? depth : depth - (int32_t)p.intermediate;
            const smem_t bar = stage_expect(at, STAGE_BYTES), stage = stage_address(at.stage);
            load_rows(&p.dgate_up, stage, bar, depth, task.row, task.shares_a);
            load_columns(w, stage, bar, task.column, w_row, !task.shares_a);
            ring_next(at);
        }
    }
}

MM_DEVICE void consume(const dx_params &p) {
    ring at = {0, 0};
    row_walk walk = row_walk_begin(p.hidden);
    row_task task;
    staging out = staging_begin();
    float d[128];
    while (row_walk_next(walk, p.segments, task)) {
        multiply<K_MAJOR, MN_MAJOR>(d, at, 2 * p.intermediate / TILE_DEPTH);
        store_rows(d, &p.dx, task.column, task.row + (int32_t)warp_row(), out);
    }
    bulk_wait<0>();
}

MM_KERNEL(mm_dx, dx_params, CTA_THREADS) {
    gemm_run([&] { produce(p); }, [&] { consume(p); });
}
