/* Comparison of routing plans. */
#ifndef RIG_PLANS_H
#define RIG_PLANS_H

#include "rig/batch.h"
#include "rig/world.h"

/* Whether a rank's plan of a batch is that which mmoe_plan_create() makes, and its rows have the batch's weights. */
bool rig_plan_is_right(struct rig_rank *rank, const mmoe_plan *found, const struct rig_batch *batch);

#endif
