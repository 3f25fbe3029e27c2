/* How a call begins and ends, whatever it computes. */
#ifndef MM_CUDA_CALLS_H
#define MM_CUDA_CALLS_H

#include "cuda/state.h"

/* Takes the call's number, makes the GPU's context current and starts the call, behind the call before whatever its
 * stream was. When it fails the call has ended; with call->broke its outputs are to be spoilt. */
mmoe_status mm_cuda_begin(struct mm_cuda_call *call, struct mmoe_layer *layer, enum mm_call_kind kind, int64_t tokens,
                          void *stream, bool timed);

/* Refuses and ends a call that has begun and not met the other ranks, with the thread's error text. Returns `status`,
 * or what failed. */
mmoe_status mm_cuda_refuse(struct mm_cuda_call *call, mmoe_status status);

/* A whole call that this rank refuses with the thread's error text; see struct mm_backend. */
mmoe_status mm_cuda_refuse_whole(struct mmoe_layer *layer, enum mm_call_kind kind, void *stream, mmoe_status status);

/* Ends a call that went as `status` says. Returns it, or how an earlier call failed that could not tell. */
mmoe_status mm_cuda_end(struct mm_cuda_call *call, mmoe_status status);

/* Whatever is queued in the stream from now on comes after all calls but those that are replayed. */
mmoe_status mm_cuda_follow_calls(const struct mm_cuda_group *cuda, mm_cu_stream stream);

#endif
