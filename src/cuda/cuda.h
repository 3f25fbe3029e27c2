/* The CUDA backend: the layer on one GPU of compute capability 9.0, host side.
 *
 *     driver*.{h,c,def}, device, gpu, kernel, device_memory   the machine: driver, device, kernels, memory
 *     images.h, embed.cmake                                   the compiled kernels inside the library
 *     describe, nvlink                                        what `megamoe info` tells
 *     backend.c, setup, sizes                                 the table, set-up and tear-down, bytes of every buffer
 *     plan, routing                                           the plan in device memory, and how a forward makes it
 *     maps, products, rows                                    launches: tensor maps, the six products, rows in and out
 *     inputs                                                  what is asked of the caller's tensors
 *     forward.c, backward.c                                   a call from end to end
 */
#ifndef MM_CUDA_CUDA_H
#define MM_CUDA_CUDA_H

#include "backend/backend.h"

extern const struct mm_backend mm_cuda_backend;

#endif
