/* A plan computed slot by slot, as its definition says, with no histogram and no sort. */
#ifndef TESTS_PLAN_NAIVE_H
#define TESTS_PLAN_NAIVE_H

#include "plan/plan.h"

/* The routing of a call: ids[r] is [tokens[r], top_k]. */
struct routing {
    int world, experts, top_k;
    int64_t capacity;
    int drop;
    int32_t tokens[MMOE_MAX_WORLD];
    int32_t *ids[MMOE_MAX_WORLD];
    float *weights[MMOE_MAX_WORLD];
};

/* What every rank gets, and where every slot goes. */
struct naive {
    int32_t *slot_row[MMOE_MAX_WORLD]; /* [tokens, top_k] of each source rank */
    int32_t *offset[MMOE_MAX_WORLD];   /* [El + 1] */
    int32_t *kept[MMOE_MAX_WORLD];     /* [El] */
    int64_t demand[MMOE_MAX_WORLD], dropped[MMOE_MAX_WORLD], rows[MMOE_MAX_WORLD];
    int64_t between[MMOE_MAX_WORLD][MMOE_MAX_WORLD]; /* rows of source, on owner */
};

struct naive naive_make(const struct routing *routing);
void naive_free(struct naive *naive);

/* Fails the running test where the plan of its rank differs. */
void naive_compare(const struct naive *naive, const struct routing *routing, const struct mm_plan *plan);

#endif
