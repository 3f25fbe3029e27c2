/* Numbers of the fused kernels that a launch needs too. The tile is that of tile_shape.h, without clusters: three
 * stages, so that there is room to stage what is pushed and a ring for rows on their way through. C and C++. */
#ifndef MM_KERNELS_FUSED_SHAPE_H
#define MM_KERNELS_FUSED_SHAPE_H

#include "kernels/tile_shape.h"

#define FUSED_THREADS 384
#define FUSED_STAGES 3
#define PART_BYTES 4096  /* what a consumer warp stages at a time: 16 rows of 256 bytes, or 8 rows of 512 bytes */
#define PARTS 2          /* in turn, of each consumer warp */
#define CARRY_BYTES 4096 /* of a row that is carried through shared memory at a time */
#define CARRIES 4        /* in turn: one on its way out, the others in */
#define CARRY_ROWS 64    /* rows that a token can go to */
#define QUEUE_PLACES 4   /* tasks told to the warps of a CTA ahead of time */

#define FUSED_STAGING_OFFSET (FUSED_STAGES * STAGE_BYTES)
#define CARRY_OFFSET (FUSED_STAGING_OFFSET + CONSUMER_WARPS * PARTS * PART_BYTES)
#define CARRY_ROWS_OFFSET (CARRY_OFFSET + CARRIES * CARRY_BYTES)
#define QUEUE_OFFSET (CARRY_ROWS_OFFSET + CARRIES * CARRY_ROWS * 4)
#define VERDICT_OFFSET (QUEUE_OFFSET + QUEUE_PLACES * 16)
#define FUSED_BARRIERS_OFFSET (VERDICT_OFFSET + 16)
#define FUSED_FULL_OFFSET FUSED_BARRIERS_OFFSET
#define FUSED_EMPTY_OFFSET (FUSED_FULL_OFFSET + 8 * FUSED_STAGES)
#define PART_FULL_OFFSET (FUSED_EMPTY_OFFSET + 8 * FUSED_STAGES)
#define PART_EMPTY_OFFSET (PART_FULL_OFFSET + 8 * CONSUMER_WARPS * PARTS)
#define CARRY_FULL_OFFSET (PART_EMPTY_OFFSET + 8 * CONSUMER_WARPS * PARTS)
#define QUEUE_FULL_OFFSET (CARRY_FULL_OFFSET + 8 * CARRIES)
#define QUEUE_EMPTY_OFFSET (QUEUE_FULL_OFFSET + 8 * QUEUE_PLACES)
#define FUSED_SMEM_BYTES (QUEUE_EMPTY_OFFSET + 8 * QUEUE_PLACES)

#endif
