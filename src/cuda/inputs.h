/* What this backend asks of the caller's tensors, beyond what the API checks. */
#ifndef MM_CUDA_INPUTS_H
#define MM_CUDA_INPUTS_H

#include "cuda/state.h"
#include "kernels/row_params.h"

/* A tensor of tokens: on the group's device. MMOE_INVALID_ARGUMENT otherwise; absent and empty ones are good. */
mmoe_status mm_cuda_check_tokens(const struct mm_gpu *gpu, const char *name, const mmoe_tensor *tensor);

/* A weight or its gradient: on the device, and laid out as the tensor copy engine takes it, rows contiguous, 16-byte
 * aligned. MMOE_UNSUPPORTED for another layout. */
mmoe_status mm_cuda_check_weight(const struct mm_gpu *gpu, const char *name, const mmoe_tensor *tensor);

/* A tensor of a call and what it has to be; all of them, up to the first that is not. */
struct mm_cuda_input {
    const char *name;
    const mmoe_tensor *tensor;
    mmoe_status (*check)(const struct mm_gpu *gpu, const char *name, const mmoe_tensor *tensor);
};

mmoe_status mm_cuda_check_inputs(const struct mm_gpu *gpu, const struct mm_cuda_input *inputs, size_t count);

/* That no weight is given by a pointer an expert, in a stream that is being captured: maps of experts are copied to
 * where the next call's will be, and a graph would find those. */
mmoe_status mm_cuda_check_captured(const struct mm_cuda_input *weights, size_t count);

/* The matrix of one local expert. */
void *mm_expert_data(const mmoe_tensor *tensor, int64_t expert);

/* A tensor of two dimensions as kernels take it. */
static inline struct strided_matrix mm_strided(const mmoe_tensor *tensor) {
    return (struct strided_matrix){tensor->data, {tensor->stride[0], tensor->stride[1]}};
}

/* The same; without data where the tensor is absent. */
static inline struct strided_matrix mm_wanted_matrix(const mmoe_tensor *tensor) {
    return mm_wanted(tensor) ? mm_strided(tensor) : (struct strided_matrix){.data = NULL};
}

#endif
