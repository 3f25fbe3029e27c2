/* Gradients of the weights: sums over the rows of one expert, in row order. */
#ifndef MM_CPU_WGRAD_H
#define MM_CPU_WGRAD_H

#include "cpu/state.h"

/* dgate and dup from call->dgrad and call->x, ddown from call->dy and w*h in call->h; absent ones are left out. Nothing
 * in it can fail, so that gradients which are added to are either complete or untouched. */
void mm_wgrad(const struct mm_cpu_call *call, const mmoe_backward_args *args);

#endif
