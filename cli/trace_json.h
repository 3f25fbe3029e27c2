/* The timeline of traces, in the trace event format of Chrome, which Perfetto reads too. */
#ifndef CLI_TRACE_JSON_H
#define CLI_TRACE_JSON_H

#include <jansson.h>
#include <stdio.h>

#include "traces.h"

/* A process a rank, a thread a multiprocessor and role; the record as "otherData". */
struct trace_timeline {
    const struct traces *traces;
    const json_t *record;
};

/* `timeline` is a struct trace_timeline. */
void trace_write_json(FILE *file, const void *timeline);

#endif
