/* mm_forward_grouped: the forward whose ranks sum what they computed of a token. */
#define MM_GROUPED
#include "kernels/forward.cu"
