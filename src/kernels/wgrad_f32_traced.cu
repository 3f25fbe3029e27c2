/* mm_wgrad_f32_traced: weight gradients in fp32, with a record of what the warps do. */
#define MM_TRACED
#include "kernels/wgrad_f32.cu"
