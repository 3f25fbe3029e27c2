/* What the ranks' devices tell each other around a call, as the host queues it; the kernels are call_open, call_enter
 * and call_meet. */
#ifndef MM_CUDA_EXCHANGE_H
#define MM_CUDA_EXCHANGE_H

#include "cuda/state.h"
#include "kernels/enter_params.h"

/* The group as kernels get it. */
struct call_group mm_cuda_call_group(const struct mm_cuda_call *call);

/* A rank's shared memory from this device. */
mm_cu_pointer mm_cuda_segment(const struct mm_cuda_call *call, int rank);

/* The call brings these rows to the slot at `offset`. The tensor stays with the caller until the call is queued. */
void mm_cuda_bring(struct mm_cuda_call *call, const mmoe_tensor *rows, size_t offset);

/* Queue the beginning of a forward, or of a backward: its number, what the ranks look for besides rows, the meeting of
 * all ranks; and beside the call's stream the rows that it brings, when anybody reads them in a slot. */
mmoe_status mm_cuda_exchange_forward(const struct mm_cuda_call *call, const mmoe_forward_args *args);
mmoe_status mm_cuda_exchange_backward(const struct mm_cuda_call *call, const mmoe_backward_args *args);

/* Before the fused kernel, which leaves no room for the copy: what follows in the call's stream begins after it. */
mmoe_status mm_cuda_await_copy(const struct mm_cuda_call *call);

/* Queues a call that this rank refuses with the thread's error text. Returns `status` and restores the text, or what
 * failed, which breaks the group. */
mmoe_status mm_cuda_exchange_refusal(const struct mm_cuda_call *call, mmoe_status status);

/* Tells all ranks that this one gives up the call, with the thread's error text, unless the group is broken already.
 * Returns `status` and restores the text. */
mmoe_status mm_cuda_give_up(const struct mm_cuda_call *call, mmoe_status status);

#endif
