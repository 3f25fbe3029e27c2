/* What a failed call leaves in its outputs. */
#ifndef MM_CUDA_FILL_H
#define MM_CUDA_FILL_H

#include "cuda/state.h"

/* Every element of an output (none when it is absent) becomes NaN. */
mmoe_status mm_cuda_fill_nan(const struct mm_cuda_call *call, const mmoe_tensor *to);

#endif
