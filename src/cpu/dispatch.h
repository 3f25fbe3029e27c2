/* Rows on their way to the experts: written to the own slot, pulled from every rank's. */
#ifndef MM_CPU_DISPATCH_H
#define MM_CPU_DISPATCH_H

#include "cpu/state.h"

/* One tensor [T, H] that is dispatched. */
struct mm_leg {
    const mmoe_tensor *own; /* this rank's */
    size_t slot;            /* of each rank, from the start of its segment */
    uint16_t *rows;         /* [rows, H] where rows go; set before the pull */
};

/* Copies the own tensor to the own slot. With one rank there is no need: rows are pulled from the tensor. */
mmoe_status mm_dispatch_write(const struct mm_cpu_call *call, const struct mm_leg *leg);

/* Fetches each token once, writes it to all its rows, and tells each rank when its slots are read. Only the rows of
 * sources with `wanted` (NULL: of all). */
mmoe_status mm_dispatch_pull(struct mm_cpu_call *call, const struct mm_leg *legs, int count, const bool *wanted);

#endif
