/* A rank's trace over time: how much is multiplied, how much moves over the link. */
#ifndef CLI_TRACE_RATES_H
#define CLI_TRACE_RATES_H

#include "traces.h"

#define TRACE_STEPS 360

/* From the begin of all ranks to their end. */
struct trace_rates {
    double step_us;
    double multiplying[TRACE_STEPS];                 /* share of the multiprocessors, waits left out: 0 to 1 */
    double pulled[TRACE_STEPS], pushed[TRACE_STEPS]; /* GB/s, from and to peers */
};

void trace_rates_of(const struct traces *traces, int rank, struct trace_rates *rates);

/* The largest of pulled and pushed. */
double trace_highest_rate(const struct trace_rates *rates);

#endif
