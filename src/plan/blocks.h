/* How the arrays of a plan lie in its three blocks: shared by the files of this folder alone. */
#ifndef MM_PLAN_BLOCKS_H
#define MM_PLAN_BLOCKS_H

#include "plan/plan.h"

/* The tables, widest type first so that each array is aligned. Written through these, read through the view. */
struct mm_plan_tables {
    int64_t *demand, *dropped; /* [W] */
    int32_t *tokens;           /* [W] */
    int32_t *counts;           /* [W, E] */
    int32_t *kept, *cursor;    /* [E] */
    int32_t *offset;           /* [W, El + 1] */
};

/* Per row: source, token, k, primary, weight. */
struct mm_plan_rows {
    int32_t *source, *token, *slot, *primary;
    float *weight;
};

/* Make room and say where the arrays are. */
mmoe_status mm_plan_make_tables(struct mm_plan *plan, const struct mm_plan_shape *shape, struct mm_plan_tables *tables);
mmoe_status mm_plan_make_rows(struct mm_plan *plan, int64_t padded_rows, struct mm_plan_rows *rows);
mmoe_status mm_plan_make_slots(struct mm_plan *plan, int64_t slots, int32_t **slot_row);

#endif
