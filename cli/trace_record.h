/* What the traces of all ranks add up to, as a JSON record. */
#ifndef CLI_TRACE_RECORD_H
#define CLI_TRACE_RECORD_H

#include "record.h"
#include "traces.h"

/* NULL: no memory. */
json_t *trace_record(const struct traces *traces);

#endif
