/* wgmma: each number of columns, each way the operands may lie, groups in flight, operands that threads wrote. */
#include "tools.cuh"

enum { TILE_K = 64, STEP_K = 16, STEPS = TILE_K / STEP_K, WARPGROUP = 128, A_ROWS = 128 };
enum { A_TILE_BYTES = A_ROWS * TILE_K * 2, HALF_A_BYTES = A_TILE_BYTES / 2 };

template <operand_major major> MM_DEVICE uint32_t step_bytes(void) {
    return major == K_MAJOR ? STEP_K * 2 : STEP_K * 128;
}

template <operand_major major> MM_DEVICE void load_tile(smem_t to, const tensor_map *map, smem_t bar, int32_t k) {
    if (major == K_MAJOR)
        tma_load<2>(to, map, bar, {k, 0});
    else
        tma_load<3>(to, map, bar, {0, k, 0});
}

/* Element (row, column) of what the warpgroup's thread holds in d[i]. */
MM_DEVICE uint32_t result_row(uint32_t i) {
    const uint32_t t = thread_index() % WARPGROUP;
    return t / 32 * 16 + t % 32 / 4 + i % 4 / 2 * 8;
}
MM_DEVICE uint32_t result_column(uint32_t i) {
    return i / 4 * 8 + thread_index() % 4 * 2 + i % 2;
}

/* `d` belongs to rows `row` .. of the output, whose rows have `pitch` elements, from column `column`. */
template <int count>
MM_DEVICE void result_store(const parameters &p, const float (&d)[count], uint32_t row, uint32_t column,
                            uint32_t pitch) {
#pragma unroll
    for (int i = 0; i < count; i++)
        put(p, (row + result_row(i)) * pitch + column + result_column(i), float_bits(d[i]));
}

/* 128 rows, one warpgroup for each half; number[0] tiles of 64 k; number[1]: accumulate onto what the output holds. In
 * groups: every step of 16 k is a group of its own, and one is left in flight from tile to tile. */
template <int columns, operand_major a_major, operand_major b_major, bool in_groups>
MM_DEVICE void product(const parameters &p) {
    const uint32_t tiles = p.number[0], accumulate = p.number[1], tile_bytes = A_TILE_BYTES + columns * TILE_K * 2;
    const smem_t bars = smem_base(), data = bars + DATA_OFFSET;
    const uint32_t warpgroup = thread_index() / WARPGROUP;
    if (thread_index() == 0) {
        for (uint32_t tile = 0; tile < tiles; tile++)
            mbarrier_init(bars + 8 * tile, 1);
        mbarrier_init_fence();
    }
    cta_sync();
    if (thread_index() == 0)
        for (uint32_t tile = 0; tile < tiles; tile++) {
            mbarrier_arrive_expect(bars + 8 * tile, tile_bytes);
            load_tile<a_major>(data + tile * tile_bytes, &p.map[0], bars + 8 * tile, (int32_t)(tile * TILE_K));
            load_tile<b_major>(data + tile * tile_bytes + A_TILE_BYTES, &p.map[1], bars + 8 * tile,
                               (int32_t)(tile * TILE_K));
        }
    warp_sync();

    float d[columns / 2];
#pragma unroll
    for (int i = 0; i < columns / 2; i++)
        d[i] = bits_float(load_u32(p.out + 4 * ((warpgroup * 64 + result_row(i)) * columns + result_column(i))));
    for (uint32_t tile = 0; tile < tiles; tile++) {
        wait_phase(bars + 8 * tile, 0, p.late);
        const smem_t at = data + tile * tile_bytes;
        const wgmma_operand a = wgmma_operand_at<a_major>(at + warpgroup * HALF_A_BYTES),
                            b = wgmma_operand_at<b_major>(at + A_TILE_BYTES);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
            wgmma_bf16<a_major, b_major>(d, wgmma_operand_add(a, step * step_bytes<a_major>()),
                                         wgmma_operand_add(b, step * step_bytes<b_major>()),
                                         accumulate != 0 || tile > 0 || step > 0);
            if (in_groups || step == STEPS - 1)
                wgmma_commit();
        }
        wgmma_wait<in_groups ? 1 : 0>();
    }
    wgmma_wait<0>();
    wgmma_settle(d);
    result_store(p, d, warpgroup * 64, 0, columns);
}

#define PRODUCT(name, columns, a_major, b_major, in_groups)                                                            \
    MM_KERNEL(name, parameters, 256) {                                                                                 \
        product<columns, a_major, b_major, in_groups>(p);                                                              \
    }
#define PRODUCTS(columns)                                                                                              \
    PRODUCT(wgmma_##columns##_k_k, columns, K_MAJOR, K_MAJOR, false)                                                   \
    PRODUCT(wgmma_##columns##_k_mn, columns, K_MAJOR, MN_MAJOR, false)                                                 \
    PRODUCT(wgmma_##columns##_mn_k, columns, MN_MAJOR, K_MAJOR, false)                                                 \
    PRODUCT(wgmma_##columns##_mn_mn, columns, MN_MAJOR, MN_MAJOR, false)
PRODUCTS(128)
PRODUCTS(192)
PRODUCTS(256)
PRODUCT(wgmma_groups_256_k_k, 256, K_MAJOR, K_MAJOR, true)
PRODUCT(wgmma_groups_128_mn_mn, 128, MN_MAJOR, MN_MAJOR, true)

/* One warpgroup, two products of 64 x 128 in flight at once; the first is stored while the second may still run. */
MM_KERNEL(wgmma_two_results, parameters, 128) {
    const smem_t bar = smem_base(), a_tile = bar + DATA_OFFSET, b_tile = a_tile + A_TILE_BYTES;
    if (thread_index() == 0) {
        mbarrier_init(bar, 1);
        mbarrier_init_fence();
        mbarrier_arrive_expect(bar, A_TILE_BYTES + 256 * TILE_K * 2);
        load_tile<K_MAJOR>(a_tile, &p.map[0], bar, 0);
        load_tile<K_MAJOR>(b_tile, &p.map[1], bar, 0);
    }
    cta_sync();
    wait_phase(bar, 0, p.late);
    const wgmma_operand a = wgmma_operand_at<K_MAJOR>(a_tile), b = wgmma_operand_at<K_MAJOR>(b_tile);
    float left[64], right[64];
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < STEPS; step++)
        wgmma_bf16<K_MAJOR, K_MAJOR>(left, wgmma_operand_add(a, step * 32), wgmma_operand_add(b, step * 32), step > 0);
    wgmma_commit();
#pragma unroll
    for (int step = 0; step < STEPS; step++)
        wgmma_bf16<K_MAJOR, K_MAJOR>(right, wgmma_operand_add(a, step * 32),
                                     wgmma_operand_add(b, 128 * TILE_K * 2 + step * 32), step > 0);
    wgmma_commit();
    wgmma_wait<1>();
    wgmma_settle(left);
    result_store(p, left, 0, 0, 256);
    wgmma_wait<0>();
    wgmma_settle(right);
    result_store(p, right, 0, 128, 256);
}

/* One warpgroup, 64 x 128, both operands written by its threads, which swizzle. */
MM_DEVICE void write_rows(smem_t tile, const uint8_t *from, uint32_t rows) {
    for (uint32_t piece = thread_index(); piece < rows * 8; piece += WARPGROUP) {
        const uint32_t row = piece / 8, column = piece % 8;
        smem_store_u32x4(tile + row * 128 + ((column ^ row % 8) * 16), load_u32x4(from + piece * 16));
    }
}

MM_KERNEL(wgmma_written_operands, parameters, 128) {
    const smem_t a_tile = smem_base(), b_tile = a_tile + HALF_A_BYTES;
    write_rows(a_tile, p.in, 64);
    write_rows(b_tile, p.in + HALF_A_BYTES, 128);
    fence_async_shared();
    cta_sync();
    const wgmma_operand a = wgmma_operand_at<K_MAJOR>(a_tile), b = wgmma_operand_at<K_MAJOR>(b_tile);
    float d[64];
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < STEPS; step++)
        wgmma_bf16<K_MAJOR, K_MAJOR>(d, wgmma_operand_add(a, step * 32), wgmma_operand_add(b, step * 32), step > 0);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_settle(d);
    result_store(p, d, 0, 0, 128);
}
