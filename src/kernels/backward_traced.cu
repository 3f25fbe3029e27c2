/* mm_backward_traced: the backward of rows that records what its warps do. */
#define MM_TRACED
#include "kernels/backward.cu"
