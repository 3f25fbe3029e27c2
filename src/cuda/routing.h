/* From the caller's ids and weights to the plan of a forward. */
#ifndef MM_CUDA_ROUTING_H
#define MM_CUDA_ROUTING_H

#include "cuda/state.h"

/* Bytes of the device memory that the kernels of a plan work on, made with the group. */
size_t mm_cuda_routing_bytes(const mmoe_group_config *config, int world);

/* Checks ids and weights on the device and makes call->plan, with one wait for the device. A bad id or weight is
 * MMOE_INVALID_ARGUMENT, demand over a fixed capacity MMOE_CAPACITY; no output has been touched then. */
mmoe_status mm_cuda_route(struct mm_cuda_call *call, const mmoe_tensor *ids, const mmoe_tensor *weights);

#endif
