/* What a multiprocessor's time went to in a call, on average: docs/trace.md explains each. */
#ifndef CLI_TRACE_ACCOUNT_H
#define CLI_TRACE_ACCOUNT_H

#include "traces.h"

enum trace_account {
    TRACE_ACCOUNT_KERNELS,  /* from the first event to the last */
    TRACE_ACCOUNT_MULTIPLY, /* consumers and finishers at work */
    TRACE_ACCOUNT_STAGE,
    TRACE_ACCOUNT_SUM,
    TRACE_ACCOUNT_STAGES, /* and waiting */
    TRACE_ACCOUNT_ROOM,
    TRACE_ACCOUNT_TASKS,
    TRACE_ACCOUNT_RESULTS,
    TRACE_ACCOUNT_NOTHING,
    TRACE_ACCOUNT_ROWS, /* what the loader and the fetcher waited for meanwhile */
    TRACE_ACCOUNT_INNER,
    TRACE_ACCOUNT_TOKENS,
    TRACE_ACCOUNTS
};

/* "kernels" and so on. */
extern const char *const trace_account_name[TRACE_ACCOUNTS];

/* Microseconds, after traces_add_up. */
void trace_account_of(const struct trace_call *call, double us[TRACE_ACCOUNTS]);

#endif
