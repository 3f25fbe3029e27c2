/* The down product with the weighting epilogue: each row of h times W2, times the row's router weight, rounded once. */
#include "kernels/load.cuh"
#include "kernels/multiply.cuh"
#include "kernels/row_tasks.cuh"
#include "kernels/store.cuh"

MM_DEVICE void produce(const down_params &p) {
    ring at = {0, 1};
    row_walk walk = row_walk_begin(p.hidden);
    row_task task;
    while (row_walk_next(walk, p.segments, task)) {
        const weight_view down = weight_of(p.down, task.expert);
        for (int32_t depth = 0; depth < (int32_t)p.intermediate; depth += TILE_DEPTH) {
            const smem_t bar = stage_expect(at, STAGE_BYTES), stage = stage_address(at.stage);
            load_rows(&p.h, stage, bar, depth, task.row, task.shares_a);
            copy_operand(!task.shares_a, [&](uint32_t half, uint16_t mask) {
                tma_load<3>(stage + STAGE_A_BYTES + half * STAGE_A_BYTES, down.map, bar,
                            {depth, task.column + (int32_t)half * 128, down.expert}, mask);
            });
            ring_next(at);
        }
    }
}

MM_DEVICE void consume(const down_params &p) {
    ring at = {0, 0};
    row_walk walk = row_walk_begin(p.hidden);
    row_task task;
    staging out = staging_begin();
    float d[128];
    while (row_walk_next(walk, p.segments, task)) {
        const int32_t row = task.row + (int32_t)warp_row();
        float weight[2];
        load_row_weights(weight, p.row_weight, row);
        multiply<K_MAJOR, K_MAJOR>(d, at, p.intermediate / TILE_DEPTH);
#pragma unroll
        for (uint32_t i = 0; i < 128; i++)
            d[i] *= weight[i / 2 % 2];
        store_rows(d, &p.y, task.column, row, out);
    }
    bulk_wait<0>();
}

MM_KERNEL(mm_down, down_params, CTA_THREADS) {
    gemm_run([&] { produce(p); }, [&] { consume(p); });
}
