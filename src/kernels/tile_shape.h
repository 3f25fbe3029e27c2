/* Numbers of the tile engine that a launch of a product needs too: CTAs of CTA_THREADS threads in clusters of
 * CLUSTER_CTAS, with GEMM_SMEM_BYTES of dynamic shared memory; see tile.cuh. C and C++. */
#ifndef MM_KERNELS_TILE_SHAPE_H
#define MM_KERNELS_TILE_SHAPE_H

#define TILE_ROWS 128
#define TILE_COLUMNS 256
#define TILES_OF(columns) (((columns) + TILE_COLUMNS - 1) / TILE_COLUMNS)
#define TILE_DEPTH 64
#define CLUSTER_CTAS 2
#define CTA_THREADS 384
#define CONSUMER_WARPS 8
#define STAGES 4
#define BLOCK_BYTES 8192 /* 64 x 64 bf16: the unit that operands are made of */
#define STAGE_A_BYTES (TILE_ROWS * TILE_DEPTH * 2)
#define STAGE_B_BYTES (TILE_COLUMNS * TILE_DEPTH * 2)
#define STAGE_BYTES (STAGE_A_BYTES + STAGE_B_BYTES)
#define PIECE_BYTES 2048 /* 16 rows of 128 bytes: what a warp stages and stores at a time */
#define PIECES 2         /* staged side by side by a warp */
#define STAGING_OFFSET (STAGES * STAGE_BYTES)
#define BARRIERS_OFFSET (STAGING_OFFSET + CONSUMER_WARPS * PIECES * PIECE_BYTES)
#define FULL_OFFSET BARRIERS_OFFSET
#define EMPTY_OFFSET (FULL_OFFSET + 8 * STAGES)
#define PREFETCH_OFFSET (EMPTY_OFFSET + 8 * STAGES) /* a barrier a piece, for what an epilogue reads */
#define ALL_LOADED_OFFSET (PREFETCH_OFFSET + 8 * CONSUMER_WARPS * PIECES) /* a barrier */
#define DGATE_UP_GIVEN_OFFSET (ALL_LOADED_OFFSET + 8)                     /* barriers of mm_dgate_up */
#define GEMM_SMEM_BYTES (DGATE_UP_GIVEN_OFFSET + 8 * (TILE_COLUMNS / 64))

#endif
