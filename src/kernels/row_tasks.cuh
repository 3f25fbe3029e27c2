/* Which tiles of a row-grouped product a cluster computes, in what order, and which operand its CTAs share.
 *
 * A unit is what the two CTAs of a cluster compute together. Two row blocks of one expert and one column tile: they
 * share B. An expert's last block, when their number is odd, goes with two column tiles: there they share A, so that no
 * CTA is idle. Units are numbered expert by expert, column tile fastest: clusters that run together read the same rows
 * and the same expert's weights. Cluster c takes units c, c + clusters, ... */
#ifndef MM_KERNELS_ROW_TASKS_CUH
#define MM_KERNELS_ROW_TASKS_CUH

#include "kernels/gemm_params.h"
#include "kernels/tile.cuh"

struct row_task {
    uint32_t expert;
    int32_t row;    /* first of the block */
    int32_t column; /* of the tile; may lie past the end when A is shared */
    bool shares_a;  /* else B */
};

/* The walk: units begin .. end-1 belong to `expert`. */
struct row_walk {
    uint32_t column_tiles, unit, begin, end, expert;
    int32_t first_row, blocks;
};

MM_DEVICE row_walk row_walk_begin(uint32_t columns) {
    row_walk walk = {};
    walk.column_tiles = TILES_OF(columns);
    walk.unit = cta_index() / CLUSTER_CTAS;
    walk.expert = ~0u;
    return walk;
}

/* The next task of this CTA, or false. */
MM_DEVICE bool row_walk_next(row_walk &walk, const row_segments &segments, row_task &task) {
    while (walk.unit >= walk.end) {
        if (++walk.expert >= segments.experts)
            return false;
        walk.first_row = (int32_t)load_u32(segments.first_row + walk.expert);
        walk.blocks = ((int32_t)load_u32(segments.first_row + walk.expert + 1) - walk.first_row) / TILE_ROWS;
        walk.begin = walk.end;
        walk.end += (uint32_t)walk.blocks / 2 * walk.column_tiles + (walk.blocks & 1) * (walk.column_tiles + 1) / 2;
    }
    const uint32_t unit = walk.unit - walk.begin, pairs = (uint32_t)walk.blocks / 2 * walk.column_tiles;
    const uint32_t rank = cluster_rank();
    task.expert = walk.expert;
    task.shares_a = unit >= pairs;
    if (task.shares_a) {
        task.row = walk.first_row + (walk.blocks - 1) * TILE_ROWS;
        task.column = (int32_t)((2 * (unit - pairs) + rank) * TILE_COLUMNS);
    } else {
        task.row = walk.first_row + (int32_t)(2 * (unit / walk.column_tiles) + rank) * TILE_ROWS;
        task.column = (int32_t)(unit % walk.column_tiles * TILE_COLUMNS);
    }
    walk.unit += cta_count() / CLUSTER_CTAS;
    return true;
}

/* The router weights of the two rows that this thread holds of its warp's 16, which start at `row`. */
MM_DEVICE void load_row_weights(float (&weight)[2], const float *row_weight, int32_t row) {
    const float *first = row_weight + row + lane_index() / 4;
    weight[0] = bits_float(load_u32(first));
    weight[1] = bits_float(load_u32(first + 8));
}

#endif
