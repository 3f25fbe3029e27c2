/* mm_forward_grouped_traced: the one that records what its warps do. */
#define MM_GROUPED
#define MM_TRACED
#include "kernels/forward.cu"
