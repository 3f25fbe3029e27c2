/* The fused forward: one launch from the plan to this rank's result. */
#ifndef MM_CUDA_FUSED_H
#define MM_CUDA_FUSED_H

#include "cuda/state.h"

/* MM_FUSED_IF_ROOM: does nothing unless the call is good and its rows fit into call->pool_rows. */
enum mm_fused_when { MM_FUSED_FOR_GOOD, MM_FUSED_IF_ROOM };

/* Rows come from call->own_x and the peers' slots to call->x; gate and up are kept in call->gate_up unless that is 0.
 */
mmoe_status mm_cuda_fused_forward(struct mm_cuda_call *call, const mmoe_forward_args *args, enum mm_fused_when when);

#endif
