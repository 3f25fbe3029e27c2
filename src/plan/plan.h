/* The routing plan and every size: pure functions, no group, no backend.
 *
 * Building a plan has two steps, because the growth policy allocates between them: mm_plan_count() makes the
 * histogram, from which every rank reads every rank's demand and the same verdict on capacity; mm_plan_fill()
 * makes the row map and its inverse. The arrays lie in three blocks that are reused from call to call.
 *
 * Row numbers are int32: the caller has made sure that mm_padded_rows_bound() of the used rows a rank may keep fits. */
#ifndef MM_PLAN_PLAN_H
#define MM_PLAN_PLAN_H

#include "base/memory.h"
#include "megamoe.h"

#define MM_SLOT_UNUSED (-1)
#define MM_SLOT_DROPPED (-2)
#define MM_NO_CAPACITY INT64_MAX

/* What fixes a plan apart from the ids. */
struct mm_plan_shape {
    int rank, world;
    int experts, top_k;
    int64_t capacity; /* used rows a rank may receive; MM_NO_CAPACITY: any number */
    int drop;         /* 1: rows past the capacity are dropped in plan order; 0: they are an error */
};

struct mm_plan_shape mm_plan_shape_of(const mmoe_layer_config *layer, int rank, int world);

/* A plan and the memory behind it. A zeroed struct is empty. `view` is what the user sees and comes first, so that
 * a public pointer converts back. */
struct mm_plan {
    mmoe_plan view;
    struct mm_plan_shape shape;
    struct mm_buffer tables; /* sized by W, E */
    struct mm_buffer rows;   /* sized by padded rows */
    struct mm_buffer slots;  /* sized by T * K */

    /* Inside `tables`, for all experts of all ranks. */
    int32_t *kept;   /* [E] rows kept of each expert */
    int32_t *offset; /* [W, El + 1] first row of each segment on its owner; last of a rank: the end */
    int32_t *cursor; /* [E] scratch of the counting sort */
};

/* ids[r] is rank r's contiguous [tokens[r], K]; every id is already known to be -1 or 0 .. E-1. */
mmoe_status mm_plan_count(struct mm_plan *plan, const struct mm_plan_shape *shape, const int32_t *tokens,
                          const int32_t *const *ids);

/* MMOE_CAPACITY, with the text naming the first rank over its capacity, its demand and the capacity, when any rank
 * is over and drop is off. The same on every rank. */
mmoe_status mm_plan_verdict(const struct mm_plan *plan);

/* The row map from the same arguments, after a good verdict. row_primary is the lowest of a (source, token)'s kept rows
 * on this rank. weights[r] is [tokens[r], K], or weights is NULL. */
mmoe_status mm_plan_fill(struct mm_plan *plan, const int32_t *tokens, const int32_t *const *ids,
                         const float *const *weights);

/* Room for the largest plan of a fixed capacity, so that calls allocate nothing. */
mmoe_status mm_plan_reserve(struct mm_plan *plan, const struct mm_plan_shape *shape, int64_t tokens,
                            int64_t padded_rows);
void mm_plan_free(struct mm_plan *plan);

/* Kept rows of rank `source`'s tokens on rank `owner` (pads and dropped rows excluded): what `source` will see arrive
 * from `owner`. From the histogram alone. */
int64_t mm_plan_rows_between(const struct mm_plan *plan, int source, int owner);

/* The most used rows that a rank can keep in a call: what all slots of all ranks, or a fixed capacity, allow. */
int64_t mm_most_rows(const mmoe_layer_config *layer, int world, int64_t max_tokens);

/* Upper bound of padded rows for `rows` used rows over `local_experts` experts. */
int64_t mm_padded_rows_bound(int64_t rows, int64_t local_experts);

/* Bytes of the three blocks of a plan. */
size_t mm_plan_bytes(const struct mm_plan_shape *shape, int64_t tokens, int64_t padded_rows);

#endif
