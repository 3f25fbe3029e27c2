/* How a call begins and ends, whatever it computes. */
#ifndef MM_CUDA_CALLS_H
#define MM_CUDA_CALLS_H

#include "cuda/state.h"

/* Takes the call's number, makes the GPU's context current and starts the call. When it fails the call has ended. */
mmoe_status mm_cuda_begin(struct mm_cuda_call *call, struct mmoe_layer *layer, enum mm_call_kind kind, int64_t tokens,
                          void *stream, bool timed);

/* Tells that this rank takes part, and awaits that all do. */
mmoe_status mm_cuda_meet(const struct mm_cuda_call *call);

/* Refuses and ends a call that has begun and not met, with the thread's error text. Returns `status`. */
mmoe_status mm_cuda_refuse(const struct mm_cuda_call *call, mmoe_status status);

void mm_cuda_end(const struct mm_cuda_call *call);

#endif
