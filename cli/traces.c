/* Traces of all ranks; see traces.h. */
#include "traces.h"

#include <stdlib.h>
#include <string.h>

#include "message.h"

const char *const trace_role_name[TRACE_ROLES] = {
    [MMOE_TRACE_LOADER] = "loader", [MMOE_TRACE_FETCHER] = "fetcher",   [MMOE_TRACE_FLIGHT] = "flight",
    [MMOE_TRACE_STORER] = "storer", [MMOE_TRACE_CONSUMER] = "consumer",
};

/* ---- From all ranks ---- */

static size_t most_events(const struct traces *traces) {
    int64_t most = 0;
    for (int r = 0; r < traces->problem->world; r++)
        if (traces->rank[r].trace.count > most)
            most = traces->rank[r].trace.count;
    return (size_t)most;
}

/* Every rank brings as many events as the one with the most. */
static int gather_events(struct rank *rank, const mmoe_trace *trace, struct traces *traces, size_t most) {
    bool first = rank->index == 0;
    size_t bytes = most * sizeof *traces->events;
    mmoe_trace_event *mine = calloc(most + 1, sizeof *mine);
    if (first)
        traces->events = malloc((size_t)rank->world * bytes + 1);
    if (!mine || (first && !traces->events))
        rank_fail(rank, EXIT_RUN, "no memory for the events of a trace");
    else if (trace->count > 0)
        memcpy(mine, trace->events, (size_t)trace->count * sizeof *mine);
    if (rank_all_well(rank))
        rank_gather(rank, mine, bytes, first ? traces->events : NULL);
    for (int r = 0; r < rank->world && first; r++)
        traces->rank[r].trace.events = traces->events + (size_t)r * most;
    free(mine);
    return rank->code;
}

int traces_gather(struct rank *rank, const struct trace_rank *mine, struct traces *traces) {
    struct traces all = {.problem = traces->problem};
    if (rank_gather(rank, mine, sizeof *mine, all.rank))
        return rank->code;
    const size_t most = most_events(&all);
    if (rank->index == 0)
        memcpy(traces->rank, all.rank, sizeof all.rank);
    return gather_events(rank, &mine->trace, traces, most);
}

void traces_free(struct traces *traces) {
    free(traces->events);
}

/* ---- One clock ---- */

/* When a rank had all results of its tokens: the first that any multiprocessor knew of it. INT64_MAX: never told. */
static int64_t results_ns(const mmoe_trace *trace) {
    int64_t first = INT64_MAX;
    for (int64_t e = 0; e < trace->count; e++)
        if (trace->events[e].kind == MMOE_TRACE_AWAIT_RESULTS && trace->events[e].end_ns < first)
            first = trace->events[e].end_ns;
    return first;
}

/* When the last result for rank `to` had been pushed. INT64_MIN: there was none. */
static int64_t pushed_ns(const mmoe_trace *trace, int to) {
    int64_t last = INT64_MIN;
    for (int64_t e = 0; e < trace->count; e++) {
        const mmoe_trace_event *event = &trace->events[e];
        if (event->kind == MMOE_TRACE_PUSH && (event->ranks >> to & 1) != 0 && event->end_ns > last)
            last = event->end_ns;
    }
    return last;
}

/* How far rank r's times are moved: from where rank 0's results reach it after they were pushed, to where its own reach
 * rank 0 so. */
static int64_t shift_of(const struct traces *traces, int r) {
    const mmoe_trace *zero = &traces->rank[0].trace, *other = &traces->rank[r].trace;
    int64_t least = INT64_MIN, most = INT64_MAX;
    if (pushed_ns(zero, r) > INT64_MIN && results_ns(other) < INT64_MAX)
        least = pushed_ns(zero, r) - results_ns(other);
    if (pushed_ns(other, 0) > INT64_MIN && results_ns(zero) < INT64_MAX)
        most = results_ns(zero) - pushed_ns(other, 0);
    if (least > most) /* times are not that exact */
        return least + (most - least) / 2;
    return least > 0 ? least : most < 0 ? most : 0;
}

static void shift(struct traces *traces, int r, int64_t ns) {
    struct trace_rank *rank = &traces->rank[r];
    mmoe_trace_event *events = traces->events + (rank->trace.events - traces->events);
    rank->shift_ns = ns;
    rank->trace.begin_ns += ns;
    rank->trace.end_ns += ns;
    for (int64_t e = 0; e < rank->trace.count; e++) {
        events[e].begin_ns += ns;
        events[e].end_ns += ns;
    }
}

void traces_align(struct traces *traces) {
    for (int r = 1; r < traces->problem->world; r++)
        shift(traces, r, shift_of(traces, r));
}

/* ---- Sums ---- */

int64_t trace_pulled(const mmoe_trace_event *event, int rank) {
    bool own = event->ranks == (uint64_t)1 << rank;
    return event->kind == MMOE_TRACE_PULL && !own ? event->bytes : 0;
}

int64_t trace_pushed(const mmoe_trace_event *event) {
    return event->kind == MMOE_TRACE_PUSH ? (int64_t)event->peer_rows * event->bytes : 0;
}

/* Warps of a multiprocessor that tell of such events. */
static int tellers(const mmoe_trace_event *event) {
    if (event->role != MMOE_TRACE_CONSUMER)
        return 1;
    return event->kind == MMOE_TRACE_SUM ? TRACE_CONSUMERS : TRACE_HALVES;
}

static void add_event(struct trace_rank *rank, const mmoe_trace_event *event) {
    const double share = 1e-3 / tellers(event) / rank->trace.multiprocessors;
    rank->spent[event->role][event->kind] += share * (double)(event->end_ns - event->begin_ns);
    rank->waited[event->role][event->kind] += share * (double)event->waited_ns;
    rank->bytes_pulled += trace_pulled(event, rank->trace.rank);
    rank->bytes_pushed += trace_pushed(event);
}

static void add_span(struct traces *traces, const mmoe_trace *trace) {
    if (trace->count == 0)
        return;
    if (traces->end_ns == 0 || trace->begin_ns < traces->begin_ns)
        traces->begin_ns = trace->begin_ns;
    if (trace->end_ns > traces->end_ns)
        traces->end_ns = trace->end_ns;
}

void traces_add_up(struct traces *traces) {
    for (int r = 0; r < traces->problem->world; r++) {
        struct trace_rank *rank = &traces->rank[r];
        add_span(traces, &rank->trace);
        for (int64_t e = 0; e < rank->trace.count; e++)
            add_event(rank, &rank->trace.events[e]);
    }
}
