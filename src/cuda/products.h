/* The layer's six products over the rows of the plan, with what is done to their tiles at once. */
#ifndef MM_CUDA_PRODUCTS_H
#define MM_CUDA_PRODUCTS_H

#include "cuda/state.h"

/* From call->x: h in call->h, and with `keep` gate and up in call->gate_up. */
mmoe_status mm_cuda_gate_up(struct mm_cuda_call *call, bool keep);

/* From call->h: the rows' outputs in call->out. */
mmoe_status mm_cuda_down(struct mm_cuda_call *call);

/* From call->dy and call->gate_up: call->dgrad, the operand w*h of dW2 in call->h, and the parts of dw. */
mmoe_status mm_cuda_dgate_up(struct mm_cuda_call *call);

/* From call->dgrad: the rows' gradients in call->out. */
mmoe_status mm_cuda_dx(struct mm_cuda_call *call);

/* The weights' gradients that are wanted. */
mmoe_status mm_cuda_wgrad(struct mm_cuda_call *call, const mmoe_backward_args *args);

#endif
