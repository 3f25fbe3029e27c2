/* The layer's six products over the rows of the plan, with what is done to their tiles at once. */
#ifndef MM_CUDA_PRODUCTS_H
#define MM_CUDA_PRODUCTS_H

#include "cuda/state.h"
#include "kernels/backward_params.h"

/* From call->x: h in call->h, and with `keep` gate and up in call->gate_up. */
mmoe_status mm_cuda_gate_up(struct mm_cuda_call *call, bool keep);

/* From call->h: the rows' outputs in call->out. */
mmoe_status mm_cuda_down(struct mm_cuda_call *call);

/* From call->dy and call->gate_up: call->dgrad, the operand w*h of dW2 in call->h, and the parts of dw. */
mmoe_status mm_cuda_dgate_up(struct mm_cuda_call *call);

/* From call->dgrad: the rows' gradients in call->out. */
mmoe_status mm_cuda_dx(struct mm_cuda_call *call);

/* The launches that make the gradients of weights. */
struct mm_cuda_wgrad_launch {
    enum mm_cuda_kernel kernel;
    struct wgrad_params params;
};

struct mm_cuda_wgrads {
    struct mm_cuda_wgrad_launch launches[3];
    int count;
};

/* Of the gradients that are wanted; and how many. */
mmoe_status mm_cuda_wgrads_of(struct mm_cuda_call *call, const mmoe_backward_args *args, struct mm_cuda_wgrads *wgrads);
int mm_cuda_wgrad_count(const mmoe_backward_args *args);

/* They belong to the call: what it has come to decides what they do, and they sum tokens meanwhile. */
void mm_cuda_wgrads_in_call(const struct mm_cuda_call *call, const mmoe_backward_args *args,
                            struct mm_cuda_wgrads *wgrads);

/* Queues them. With `closing`, behind the end of the call: NaN in what was overwritten, if the call has failed. */
mmoe_status mm_cuda_wgrad(const struct mm_cuda_call *call, const struct mm_cuda_wgrads *wgrads, bool closing);

#endif
