/* The fused forward: one launch from the plan to this rank's result. */
#ifndef MM_CUDA_FUSED_H
#define MM_CUDA_FUSED_H

#include "cuda/state.h"

/* Rows come from call->own_x and the peers' slots to call->x; gate and up are kept in call->gate_up with `keep`. */
mmoe_status mm_cuda_fused_forward(struct mm_cuda_call *call, const mmoe_forward_args *args, bool keep);

#endif
