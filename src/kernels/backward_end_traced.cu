/* mm_backward_end_traced: the end of a backward that records what its warps do. */
#define MM_TRACED
#define MM_NO_LOADER
#include "kernels/backward_end.cu"
