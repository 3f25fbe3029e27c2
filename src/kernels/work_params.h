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
    struct call_flag ended;   /* CTAs that are done */
};

struct work_base {
    uint32_t task, fetch, fetched, sum, ended;
};

/* On the device of a rank, zero before the first call. The arrays have an entry for each block of rows that any plan of
 * the group can have. */
struct call_work {
    struct work_counters *counters;
    struct work_base *base;
    uint32_t *rows_in, *rows_target; /* token rows that have come to a block, and the count that completes it */
    uint32_t *h_in, *h_target;       /* tiles of activations, likewise */
};

#endif
