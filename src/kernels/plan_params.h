/* Parameters and results of the routing plan kernels, shared by the host side and the kernels. C and C++.
 *
 * They make on the device, bit for bit, the plan that src/plan makes on the host, from the ids that mm_call_enter has
 * brought to all ranks:
 * - mm_count_slots counts the slots of all ranks by expert, a chunk of one rank's tokens in each CTA.
 * - mm_place_slots adds up the chunks' counts and places each chunk's slots behind those of the chunks before it.
 * They need no memory that is cleared between calls, and no CTA waits for another one of its grid. They may be launched
 * with programmatic stream serialization: each waits for the kernel before it where it must. Their launches are
 * described at the end of this file.
 *
 * Letters: W ranks, T tokens of a rank, K slots of a token, E experts, El = E / W experts of a rank. W * T * K stays
 * under 2^31. */
#ifndef MM_KERNELS_PLAN_PARAMS_H
#define MM_KERNELS_PLAN_PARAMS_H

#include "kernels/call_params.h"

#define PLAN_MAX_WORLD CALL_MAX_WORLD
#define PLAN_ROW_BLOCK 128u
#define PLAN_NO_CAPACITY 0xffffffffu

/* ---- Plan ----------------------------------------------------------------------------------------- */

/* What the host reads after a plan, in one copy. */
struct plan_summary {
    uint32_t rows;                 /* kept on this rank, without pads */
    uint32_t padded_rows;          /* blocks * PLAN_ROW_BLOCK. More than `row_room`: struct plan_rows was not written */
    uint32_t slots, slots_dropped; /* used slots of this rank that were kept, and dropped */
    int32_t over_rank;             /* the first rank with more rows than the capacity, without drop; -1: none */
    uint32_t over_demand;          /* its rows */
    uint32_t call;                 /* number of the forward */
};

/* The tables of mmoe_plan. The struct row_segments of the products is expert_offset and expert_rows; the first block of
 * an expert is its offset / PLAN_ROW_BLOCK. */
struct plan_tables {
    int32_t *tokens;          /* [W] */
    int32_t *counts;          /* [W, E] */
    int64_t *demand;          /* [W] */
    int64_t *dropped;         /* [W] */
    int32_t *expert_rows;     /* [El] */
    int32_t *expert_offset;   /* [El + 1] */
    uint32_t *slots_on;       /* [W] used slots of this rank that each rank keeps: rows that come back from it */
    struct plan_summary *all; /* sums and the verdict on capacity */
};

/* The row map of mmoe_plan, [row_room] each, and what each block of rows is, [row_room / PLAN_ROW_BLOCK]. */
struct plan_rows {
    int32_t *source, *token, *slot, *primary;
    float *weight;
    int32_t *block_expert; /* local expert */
    int32_t *block_rows;   /* rows of the block that are no pads: 1 .. PLAN_ROW_BLOCK */
};

/* Of this rank's slots, [T, K]. The owner of a slot's row is rank expert / El. */
struct plan_slots {
    int32_t *row;    /* slot_row of mmoe_plan: row on the owner; -1: not used; -2: dropped */
    int32_t *expert; /* the ids, since the next call overwrites those of the symmetric memory */
};

/* Of both kernels. `ids` and `weights` lie in this rank's symmetric memory: rank r's [T_r, K] begin at r * rank_stride.
 * An id that is no expert counts as not used. */
struct plan_params {
    uint32_t world, rank, experts, top_k;
    uint32_t chunks;   /* of each rank's tokens: plan_chunks() */
    uint32_t warps;    /* of a CTA: plan_warps() */
    uint32_t capacity; /* rows a rank may keep; PLAN_NO_CAPACITY: any number */
    uint32_t drop;     /* 1: rows past the capacity are dropped in plan order; 0: they are an error */
    uint32_t row_room;
    const int32_t *tokens; /* [W] */
    const int32_t *ids;
    const float *weights;
    uint64_t rank_stride;   /* elements */
    uint32_t *chunk_counts; /* scratch, [W * chunks, E] */
    struct plan_tables tables;
    struct plan_rows rows;
    struct plan_slots slots;
    int32_t *token_rows;   /* out: [W, token_stride, K] of each rank's slots: row on this rank; negative: none */
    uint64_t token_stride; /* tokens */

    /* What a fused forward needs besides. */
    struct call_state *state; /* gets the arrivals that end the call, and the verdict on capacity */
    struct call_work work;    /* gets where the counters stand and will stand */
    uint32_t h_tiles;         /* of a block of activations */
    uint32_t result_tiles;    /* of a row of results: so often it arrives */
};

/* ---- Launches ------------------------------------------------------------------------------------- */

/* mm_count_slots: W * chunks CTAs of 32 * warps threads, plan_count_shared_bytes().
 * mm_place_slots: W * chunks CTAs of 32 * warps threads, plan_place_shared_bytes(). */
#define PLAN_THREADS 1024u /* most */

/* Words of shared memory an expert in mm_place_slots, besides one for each warp; and the words that are no expert's. */
#define PLAN_PLACE_ARRAYS 5u
#define PLAN_PLACE_OTHER_WORDS (PLAN_MAX_WORLD + 4u)
#define PLAN_PLACE_SHARED_BYTES (224u * 1024u) /* most */

/* A CTA for each multiprocessor, as far as W allows. */
static inline uint32_t plan_chunks(uint32_t multiprocessors, uint32_t world) {
    return multiprocessors < world ? 1 : multiprocessors / world;
}

/* The most for which shared memory holds the counters. */
static inline uint32_t plan_warps(uint32_t experts) {
    const uint32_t words = PLAN_PLACE_SHARED_BYTES / 4 - PLAN_PLACE_OTHER_WORDS - PLAN_PLACE_ARRAYS * experts;
    return words / experts < PLAN_THREADS / 32 ? words / experts : PLAN_THREADS / 32;
}

static inline uint32_t plan_count_shared_bytes(uint32_t experts) {
    return 4 * experts;
}

static inline uint32_t plan_place_shared_bytes(uint32_t experts, uint32_t warps) {
    return 4 * (PLAN_PLACE_OTHER_WORDS + (PLAN_PLACE_ARRAYS + warps) * experts);
}

#endif
