/* Traces as JSON: a record of what they add up to, and the timeline in the trace event format of Chrome, which Perfetto
 * reads too. */
#ifndef CLI_TRACE_JSON_H
#define CLI_TRACE_JSON_H

#include "record.h"
#include "traces.h"

/* NULL: no memory. */
json_t *trace_record(const struct traces *traces);

/* A process a rank, a thread a multiprocessor and role; the record as "otherData". */
struct trace_timeline {
    const struct traces *traces;
    const json_t *record;
};
void trace_write_json(FILE *file, const void *timeline);

#endif
