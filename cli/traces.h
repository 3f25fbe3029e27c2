/* The traces of all ranks of one forward, and what they add up to. */
#ifndef CLI_TRACES_H
#define CLI_TRACES_H

#include "share.h"

#define TRACE_ROLES (MMOE_TRACE_CONSUMER + 1)
#define TRACE_KINDS (MMOE_TRACE_SUM + 1)

struct trace_rank {
    mmoe_trace trace;
    mmoe_report untraced, traced;                /* of the forward before, and of the traced one */
    uint64_t checksum_untraced, checksum_traced; /* this rank's parts of y's */

    /* Filled in by traces_align. */
    int64_t shift_ns; /* that was added to all times */

    /* Filled in by traces_add_up. Microseconds of a multiprocessor, on average: of a role's warps, of a flight's places
     * all together. `waited` is part of `spent`. */
    double spent[TRACE_ROLES][TRACE_KINDS], waited[TRACE_ROLES][TRACE_KINDS];
    int64_t bytes_pulled, bytes_pushed; /* from and to peers */
};

struct traces {
    const struct problem *problem;
    struct trace_rank rank[MMOE_MAX_WORLD];
    mmoe_trace_event *events; /* of all ranks */
    int64_t begin_ns, end_ns; /* of the earliest and latest event of all */
};

/* Collective: every rank's own, to rank 0's `traces`, which traces_free frees. */
int traces_gather(struct rank *rank, const struct trace_rank *mine, struct traces *traces);
void traces_free(struct traces *traces);

/* The timers of GPUs may differ. Moves the times of ranks, as little as it takes, so that no result of rank 0 or for
 * rank 0 arrives before it was pushed. */
void traces_align(struct traces *traces);

void traces_add_up(struct traces *traces);

/* "consumer" and so on. */
extern const char *const trace_role_name[TRACE_ROLES];

/* Bytes that an event moves over the link. */
int64_t trace_pulled(const mmoe_trace_event *event, int rank);
int64_t trace_pushed(const mmoe_trace_event *event);

static inline bool trace_multiplies(const mmoe_trace_event *event) {
    return event->kind == MMOE_TRACE_MULTIPLY_GATE_UP || event->kind == MMOE_TRACE_MULTIPLY_DOWN;
}

/* Consumers that tell of tasks: one of each half of the tile; and consumers in all. */
enum { TRACE_HALVES = 2, TRACE_CONSUMERS = 8 };

/* Since the begin of all. */
static inline double trace_us(const struct traces *traces, int64_t ns) {
    return (double)(ns - traces->begin_ns) * 1e-3;
}

#endif
