/* dA = w * (dy W2) with the SwiGLU gradient as its epilogue: dg, du and w*h, and each row's part of dw.
 *
 * The kept gate and up come through the ring as extra steps after a tile's products: a stage holds 64 columns of gate,
 * of up, and room for w*h. Each warp overwrites its rows of the stage with its results and stores them from there, so
 * the epilogue needs no memory of its own and its reads are under way before it starts. */
#include "kernels/activation.cuh"
#include "kernels/load.cuh"
#include "kernels/multiply.cuh"
#include "kernels/row_tasks.cuh"
#include "kernels/store.cuh"

#define PARTS (TILE_COLUMNS / 64)
#define PART_BYTES (TILE_ROWS * 128) /* 64 columns of one kind */
#define GATE_OFFSET 0
#define UP_OFFSET PART_BYTES
#define WEIGHTED_OFFSET (2 * PART_BYTES)

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
        for (int32_t part = 0; part < PARTS; part++) {
            const smem_t bar = stage_expect(at, 2 * PART_BYTES), stage = stage_address(at.stage);
            tma_load<2>(stage + GATE_OFFSET, &p.gate, bar, {task.column + part * 64, task.row});
            tma_load<2>(stage + UP_OFFSET, &p.up, bar, {task.column + part * 64, task.row});
            ring_next(at);
        }
    }
}

/* What a thread keeps of its two rows. */
struct row_state {
    float weight[2], dw[2];
};

/* The four bf16 pairs as eight numbers. */
MM_DEVICE void unpack(float (&values)[8], const uint32_t (&pairs)[4]) {
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        values[2 * i] = bf16_low(pairs[i]);
        values[2 * i + 1] = bf16_high(pairs[i]);
    }
}

/* Sigmoids of eight numbers side by side: one alone would wait for the special function unit twice. */
MM_DEVICE void sigmoids(float (&s)[8], const float (&z)[8]) {
#pragma unroll
    for (uint32_t i = 0; i < 8; i++)
        s[i] = exp2_approx(-1.4426950408889634f * z[i]);
#pragma unroll
    for (uint32_t i = 0; i < 8; i++)
        s[i] = reciprocal_approx(1.0f + s[i]);
}

/* Columns 8*group .. 8*group+15 that this thread holds: gate as it is used, its sigmoid, and which were clipped. */
struct gate_values {
    float g[8], s[8];
    uint32_t clipped; /* bit i: of g[i] */
};

template <bool clamp> MM_DEVICE gate_values gate_load(smem_t at, float limit) {
    gate_values gate;
    uint32_t pairs[4];
    matrix_load(at + GATE_OFFSET, pairs);
    unpack(gate.g, pairs);
    gate.clipped = 0;
    if (clamp) {
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) {
            gate.clipped |= (uint32_t)(gate.g[i] > limit) << i;
            gate.g[i] = clip_above(gate.g[i], limit);
        }
    }
    sigmoids(gate.s, gate.g);
    return gate;
}

/* The same columns' results, from their dA' in d. */
template <bool clamp>
MM_DEVICE void differentiate(const float (&d)[128], uint32_t group, float limit, smem_t at, const gate_values &gate,
                             row_state &state) {
    uint32_t pairs[4], dgate[4], dup[4], weighted[4];
    float u[8];
    matrix_load(at + UP_OFFSET, pairs);
    unpack(u, pairs);
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t row = i % 2;
        float dg[2], du[2], h[2], da[2];
#pragma unroll
        for (uint32_t j = 0; j < 2; j++) {
            const uint32_t e = 2 * i + j;
            const bool up_clipped = clamp && (u[e] > limit || u[e] < -limit);
            if (clamp)
                u[e] = clip_both(u[e], limit);
            da[j] = d[4 * (group + i / 2) + 2 * row + j];
            const swiglu_gradient gradient = swiglu_gradient_of(gate.g[e], u[e], gate.s[e]);
            const float weighted_da = state.weight[row] * da[j];
            h[j] = gradient.h;
            dg[j] = clamp && gate.clipped >> e & 1 ? 0.0f : weighted_da * gradient.gate;
            du[j] = up_clipped ? 0.0f : weighted_da * gradient.up;
        }
        const uint32_t rounded = pack_bf16(h[0], h[1]);
        state.dw[row] += bf16_low(rounded) * da[0];
        state.dw[row] += bf16_high(rounded) * da[1];
        dgate[i] = pack_bf16(dg[0], dg[1]);
        dup[i] = pack_bf16(du[0], du[1]);
        weighted[i] = pack_bf16(state.weight[row] * h[0], state.weight[row] * h[1]);
    }
    matrix_store(at + GATE_OFFSET, dgate);
    matrix_store(at + UP_OFFSET, dup);
    matrix_store(at + WEIGHTED_OFFSET, weighted);
}

/* A stage is released once its stores have read it. */
MM_DEVICE void release_stored(uint32_t stage) {
    if (lane_index() == 0)
        bulk_wait_read<0>();
    warp_sync();
    stage_release(stage);
}

/* The warp's 16 rows of 64 columns, whose accumulators start at column group 8*part. The next columns' sigmoids are
 * begun before a group's products, so that the special function unit works meanwhile. Half way through, the part before
 * has left its stage, `previous`. */
template <bool clamp>
MM_DEVICE void part_of_gradient(const float (&d)[128], uint32_t part, smem_t rows, uint32_t previous,
                                const dgate_up_params &p, row_state &state) {
    gate_values gate = gate_load<clamp>(matrix_row(rows, 0), p.limit);
#pragma unroll
    for (uint32_t group = 0; group < 8; group += 2) {
        if (part > 0 && group == 4)
            release_stored(previous);
        gate_values next;
        if (group + 2 < 8)
            next = gate_load<clamp>(matrix_row(rows, group + 2), p.limit);
        differentiate<clamp>(d, part * 8 + group, p.limit, matrix_row(rows, group), gate, state);
        gate = next;
    }
}

MM_DEVICE void store_part(const dgate_up_params &p, smem_t rows, int32_t column, int32_t row) {
    if (staging_ready()) {
        tma_store<2>(&p.dgate, rows + GATE_OFFSET, {column, row});
        tma_store<2>(&p.dup, rows + UP_OFFSET, {column, row});
        tma_store<2>(&p.h_weighted, rows + WEIGHTED_OFFSET, {column, row});
        bulk_commit();
    }
}

/* The four threads that hold a row add their parts, and one writes the sum. */
MM_DEVICE void store_dw(const dgate_up_params &p, const row_state &state, int32_t column, int32_t row) {
    if (column >= (int32_t)p.intermediate)
        return;
    float *parts = p.dw_parts + (size_t)(column / TILE_COLUMNS) * p.padded_rows + row + lane_index() / 4;
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        float sum = state.dw[i];
        sum += warp_shuffle_xor(sum, 1);
        sum += warp_shuffle_xor(sum, 2);
        if (lane_index() % 4 == 0)
            store_u32(parts + 8 * i, float_bits(sum));
    }
}

template <bool clamp>
MM_DEVICE void epilogue(const float (&d)[128], const dgate_up_params &p, const row_task &task, ring &at,
                        row_state &state) {
    const int32_t row = task.row + (int32_t)warp_row();
    uint32_t previous = 0;
#pragma unroll
    for (uint32_t part = 0; part < PARTS; part++) {
        const smem_t rows = stage_address(at.stage) + warp_row() * 128;
        mbarrier_wait(full_barrier(at.stage), at.parity);
        part_of_gradient<clamp>(d, part, rows, previous, p, state);
        store_part(p, rows, task.column + (int32_t)part * 64, row);
        previous = at.stage;
        ring_next(at);
    }
    release_stored(previous);
    store_dw(p, state, task.column, row);
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
