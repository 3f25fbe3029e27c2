/* dA = w * (dy W2) with the SwiGLU gradient as its epilogue: dg, du and w*h, and each row's part of dw.
 *
 * The epilogue's last part waits until the products of the CTA's next tile have begun, and is done between them, so
 * that the tensor cores work meanwhile. Its gate and up come to memory of their own: the ring is the next tile's. */
#include "kernels/dgate_up_tile.cuh"
#include "kernels/load.cuh"
#include "kernels/multiply.cuh"
#include "kernels/row_tasks.cuh"

#define LATE_PART (DGATE_UP_PARTS - 1)
#define LATE_COLUMN ((int32_t)LATE_PART * 64) /* of a tile */
#define LATE_GROUPS 4u                        /* of 16 columns */
static_assert(2 * STAGED_BYTES <= CONSUMER_WARPS * PIECES * PIECE_BYTES, "gate and up of a part lie there");

MM_DEVICE smem_t late_stage(void) {
    return smem_base() + STAGING_OFFSET;
}
MM_DEVICE smem_t late_full(void) {
    return smem_base() + PREFETCH_OFFSET;
}
MM_DEVICE smem_t late_empty(void) {
    return smem_base() + PREFETCH_OFFSET + 8;
}

/* ---- Producer ---- */

MM_DEVICE void load_gate_up(const dgate_up_params &p, smem_t stage, smem_t bar, int32_t column, int32_t row) {
    tma_load<2>(stage + STAGED_GATE, &p.gate, bar, {column, row});
    tma_load<2>(stage + STAGED_UP, &p.up, bar, {column, row});
}

MM_DEVICE void produce(const dgate_up_params &p) {
    ring at = {0, 1};
    row_walk walk = row_walk_begin(p.intermediate);
    row_task task;
    for (uint32_t tile = 0; row_walk_next(walk, p.segments, task); tile++) {
        const weight_view down = weight_of(p.down, task.expert);
        for (int32_t depth = 0; depth < (int32_t)p.hidden; depth += TILE_DEPTH) {
            const smem_t bar = stage_expect(at, STAGE_BYTES), stage = stage_address(at.stage);
            load_rows(&p.dy, stage, bar, depth, task.row, task.shares_a);
            load_columns(down, stage, bar, task.column, depth, !task.shares_a);
            ring_next(at);
        }
        for (int32_t part = 0; part < (int32_t)LATE_PART; part++) {
            const smem_t bar = stage_expect(at, 2 * STAGED_BYTES);
            load_gate_up(p, stage_address(at.stage), bar, task.column + part * 64, task.row);
            ring_next(at);
        }
        mbarrier_wait(late_empty(), tile % 2 ^ 1);
        mbarrier_arrive_expect(late_full(), 2 * STAGED_BYTES);
        load_gate_up(p, late_stage(), late_full(), task.column + LATE_COLUMN, task.row);
    }
}

/* ---- Consumers ---- */

/* What is left of a tile. */
struct late_part {
    float d[64 / 2]; /* dA' of its columns */
    row_state state;
    int32_t row, column; /* of the warp; of the tile */
};

/* w*h of columns 8*group .. 8*group+15 of the late part straight from where this thread holds it. */
MM_DEVICE void store_weighted(const dgate_up_params &p, const late_part &late, uint32_t group,
                              const uint32_t (&weighted)[4]) {
    const int32_t column = late.column + LATE_COLUMN + (int32_t)(8 * group + 2 * (lane_index() % 4));
    bf16_t *first = p.weighted + (uint64_t)(uint32_t)(late.row + (int32_t)lane_index() / 4) * p.intermediate + column;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        store_u32(first + (uint64_t)(i % 2) * 8 * p.intermediate + i / 2 * 8, weighted[i]);
}

template <bool clamp> MM_DEVICE void differentiate_late(const dgate_up_params &p, late_part &late, uint32_t group) {
    const smem_t at = matrix_row(late_stage() + warp_row() * 128, group);
    uint32_t weighted[4];
    const gate_values gate = gate_load<clamp>(at, p.limit);
    differentiate<clamp>(late.d, group, p.limit, at, gate, late.state, weighted);
    if (late.column + LATE_COLUMN < (int32_t)p.intermediate)
        store_weighted(p, late, group, weighted);
}

MM_DEVICE void end_late(const dgate_up_params &p, const late_part &late) {
    if (late.column < (int32_t)p.intermediate)
        store_dw(p.dw_parts + (size_t)(late.column / TILE_COLUMNS) * p.padded_rows, late.state, late.row);
    give(DGATE_UP_GIVEN_OFFSET, LATE_PART);
}

/* The products of a tile, and between them what is left of the one before, if there is one. */
template <bool clamp>
MM_DEVICE void multiply_beside(const dgate_up_params &p, float (&d)[128], ring &at, late_part &late, uint32_t tile) {
    const uint32_t steps = p.hidden / TILE_DEPTH;
    multiplied done = {0, 0};
    if (tile > 0) {
#pragma unroll
        for (uint32_t group = 0; group < LATE_GROUPS; group++) {
            multiply_until<K_MAJOR, MN_MAJOR>(d, at, done, steps * (group + 1) / (LATE_GROUPS + 1));
            if (group == 0)
                mbarrier_wait(late_full(), (tile - 1) % 2);
            differentiate_late<clamp>(p, late, 2 * group);
        }
        end_late(p, late);
    }
    multiply_until<K_MAJOR, MN_MAJOR>(d, at, done, steps);
    multiply_end(d, done);
}

template <bool clamp>
MM_DEVICE void epilogue(const float (&d)[128], const dgate_up_params &p, ring &at, row_state &state) {
#pragma unroll
    for (uint32_t part = 0; part < LATE_PART; part++) {
        mbarrier_wait(full_barrier(at.stage), at.parity);
        part_of_gradient<clamp>(d, part, stage_address(at.stage) + warp_row() * 128, p.limit, state);
        give(DGATE_UP_GIVEN_OFFSET, part);
        ring_next(at);
    }
}

/* A branch for the limit among products that are under way would serialize them. */
template <bool clamp> MM_DEVICE void consume(const dgate_up_params &p) {
    ring at = {0, 0};
    row_walk walk = row_walk_begin(p.intermediate);
    row_task task;
    late_part late = {};
    float d[128];
    uint32_t tile = 0;
    for (; row_walk_next(walk, p.segments, task); tile++) {
        multiply_beside<clamp>(p, d, at, late, tile);
        late.row = task.row + (int32_t)warp_row();
        late.column = task.column;
        late.state = {};
        load_row_weights(late.state.weight, p.row_weight, late.row);
        epilogue<clamp>(d, p, at, late.state);
#pragma unroll
        for (uint32_t i = 0; i < 32; i++)
            late.d[i] = d[32 * LATE_PART + i];
    }
    if (tile == 0)
        return;
    mbarrier_wait(late_full(), (tile - 1) % 2);
#pragma unroll
    for (uint32_t group = 0; group < LATE_GROUPS; group++)
        differentiate_late<clamp>(p, late, 2 * group);
    end_late(p, late);
}

/* ---- Storing warp ---- */

/* The consumer warps' arrivals at both CTAs, in their place. */
MM_DEVICE void release_for_consumers(uint32_t stage) {
    if (lane_index() < CONSUMER_WARPS * CLUSTER_CTAS)
        mbarrier_arrive_cluster(empty_barrier(stage), lane_index() % CLUSTER_CTAS);
}

/* Number `tile`, whose part has been given. */
MM_DEVICE void store_late(const dgate_up_params &p, const row_task &task, uint32_t tile) {
    mbarrier_wait(given(DGATE_UP_GIVEN_OFFSET, LATE_PART), tile % 2);
    store_given(&p.dgate, &p.dup, nullptr, late_stage(), task.column + LATE_COLUMN, task.row);
    if (lane_index() == 0)
        mbarrier_arrive(late_empty());
}

/* By one warp. */
MM_DEVICE void store(const dgate_up_params &p) {
    row_walk walk = row_walk_begin(p.intermediate);
    row_task task, before = {};
    uint32_t stage = 0, tile = 0;
    for (; row_walk_next(walk, p.segments, task); tile++) {
        if (tile > 0)
            store_late(p, before, tile - 1);
        before = task;
        stage = (stage + p.hidden / TILE_DEPTH) % STAGES;
        for (uint32_t part = 0; part < LATE_PART; part++) {
            mbarrier_wait(given(DGATE_UP_GIVEN_OFFSET, part), tile % 2);
            store_given(&p.dgate, &p.dup, &p.h_weighted, stage_address(stage), task.column + (int32_t)part * 64,
                        task.row);
            release_for_consumers(stage);
            stage = (stage + 1) % STAGES;
        }
    }
    if (tile > 0)
        store_late(p, before, tile - 1);
    bulk_wait<0>();
}

MM_KERNEL(mm_dgate_up, dgate_up_params, CTA_THREADS) {
    if (thread_index() == 0)
        given_init(DGATE_UP_GIVEN_OFFSET);
    gemm_run<56, 224>([&] { produce(p); }, [&] { p.clamp ? consume<true>(p) : consume<false>(p); },
                      [&] {
                          if (warp_index() == 1)
                              store(p);
                      });
}
