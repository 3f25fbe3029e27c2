/* Traces of all ranks; see traces.h. */
#include "traces.h"

#include <stdlib.h>
#include <string.h>

#include "message.h"

const char *const trace_role_name[TRACE_ROLES] = {
    [MMOE_TRACE_LOADER] = "loader",     [MMOE_TRACE_FETCHER] = "fetcher",   [MMOE_TRACE_FLIGHT] = "flight",
    [MMOE_TRACE_STORER] = "storer",     [MMOE_TRACE_CONSUMER] = "consumer", [MMOE_TRACE_SUMMER] = "summer",
    [MMOE_TRACE_FINISHER] = "finisher", [MMOE_TRACE_GROUPER] = "grouper",
};

const char *const trace_pass_name[TRACE_PASSES] = {[TRACE_FORWARD] = "forward", [TRACE_BACKWARD] = "backward"};

bool traces_have(const struct traces *traces, enum trace_pass pass) {
    const struct options *options = traces->problem->options;
    return pass == TRACE_FORWARD ? !options->backward : !options->forward;
}

/* ---- From all ranks ---- */

static int64_t events_of(const struct trace_rank *rank) {
    int64_t count = 0;
    for (int pass = 0; pass < TRACE_PASSES; pass++)
        count += rank->call[pass].trace.count;
    return count;
}

static int64_t most_events(const struct traces *traces) {
    int64_t most = 0;
    for (int r = 0; r < traces->problem->world; r++)
        if (events_of(&traces->rank[r]) > most)
            most = events_of(&traces->rank[r]);
    return most;
}

/* A rank's events lie call after call. */
static void copy_events(const struct trace_rank *mine, mmoe_trace_event *events) {
    for (int pass = 0; pass < TRACE_PASSES; pass++) {
        const mmoe_trace *trace = &mine->call[pass].trace;
        if (trace->count > 0)
            memcpy(events, trace->events, (size_t)trace->count * sizeof *events);
        events += trace->count;
    }
}

static void find_events(struct traces *traces) {
    for (int r = 0; r < traces->problem->world; r++) {
        const mmoe_trace_event *next = traces->events + r * traces->most_events;
        for (int pass = 0; pass < TRACE_PASSES; pass++) {
            mmoe_trace *trace = &traces->rank[r].call[pass].trace;
            trace->events = next;
            next += trace->count;
        }
    }
}

/* Every rank brings as many events as the one with the most. */
static int gather_events(struct rank *rank, const struct trace_rank *mine, struct traces *traces, int64_t most) {
    bool first = rank->index == 0;
    size_t bytes = (size_t)most * sizeof *traces->events;
    mmoe_trace_event *own = calloc((size_t)most + 1, sizeof *own);
    if (first)
        traces->events = malloc((size_t)rank->world * bytes + 1);
    if (!own || (first && !traces->events))
        rank_fail(rank, EXIT_RUN, "no memory for the events of a trace");
    else
        copy_events(mine, own);
    if (rank_all_well(rank) && !rank_gather(rank, own, bytes, first ? traces->events : NULL) && first) {
        traces->most_events = most;
        find_events(traces);
    }
    free(own);
    return rank->code;
}

int traces_gather(struct rank *rank, const struct trace_rank *mine, struct traces *traces) {
    struct traces all = {.problem = traces->problem};
    if (rank_gather(rank, mine, sizeof *mine, all.rank))
        return rank->code;
    const int64_t most = most_events(&all);
    if (rank->index == 0)
        memcpy(traces->rank, all.rank, sizeof all.rank);
    return gather_events(rank, mine, traces, most);
}

void traces_free(struct traces *traces) {
    free(traces->events);
}

static mmoe_trace_event *events_at(struct traces *traces, const mmoe_trace *trace) {
    return traces->events + (trace->events - traces->events);
}

static void move(struct traces *traces, mmoe_trace *trace, int64_t ns) {
    mmoe_trace_event *events = events_at(traces, trace);
    trace->begin_ns += ns;
    trace->end_ns += ns;
    for (int64_t e = 0; e < trace->count; e++) {
        events[e].begin_ns += ns;
        events[e].end_ns += ns;
    }
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

/* How far a rank's times may be moved. */
struct leeway {
    int64_t least, most;
};

/* By what one call says of it: from where rank 0's results reach the rank after they were pushed, to where its own
 * reach rank 0 so. */
static void narrow(struct leeway *leeway, const mmoe_trace *zero, const mmoe_trace *other, int rank) {
    const int64_t to_other = pushed_ns(zero, rank), at_other = results_ns(other);
    const int64_t to_zero = pushed_ns(other, 0), at_zero = results_ns(zero);
    if (to_other > INT64_MIN && at_other < INT64_MAX && to_other - at_other > leeway->least)
        leeway->least = to_other - at_other;
    if (to_zero > INT64_MIN && at_zero < INT64_MAX && at_zero - to_zero < leeway->most)
        leeway->most = at_zero - to_zero;
}

static int64_t shift_of(const struct traces *traces, int rank) {
    struct leeway leeway = {INT64_MIN, INT64_MAX};
    for (int pass = 0; pass < TRACE_PASSES; pass++)
        narrow(&leeway, &traces->rank[0].call[pass].trace, &traces->rank[rank].call[pass].trace, rank);
    if (leeway.least > leeway.most) /* times are not that exact */
        return leeway.least + (leeway.most - leeway.least) / 2;
    return leeway.least > 0 ? leeway.least : leeway.most < 0 ? leeway.most : 0;
}

void traces_align(struct traces *traces) {
    for (int r = 1; r < traces->problem->world; r++) {
        struct trace_rank *rank = &traces->rank[r];
        rank->shift_ns = shift_of(traces, r);
        for (int pass = 0; pass < TRACE_PASSES; pass++)
            move(traces, &rank->call[pass].trace, rank->shift_ns);
    }
}

/* ---- One time line ---- */

static void extend(struct traces *traces, const mmoe_trace *trace) {
    if (trace->count == 0)
        return;
    if (traces->end_ns == 0 || trace->begin_ns < traces->begin_ns)
        traces->begin_ns = trace->begin_ns;
    if (trace->end_ns > traces->end_ns)
        traces->end_ns = trace->end_ns;
}

/* From the first rank's begin to the last one's end. */
static void span_of(const struct traces *traces, enum trace_pass pass, int64_t *begin_ns, int64_t *end_ns) {
    struct traces span = {0};
    for (int r = 0; r < traces->problem->world; r++)
        extend(&span, &traces->rank[r].call[pass].trace);
    *begin_ns = span.begin_ns;
    *end_ns = span.end_ns;
}

/* A hundredth of both calls stays between them. */
static int64_t cut_of(const struct traces *traces) {
    int64_t begin[TRACE_PASSES], end[TRACE_PASSES], both = 0;
    for (int pass = 0; pass < TRACE_PASSES; pass++) {
        span_of(traces, (enum trace_pass)pass, &begin[pass], &end[pass]);
        both += end[pass] - begin[pass];
    }
    const int64_t cut = begin[TRACE_BACKWARD] - end[TRACE_FORWARD] - both / 100;
    return end[TRACE_FORWARD] > 0 && end[TRACE_BACKWARD] > 0 && cut > 0 ? cut : 0;
}

static int64_t place_of(const mmoe_trace_event *event) {
    return ((int64_t)event->multiprocessor * TRACE_ROLES + event->role) * 16 + event->number;
}

static int compare_events(const void *one, const void *other) {
    const mmoe_trace_event *a = one, *b = other;
    if (place_of(a) != place_of(b))
        return place_of(a) < place_of(b) ? -1 : 1;
    return (a->begin_ns > b->begin_ns) - (a->begin_ns < b->begin_ns);
}

static void join(struct traces *traces, struct trace_rank *rank) {
    const mmoe_trace *first = &rank->call[0].trace, *last = &rank->call[TRACE_PASSES - 1].trace;
    mmoe_trace *whole = &rank->whole;
    *whole = first->count > 0 ? *first : *last;
    whole->count = first->count + last->count;
    whole->lost = first->lost + last->lost;
    whole->end_ns = last->count > 0 ? last->end_ns : whole->end_ns;
    whole->multiprocessors = 0;
    qsort(events_at(traces, whole), (size_t)whole->count, sizeof *whole->events, compare_events);
    for (int pass = 0; pass < TRACE_PASSES; pass++)
        rank->call[pass].trace.events = NULL;
    for (int64_t e = 0; e < whole->count; e++)
        whole->multiprocessors += e == 0 || whole->events[e].multiprocessor != whole->events[e - 1].multiprocessor;
}

void traces_join(struct traces *traces) {
    traces->cut_ns = cut_of(traces);
    for (int r = 0; r < traces->problem->world; r++) {
        move(traces, &traces->rank[r].call[TRACE_BACKWARD].trace, -traces->cut_ns);
        join(traces, &traces->rank[r]);
        extend(traces, &traces->rank[r].whole);
    }
}
