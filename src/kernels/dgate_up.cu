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

template <bool clamp>
MM_DEVICE void epilogue(const float (&d)[128], const dgate_up_params &p, const row_task &task, ring &at,
                        row_state &state) {
#pragma unroll
    for (uint32_t part = 0; part < DGATE_UP_PARTS; part++) {
        mbarrier_wait(full_barrier(at.stage), at.parity);
        part_of_gradient<clamp>(d, part, stage_address(at.stage) + warp_row() * 128, p.limit, state);
        give(DGATE_UP_GIVEN_OFFSET, part);
        ring_next(at);
    }
    if (task.column < (int32_t)p.intermediate)
        store_dw(p.dw_parts + (size_t)(task.column / TILE_COLUMNS) * p.padded_rows, state,
                 task.row + (int32_t)warp_row());
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
}

/* The consumer warps' arrivals at both CTAs, in their place. */
MM_DEVICE void release_for_consumers(uint32_t stage) {
    if (lane_index() < CONSUMER_WARPS * CLUSTER_CTAS)
        mbarrier_arrive_cluster(empty_barrier(stage), lane_index() % CLUSTER_CTAS);
}

/* By one warp. */
MM_DEVICE void store(const dgate_up_params &p) {
    row_walk walk = row_walk_begin(p.intermediate);
    row_task task;
    uint32_t stage = 0;
    for (uint32_t tile = 0; row_walk_next(walk, p.segments, task); tile++) {
        stage = (stage + p.hidden / TILE_DEPTH) % STAGES;
        for (uint32_t part = 0; part < DGATE_UP_PARTS; part++) {
            mbarrier_wait(given(DGATE_UP_GIVEN_OFFSET, part), tile % 2);
            store_given(&p.dgate, &p.dup, &p.h_weighted, stage_address(stage), task.column + (int32_t)part * 64,
                        task.row);
            release_for_consumers(stage);
            stage = (stage + 1) % STAGES;
        }
    }
    bulk_wait<0>();
}

MM_KERNEL(mm_dgate_up, dgate_up_params, CTA_THREADS) {
    if (thread_index() == 0)
        given_init(DGATE_UP_GIVEN_OFFSET);
    gemm_run<56, 224>([&] { produce(p); }, [&] { consume(p); },
                      [&] {
                          if (warp_index() == 1)
                              store(p);
                      });
}
