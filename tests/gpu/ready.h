/* Calls of exact batches, made again and again: operands on the rank's device, where they stay, and what must come out,
 * bit for bit. */
#ifndef GPU_READY_H
#define GPU_READY_H

#include "gpus.h"

struct ready {
    struct rig_call call;
    struct rig_placed placed;
    void *expected[RIG_OPERANDS]; /* of outputs, contiguous; NULL: the call has no such output */
    void *found;                  /* room for any of them */
};

/* The batch's reference has been made. A forward alone, or also its backward, as the options say. */
bool ready_make(struct rig_rank *rank, const struct rig_batch *batch, const struct rig_options *options,
                mmoe_saved *saved, struct ready *ready);
void ready_free(struct rig_rank *rank, struct ready *ready);

/* Before the calls, outputs become what they were at first: poison, or what is added to. After them, all are compared;
 * `number` names them. */
bool ready_poison(struct rig_rank *rank, const struct ready *ready);
bool ready_compare(struct rig_rank *rank, struct ready *ready, int number);

#endif
