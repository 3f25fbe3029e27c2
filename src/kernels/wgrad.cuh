/* Weight gradients: an expert's rows are the contraction, both operands come MN-major straight from the row pools.
 *
 * A unit is two tiles of 128 output rows, one a CTA, and one tile of 256 columns: the CTAs share B. An expert without
 * rows gets zeros, or nothing when gradients accumulate. The pads of a pool are zero, so the last step of an expert
 * needs no mask. */
#ifndef MM_KERNELS_WGRAD_CUH
#define MM_KERNELS_WGRAD_CUH

#include "kernels/load.cuh"
#include "kernels/multiply.cuh"
#include "kernels/store.cuh"

struct wgrad_task {
    uint32_t expert, output;
    int32_t row, column; /* of the tile in the output; may lie past the end */
    int32_t a_column;    /* of the tile's rows in the pool of a */
    int32_t first_row;   /* of the contraction */
    uint32_t steps;
};

struct wgrad_walk {
    uint32_t unit, units, row_tiles, row_pairs, column_tiles;
};

MM_DEVICE wgrad_walk wgrad_walk_begin(const wgrad_params &p) {
    wgrad_walk walk;
    walk.row_tiles = (p.m + TILE_ROWS - 1) / TILE_ROWS;
    walk.row_pairs = (p.outputs * walk.row_tiles + 1) / 2;
    walk.column_tiles = (p.n + TILE_COLUMNS - 1) / TILE_COLUMNS;
    walk.unit = cta_index() / CLUSTER_CTAS;
    walk.units = p.segments.experts * walk.row_pairs * walk.column_tiles;
    return walk;
}

MM_DEVICE bool wgrad_walk_next(wgrad_walk &walk, const wgrad_params &p, wgrad_task &task) {
    for (; walk.unit < walk.units; walk.unit += cta_count() / CLUSTER_CTAS) {
        const uint32_t per_expert = walk.row_pairs * walk.column_tiles;
        task.expert = walk.unit / per_expert;
        const uint32_t used = load_u32(p.segments.used_rows + task.expert);
        if (used == 0 && p.accumulate)
            continue;
        const uint32_t in_expert = walk.unit % per_expert;
        const uint32_t row_tile = 2 * (in_expert / walk.column_tiles) + cluster_rank();
        task.output = row_tile >= walk.row_tiles && p.outputs > 1;
        task.row = (int32_t)((row_tile - task.output * walk.row_tiles) * TILE_ROWS);
        task.a_column = task.row + (int32_t)(task.output * p.m);
        task.column = (int32_t)(in_expert % walk.column_tiles * TILE_COLUMNS);
        task.first_row = (int32_t)load_u32(p.segments.first_row + task.expert);
        task.steps = (used + TILE_DEPTH - 1) / TILE_DEPTH;
        walk.unit += cta_count() / CLUSTER_CTAS;
        return true;
    }
    return false;
}

MM_DEVICE void produce(const wgrad_params &p) {
    ring at = {0, 1};
    wgrad_walk walk = wgrad_walk_begin(p);
    wgrad_task task;
    while (wgrad_walk_next(walk, p, task)) {
        for (uint32_t step = 0; step < task.steps; step++) {
            const smem_t bar = stage_expect(at, STAGE_BYTES), stage = stage_address(at.stage);
            const int32_t row = task.first_row + (int32_t)step * TILE_DEPTH;
            tma_load<3>(stage, &p.a, bar, {0, row, task.a_column / 64});
            tma_load<3>(stage + STAGE_A_BYTES + cluster_rank() * 2 * BLOCK_BYTES, &p.b, bar,
                        {0, row, task.column / 64 + (int32_t)cluster_rank() * 2}, BOTH_CTAS);
            ring_next(at);
        }
    }
}

/* Zeros to the warp's 16 rows of a tile, in pieces of `columns`: an expert without rows has this gradient. */
MM_DEVICE void store_zeros(const wgrad_params &p, const wgrad_task &task, int32_t columns, staging &out) {
    const weight_view view = weight_of(p.out[task.output], task.expert);
    const int32_t row = task.row + (int32_t)warp_row();
    for (int32_t column = 0; column < TILE_COLUMNS; column += columns) {
        const smem_t piece = staging_take(out);
        for (uint32_t i = 0; i < PIECE_BYTES / 512; i++)
            smem_store_u32x4(piece + i * 512 + lane_index() * 16, u32x4{0, 0, 0, 0});
        if (staging_ready()) {
            tma_store<3>(view.map, piece, {task.column + column, row, view.expert});
            bulk_commit();
        }
    }
}

/* The consumers' tasks. Pieces hold `piece_columns`; epilogue(d, task) takes a tile's sums out. */
template <typename tile_epilogue>
MM_DEVICE void wgrad_consume(const wgrad_params &p, int32_t piece_columns, staging &out,
                             const tile_epilogue &epilogue) {
    ring at = {0, 0};
    wgrad_walk walk = wgrad_walk_begin(p);
    wgrad_task task;
    float d[128];
    while (wgrad_walk_next(walk, p, task)) {
        if (task.steps == 0) {
            store_zeros(p, task, piece_columns, out);
            continue;
        }
        multiply<MN_MAJOR, MN_MAJOR>(d, at, task.steps);
        epilogue(d, task);
    }
    bulk_wait<0>();
}

#endif
