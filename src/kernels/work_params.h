/* How the CTAs of a fused kernel share the work of a call, and how they know that what they need is there. C and C++.
 *
 * Counters only grow, and are never reset: the plan notes where they stand, or where they will stand when something is
 * complete. They are compared wrap-safe. */
#ifndef MM_KERNELS_WORK_PARAMS_H
#define MM_KERNELS_WORK_PARAMS_H

#include <stdalign.h>
#include <stdint.h>

/* Alone on its cache lines. */
struct call_flag {
    alignas(128) uint32_t value;
};

struct work_counters {
    struct call_flag task;    /* tasks taken by CTAs */
    struct call_flag fetch;   /* groups of rows taken to be fetched */
    struct call_flag fetched; /* groups of rows that have come */
    struct call_flag sum;     /* groups of tokens taken to be summed */
    struct call_flag group;   /* groups of rows taken to be summed on the rank that computed them */
    struct call_flag ended;   /* CTAs that are done */
};

struct work_base {
    uint32_t task, fetch, fetched, sum, group, ended;
};

/* Of blocks of rows: what has come, and the count that completes a block. An entry for each block that any plan of the
 * group can have. */
struct block_counters {
    uint32_t *now, *target;
};

/* On the device of a rank, zero before the first call. */
struct call_work {
    struct work_counters *counters;
    struct work_base *base;
    struct block_counters rows;    /* token rows */
    struct block_counters h;       /* tiles of activations; backward: of gate and up that are computed again */
    struct block_counters dgrad;   /* tiles of gradients of gate and up */
    struct block_counters results; /* of a forward: tiles of result rows that have come to where they are summed */
    uint32_t *by_rows;             /* local experts, those with the most rows first: of a backward */
};

#endif
