/* A forward and a backward from end to end; see struct mm_backend. */
#ifndef MM_CUDA_PASSES_H
#define MM_CUDA_PASSES_H

#include "backend/backend.h"

mmoe_status mm_cuda_forward(struct mmoe_layer *layer, const mmoe_forward_args *args);
mmoe_status mm_cuda_forward_traced(struct mmoe_layer *layer, const mmoe_forward_args *args, int64_t records,
                                   mmoe_trace **trace);
mmoe_status mm_cuda_backward(struct mmoe_layer *layer, const mmoe_backward_args *args);
mmoe_status mm_cuda_backward_traced(struct mmoe_layer *layer, const mmoe_backward_args *args, int64_t records,
                                    mmoe_trace **trace);

#endif
