/* The traces of all ranks, of one forward, one backward or both on one time line, and what they add up to. */
#ifndef CLI_TRACES_H
#define CLI_TRACES_H

#include "share.h"

#define TRACE_ROLES (MMOE_TRACE_GROUPER + 1)
#define TRACE_KINDS (MMOE_TRACE_SUM + 1)

enum trace_pass { TRACE_FORWARD, TRACE_BACKWARD, TRACE_PASSES };

/* A rank's part in one call. */
struct trace_call {
    mmoe_trace trace;
    mmoe_report untraced, traced; /* of the call before, and of the traced one */

    /* Filled in by traces_add_up. Microseconds of a multiprocessor, on average: of a role's warps, of a flight's places
     * all together. `waited` is part of `spent`. */
    double spent[TRACE_ROLES][TRACE_KINDS], waited[TRACE_ROLES][TRACE_KINDS];
    int64_t bytes_pulled, bytes_pushed; /* from and to peers */
};

struct trace_rank {
    struct trace_call call[TRACE_PASSES];           /* without events where a call is not asked for */
    uint64_t untraced_sums[TENSORS], sums[TENSORS]; /* checksums: this rank's parts of what the calls put out */

    int64_t shift_ns; /* filled in by traces_align: what was added to all times */
    mmoe_trace whole; /* filled in by traces_join: of all calls */
};

struct traces {
    const struct problem *problem;
    struct trace_rank rank[MMOE_MAX_WORLD];
    mmoe_trace_event *events; /* of all ranks */
    int64_t most_events;      /* of a rank: there is room for as many of each */

    /* Filled in by traces_join. */
    int64_t begin_ns, end_ns; /* of the earliest and latest event of all */
    int64_t cut_ns;           /* how much less lies between the calls than did */
};

/* "forward" */
extern const char *const trace_pass_name[TRACE_PASSES];

/* Whether such a call is to be traced. */
bool traces_have(const struct traces *traces, enum trace_pass pass);

/* Collective: every rank's own, to rank 0's `traces`, which traces_free frees. */
int traces_gather(struct rank *rank, const struct trace_rank *mine, struct traces *traces);
void traces_free(struct traces *traces);

/* The timers of GPUs may differ. Moves the times of ranks, as little as it takes, so that no result of rank 0 or for
 * rank 0 arrives before it was pushed. */
void traces_align(struct traces *traces);

/* What the events of each call add up to. */
void traces_add_up(struct traces *traces);

/* The calls of a rank as one, which has their events from now on. Time between them, which is no call's, is cut out but
 * for a gap. */
void traces_join(struct traces *traces);

/* "consumer" and so on. */
extern const char *const trace_role_name[TRACE_ROLES];

/* Bytes that an event moves over the link. */
int64_t trace_pulled(const mmoe_trace_event *event, int rank);
int64_t trace_pushed(const mmoe_trace_event *event);

static inline bool trace_multiplies(const mmoe_trace_event *event) {
    return event->kind >= MMOE_TRACE_MULTIPLY_GATE_UP && event->kind <= MMOE_TRACE_MULTIPLY_WGRAD;
}

/* Of all kinds from one to another, in a role. */
static inline double trace_total(const double of_role[TRACE_KINDS], mmoe_trace_kind first, mmoe_trace_kind last) {
    double sum = 0;
    for (int kind = (int)first; kind <= (int)last; kind++)
        sum += of_role[kind];
    return sum;
}

/* Without what was waited for operands. */
double trace_multiplying_us(const struct trace_call *call);

/* Consumers that tell of tasks: one of each half of the tile; consumers, summers and finishers in all. */
enum { TRACE_HALVES = 2, TRACE_CONSUMERS = 8, TRACE_SUMMERS = 3, TRACE_FINISHERS = 12 };

/* Since the begin of all. */
static inline double trace_us(const struct traces *traces, int64_t ns) {
    return (double)(ns - traces->begin_ns) * 1e-3;
}

static inline double trace_length_us(const mmoe_trace *trace) {
    return (double)(trace->end_ns - trace->begin_ns) * 1e-3;
}

#endif
