/* mm_wgrad_bf16_traced: weight gradients in bf16, with a record of what the warps do. */
#define MM_TRACED
#include "kernels/wgrad_bf16.cu"
