/* What the events of traces add up to; see traces.h. */
#include "traces.h"

int64_t trace_pulled(const mmoe_trace_event *event, int rank) {
    bool own = event->ranks == (uint64_t)1 << rank;
    return event->kind == MMOE_TRACE_PULL && !own ? event->bytes : 0;
}

int64_t trace_pushed(const mmoe_trace_event *event) {
    bool pushes = event->kind == MMOE_TRACE_PUSH || event->kind == MMOE_TRACE_PUSH_DW;
    return pushes ? (int64_t)event->peer_rows * event->bytes : 0;
}

double trace_multiplying_us(const struct trace_call *call) {
    return trace_total(call->spent[MMOE_TRACE_CONSUMER], MMOE_TRACE_MULTIPLY_GATE_UP, MMOE_TRACE_MULTIPLY_WGRAD) -
           trace_total(call->waited[MMOE_TRACE_CONSUMER], MMOE_TRACE_MULTIPLY_GATE_UP, MMOE_TRACE_MULTIPLY_WGRAD);
}

/* Warps of a multiprocessor that tell of such events. */
static int tellers(const mmoe_trace_event *event) {
    switch (event->role) {
    case MMOE_TRACE_CONSUMER:
        return event->kind == MMOE_TRACE_SUM ? TRACE_CONSUMERS : TRACE_HALVES;
    case MMOE_TRACE_SUMMER:
        return TRACE_SUMMERS;
    case MMOE_TRACE_FINISHER:
        return TRACE_FINISHERS;
    default:
        return 1;
    }
}

static void add_event(struct trace_call *call, const mmoe_trace_event *event) {
    const double share = 1e-3 / tellers(event) / call->trace.multiprocessors;
    call->spent[event->role][event->kind] += share * (double)(event->end_ns - event->begin_ns);
    call->waited[event->role][event->kind] += share * (double)event->waited_ns;
    call->bytes_pulled += trace_pulled(event, call->trace.rank);
    call->bytes_pushed += trace_pushed(event);
}

void traces_add_up(struct traces *traces) {
    for (int r = 0; r < traces->problem->world; r++)
        for (int pass = 0; pass < TRACE_PASSES; pass++) {
            struct trace_call *call = &traces->rank[r].call[pass];
            for (int64_t e = 0; e < call->trace.count; e++)
                add_event(call, &call->trace.events[e]);
        }
}
