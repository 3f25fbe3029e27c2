/* The consumers' way out: a warp stages pieces of 16 rows x 128 bytes in shared memory and stores them with the tensor
 * copy engine, two in turn. Lane 0 issues and waits. */
#ifndef MM_KERNELS_STORE_CUH
#define MM_KERNELS_STORE_CUH

#include "kernels/tile.cuh"
#include "kernels/trace.cuh"

struct staging {
    smem_t base;
    uint32_t turn;
};

MM_DEVICE staging staging_begin(void) {
    return {smem_base() + STAGING_OFFSET + consumer_warp() * PIECES * PIECE_BYTES, 0};
}

/* A piece that no earlier store still reads. */
MM_DEVICE smem_t staging_take(staging &s) {
    const uint32_t wait = wait_begins();
    if (lane_index() == 0)
        bulk_wait_read<PIECES - 1>();
    wait_ends(wait);
    warp_sync();
    const smem_t piece = s.base + s.turn * PIECE_BYTES;
    s.turn = (s.turn + 1) % PIECES;
    return piece;
}

/* Every lane has written its part of the piece; one lane may store it now. */
MM_DEVICE bool staging_ready(void) {
    fence_async_shared();
    warp_sync();
    return lane_index() == 0;
}

/* Address, in a piece or in any 16 rows x 64 bf16 with the 128-byte swizzle, of the row of this lane's 8x8 matrix, for
 * the four matrices of columns 8*group .. 8*group+15 (see matrix_store). */
MM_DEVICE smem_t matrix_row(smem_t rows, uint32_t group) {
    const uint32_t row = lane_index() % 16;
    return rows + row * 128 + ((group + lane_index() / 16) ^ (row & 7)) * 16;
}

/* The four bf16 pairs of columns 8*group .. 8*group+15 that this thread holds, from accumulators 4*group .. */
template <int count> MM_DEVICE void pack_groups(uint32_t (&pairs)[4], const float (&d)[count], uint32_t group) {
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        pairs[i] = pack_bf16(d[4 * (group + i / 2) + 2 * (i % 2)], d[4 * (group + i / 2) + 2 * (i % 2) + 1]);
}

MM_DEVICE void store_piece(const tensor_map *map, smem_t piece, int32_t column, int32_t row) {
    if (staging_ready()) {
        tma_store<2>(map, piece, {column, row});
        bulk_commit();
    }
}

/* The warp's 16 rows of a tile, rounded to bf16, to a pool. */
MM_DEVICE void store_rows(const float (&d)[128], const tensor_map *pool, int32_t column, int32_t row, staging &out) {
#pragma unroll
    for (uint32_t part = 0; part < TILE_COLUMNS / 64; part++) {
        const smem_t piece = staging_take(out);
#pragma unroll
        for (uint32_t pair = 0; pair < 4; pair++) {
            uint32_t values[4];
            pack_groups(values, d, part * 8 + pair * 2);
            matrix_store(matrix_row(piece, pair * 2), values);
        }
        store_piece(pool, piece, column + (int32_t)part * 64, row);
    }
}

#endif
