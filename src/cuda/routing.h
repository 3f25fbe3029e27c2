/* From the ids and weights that all ranks have brought to the plan of a forward. */
#ifndef MM_CUDA_ROUTING_H
#define MM_CUDA_ROUTING_H

#include "cuda/state.h"

/* Room for call->plan, before the ranks meet. */
mmoe_status mm_cuda_reserve_plan(const struct mm_cuda_call *call);

/* Bytes of the largest plan that a call of a layer with a fixed capacity can have. */
size_t mm_cuda_most_plan_bytes(const struct mmoe_layer *layer);

/* Queues the making of call->plan. */
mmoe_status mm_cuda_make_plan(const struct mm_cuda_call *call);

/* With a growing capacity: waits for the plan, not for what is queued behind it, and reads its sums; makes it again
 * when it had no room for its rows. */
mmoe_status mm_cuda_await_plan(const struct mm_cuda_call *call);

/* Reads the sums of the plan of an earlier call, if the host has not read them yet. */
mmoe_status mm_cuda_look_at_plan(const struct mm_cuda_call *call);

#endif
