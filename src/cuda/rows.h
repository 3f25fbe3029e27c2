/* Rows from tokens to experts and back, on one GPU. */
#ifndef MM_CUDA_ROWS_H
#define MM_CUDA_ROWS_H

#include "cuda/state.h"

/* The rows of tensor [T, H] to all rows of a pool; pads zero. */
mmoe_status mm_cuda_gather(const struct mm_cuda_call *call, const mmoe_tensor *from, mm_cu_pointer rows);

/* call->out summed over each token's slots into tensor [T, H]. */
mmoe_status mm_cuda_combine(const struct mm_cuda_call *call, const mmoe_tensor *to);

/* call->dw_parts summed into tensor [T, K]. */
mmoe_status mm_cuda_combine_dw(const struct mm_cuda_call *call, const mmoe_tensor *to);

/* Every element of an output (none when it is absent) becomes NaN. */
mmoe_status mm_cuda_fill_nan(const struct mm_cuda_call *call, const mmoe_tensor *to);

#endif
