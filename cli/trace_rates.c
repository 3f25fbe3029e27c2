/* Traces over time; see trace_rates.h. What happened in an event is spread evenly over it. */
#include "trace_rates.h"

static void spread(const struct traces *traces, double step_ns, const mmoe_trace_event *event, double amount,
                   double steps[TRACE_STEPS]) {
    double begin = (double)(event->begin_ns - traces->begin_ns) / step_ns;
    double end = (double)(event->end_ns - traces->begin_ns) / step_ns;
    double length = end > begin ? end - begin : 0;
    for (int i = (int)begin; i < TRACE_STEPS && (i < end || i == (int)begin); i++) {
        double from = begin > i ? begin : i, to = end < i + 1 ? end : i + 1;
        steps[i] += length > 0 ? amount * (to - from) / length : amount;
    }
}

void trace_rates_of(const struct traces *traces, int rank, struct trace_rates *rates) {
    const mmoe_trace *trace = &traces->rank[rank].whole;
    double span_ns = (double)(traces->end_ns - traces->begin_ns), step_ns = span_ns / TRACE_STEPS;
    *rates = (struct trace_rates){.step_us = step_ns * 1e-3};
    if (span_ns <= 0)
        return;
    double all_ns = step_ns * trace->multiprocessors * TRACE_HALVES;
    for (int64_t e = 0; e < trace->count; e++) {
        const mmoe_trace_event *event = &trace->events[e];
        if (trace_multiplies(event)) {
            double busy_ns = (double)(event->end_ns - event->begin_ns - event->waited_ns);
            spread(traces, step_ns, event, busy_ns / all_ns, rates->multiplying);
        }
        if (trace_pulled(event, rank) > 0)
            spread(traces, step_ns, event, (double)trace_pulled(event, rank) / step_ns, rates->pulled);
        if (trace_pushed(event) > 0)
            spread(traces, step_ns, event, (double)trace_pushed(event) / step_ns, rates->pushed);
    }
}

double trace_highest_rate(const struct trace_rates *rates) {
    double highest = 0;
    for (int i = 0; i < TRACE_STEPS; i++) {
        highest = rates->pulled[i] > highest ? rates->pulled[i] : highest;
        highest = rates->pushed[i] > highest ? rates->pushed[i] : highest;
    }
    return highest;
}
