/* The usual unfused pipeline on one rank: sort, grouped GEMMs, weighted sum. Its bf16 tensors between the steps are
 * what its errors come from, and what the layer's errors are measured against. Weight on output, no limit. */
#ifndef LAYER_UNFUSED_H
#define LAYER_UNFUSED_H

#include "rig/batch.h"

/* Writes the results of the batch: y, dx, dweights, dgate, dup, ddown. */
void unfused_step(struct rig_batch *batch);

#endif
