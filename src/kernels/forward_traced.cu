/* mm_forward_traced: the forward that records what its warps do. */
#define MM_TRACED
#include "kernels/forward.cu"
