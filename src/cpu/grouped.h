/* The grouped combine: a token's results on one rank are summed there, and the sum travels in place of the first one.
 */
#ifndef MM_CPU_GROUPED_H
#define MM_CPU_GROUPED_H

#include "cpu/state.h"

/* Whether the forwards of the call's layer combine so; on one rank there is nothing to gain. */
bool mm_is_grouped(const struct mm_cpu_call *call);

/* Sums the results [rows, H] of each token on this rank in fp32 in slot order, and writes the rounded sum to the
 * combine slot of its first slot here, on the token's rank. */
mmoe_status mm_grouped_push(struct mm_cpu_call *call);

/* Of an own token: the slots that hold sums, in the order of the ranks that made them. Returns how many, at most K. */
int mm_grouped_slots(const struct mm_cpu_call *call, int64_t token, int64_t *slots);

#endif
