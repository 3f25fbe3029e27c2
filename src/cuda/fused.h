/* The fused kernels: one launch from the plan to a forward's result; and of a backward all but the gradients of
 * weights, which come between the rows and the end. */
#ifndef MM_CUDA_FUSED_H
#define MM_CUDA_FUSED_H

#include "cuda/state.h"
#include "kernels/fused_params.h"

/* What all of them are told. `rows`: the pools to which the rows that the call brings are fetched; NULL for a kernel
 * that fetches none. */
struct fused_call mm_cuda_fused_call(const struct mm_cuda_call *call, const mm_cu_pointer *rows);

/* MM_FUSED_IF_ROOM: does nothing unless the call is good and its rows fit into call->pool_rows. */
enum mm_fused_when { MM_FUSED_FOR_GOOD, MM_FUSED_IF_ROOM };

/* Rows come from all ranks to call->x; gate and up are kept in call->gate_up unless that is 0. */
mmoe_status mm_cuda_fused_forward(struct mm_cuda_call *call, const mmoe_forward_args *args, enum mm_fused_when when);

/* Makes call->plan, which an earlier forward has made, ready for a backward. */
mmoe_status mm_cuda_resume_plan(const struct mm_cuda_call *call, const mmoe_backward_args *args);

/* Rows come to call->dy (and call->x, with gate and up to call->gate_up, when call->recompute); their gradients go to
 * call->dgrad, w*h to call->h, and results to the ranks. */
mmoe_status mm_cuda_fused_backward(struct mm_cuda_call *call);

/* The results of this rank's tokens, and the end of the call. */
mmoe_status mm_cuda_end_backward(const struct mm_cuda_call *call, const mmoe_backward_args *args);

#endif
