/* Kernels by name, the tensor maps in their parameters, and their launches. */
#ifndef MM_CUDA_KERNEL_H
#define MM_CUDA_KERNEL_H

#include "cuda/gpu.h"

struct mm_kernel {
    const char *name;
    mm_cu_function function;
    unsigned shared_bytes; /* dynamic shared memory of a CTA */
};

/* Finds a kernel in the images and allows it `shared_bytes` of dynamic shared memory. The context is current. */
mmoe_status mm_kernel_find(const struct mm_gpu *gpu, const char *name, unsigned shared_bytes, struct mm_kernel *kernel);

struct mm_launch {
    mm_cu_stream stream;
    unsigned ctas, threads;
    unsigned cluster; /* CTAs of a cluster; 0 or 1: none */
    bool overlapping; /* may start before the kernel in front of it in the stream has ended, which it awaits itself */
};

/* `parameters` is the kernel's one struct. The context is current. */
mmoe_status mm_kernel_launch(const struct mm_gpu *gpu, const struct mm_kernel *kernel, const struct mm_launch *launch,
                             const void *parameters);

/* `what` names the tensor, for an error text. */
mmoe_status mm_tensor_map_encode(const struct mm_gpu *gpu, const struct tensor_map_desc *description, const char *what,
                                 struct tensor_map *map);

#endif
