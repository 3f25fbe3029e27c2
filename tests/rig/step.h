/* One rank's forward and backward of a batch through the public API, with guarded operands of any layout. */
#ifndef RIG_STEP_H
#define RIG_STEP_H

#include "rig/batch.h"
#include "rig/tensor.h"
#include "rig/world.h"

enum rig_operand {
    RIG_X,
    RIG_IDS,
    RIG_WEIGHTS,
    RIG_GATE,
    RIG_UP,
    RIG_DOWN,
    RIG_Y,
    RIG_DY,
    RIG_DX,
    RIG_DWEIGHTS,
    RIG_DGATE,
    RIG_DUP,
    RIG_DDOWN,
    RIG_OPERANDS
};

/* Zeroed: plan kept, int32 ids, fp32 weight gradients, overwritten, everything contiguous and wanted. */
struct rig_options {
    mmoe_keep keep;
    bool wide_ids;                        /* int64 */
    bool narrow_gradients;                /* dW in bf16 */
    bool halves;                          /* gate and up, and their gradients, as halves of one stack */
    bool accumulate;                      /* dW added to the batch's `start` */
    bool forward_only;                    /* no backward is made; gradients count as right */
    enum rig_layout layout[RIG_OPERANDS]; /* with halves, RIG_GATE and RIG_DGATE rule the joint stacks */
    unsigned omit[MMOE_MAX_WORLD];        /* bits 1 << RIG_DX and so on: gradients that a rank leaves out */
};

/* A rank's operands. With halves, the joint stacks are the tensors of RIG_GATE and RIG_DGATE. */
struct rig_call {
    const struct rig_options *options;
    struct rig_tensor tensor[RIG_OPERANDS];
    mmoe_forward_args forward;
    mmoe_backward_args backward;
};

/* Inputs from the batch; outputs filled with bytes `poison`, accumulated gradients with the batch's start. */
struct rig_call rig_call_make(const struct rig_rank *rank, const struct rig_batch *batch,
                              const struct rig_options *options, mmoe_saved *saved, int poison);
void rig_call_free(struct rig_call *call);

/* After a successful call: checks that no byte changed but the outputs' elements, and puts those into the batch. */
bool rig_call_take_forward(struct rig_rank *rank, struct rig_call *call, struct rig_batch *batch);
bool rig_call_take_backward(struct rig_rank *rank, struct rig_call *call, struct rig_batch *batch);

/* Whether no operand has changed, outputs included. */
bool rig_call_untouched(const struct rig_call *call);

/* Whether every element of a contiguous floating-point operand is NaN. */
bool rig_operand_is_nan(const struct rig_call *call, enum rig_operand operand);

/* One call with its operands, which have been placed (rig/device.h), and its results into the batch. */
struct rig_placed;
bool rig_call_forward(struct rig_rank *rank, mmoe_layer *layer, struct rig_call *call, const struct rig_placed *placed,
                      struct rig_batch *batch);
bool rig_call_backward(struct rig_rank *rank, mmoe_layer *layer, struct rig_call *call, const struct rig_placed *placed,
                       struct rig_batch *batch);

/* A forward and its backward, if one is wanted, into the batch. */
bool rig_step(struct rig_rank *rank, mmoe_layer *layer, mmoe_saved *saved, struct rig_batch *batch,
              const struct rig_options *options, int poison);

/* Runs the batches one after another on one layer of one group, as `world` says, and leaves results in them. */
void rig_run(const struct rig_world *world, struct rig_batch *batches, int count, const struct rig_options *options);

/* rig_run under a NaN poison, then under a large finite one, compared with the oracle each time. At reduced size, one
 * run under either in turn. */
void rig_prove(const struct rig_world *world, struct rig_batch *batches, int count, const struct rig_options *options);

/* A world fit for the batches. */
struct rig_world rig_world_for(const struct rig_batch *batches, int count, enum rig_kind kind);

#endif
