/* The epilogue of a tile of dA': dg, du, w*h and each row's part of dw, from the kept gate and up.
 *
 * Gate and up come through the ring as DGATE_UP_PARTS extra steps after a tile's products: a stage holds 64 columns of
 * gate, of up, and room for w*h. Each warp overwrites its rows of the stage with its results and gives them to a warp
 * that stores them from there: the epilogue needs no memory of its own, its reads are under way before it starts, and
 * it waits for no store. */
#ifndef MM_KERNELS_DGATE_UP_TILE_CUH
#define MM_KERNELS_DGATE_UP_TILE_CUH

#include "kernels/activation.cuh"
#include "kernels/store.cuh"

#define DGATE_UP_PARTS (TILE_COLUMNS / 64)
#define STAGED_BYTES (TILE_ROWS * 128) /* 64 columns of one kind */
#define STAGED_GATE 0
#define STAGED_UP STAGED_BYTES
#define STAGED_WEIGHTED (2 * STAGED_BYTES)

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
    matrix_load(at + STAGED_GATE, pairs);
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

/* The same columns' results, from their dA' in d; w*h is left to the caller. */
template <bool clamp, int count>
MM_DEVICE void differentiate(const float (&d)[count], uint32_t group, float limit, smem_t at, const gate_values &gate,
                             row_state &state, uint32_t (&weighted)[4]) {
    uint32_t pairs[4], dgate[4], dup[4];
    float u[8];
    matrix_load(at + STAGED_UP, pairs);
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
    matrix_store(at + STAGED_GATE, dgate);
    matrix_store(at + STAGED_UP, dup);
}

/* The warp's 16 rows of 64 columns, whose accumulators start at column group 8*part; `rows` are its rows of the stage.
 * The next columns' sigmoids are begun before a group's products, so that the special function unit works meanwhile. */
template <bool clamp>
MM_DEVICE void part_of_gradient(const float (&d)[128], uint32_t part, smem_t rows, float limit, row_state &state) {
    gate_values gate = gate_load<clamp>(matrix_row(rows, 0), limit);
#pragma unroll
    for (uint32_t group = 0; group < 8; group += 2) {
        gate_values next;
        if (group + 2 < 8)
            next = gate_load<clamp>(matrix_row(rows, group + 2), limit);
        uint32_t weighted[4];
        differentiate<clamp>(d, part * 8 + group, limit, matrix_row(rows, group), gate, state, weighted);
        matrix_store(matrix_row(rows, group) + STAGED_WEIGHTED, weighted);
        gate = next;
    }
}

/* The four threads that hold a row add their parts, and one writes the sum: to `parts`, [padded rows], those of the
 * tile's columns. `row` is the warp's first one. */
MM_DEVICE void store_dw(float *parts, const row_state &state, int32_t row) {
    float *own = parts + row + lane_index() / 4;
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        float sum = state.dw[i];
        sum += warp_shuffle_xor(sum, 1);
        sum += warp_shuffle_xor(sum, 2);
        if (lane_index() % 4 == 0)
            store_u32(own + 8 * i, float_bits(sum));
    }
}

/* ---- From the consumers to the warp that stores ---- */

/* A barrier for each part of a tile, from `offset` on: all consumer warps have left their results in its stage. */
MM_DEVICE smem_t given(uint32_t offset, uint32_t part) {
    return smem_base() + offset + 8 * part;
}
MM_DEVICE void given_init(uint32_t offset) {
    for (uint32_t part = 0; part < DGATE_UP_PARTS; part++)
        mbarrier_init(given(offset, part), CONSUMER_WARPS);
}

/* By a consumer warp. */
MM_DEVICE void give(uint32_t offset, uint32_t part) {
    fence_async_shared();
    warp_sync();
    if (lane_index() == 0)
        mbarrier_arrive(given(offset, part));
}

/* By the storing warp: dg, du and, unless that is NULL, w*h of 128 rows and 64 columns, until their stage has been
 * read. */
MM_DEVICE void store_given(const tensor_map *dgate, const tensor_map *dup, const tensor_map *h_weighted, smem_t stage,
                           int32_t column, int32_t row) {
    if (lane_index() == 0) {
        tma_store<2>(dgate, stage + STAGED_GATE, {column, row});
        tma_store<2>(dup, stage + STAGED_UP, {column, row});
        if (h_weighted != nullptr)
            tma_store<2>(h_weighted, stage + STAGED_WEIGHTED, {column, row});
    }
    bulk_commit();
    bulk_wait_read<0>();
    warp_sync();
}

#endif
