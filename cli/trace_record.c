/* The record of traces; see trace_record.h. */
#include "trace_record.h"

#include <inttypes.h>

#include "machine.h"
#include "phases.h"

static json_t *role_record(const double values[TRACE_KINDS]) {
    json_t *record = json_object();
    for (int kind = 0; kind < TRACE_KINDS; kind++)
        if (values[kind] > 0)
            json_object_set_new(record, mmoe_trace_kind_name((mmoe_trace_kind)kind), record_real(values[kind]));
    return record;
}

static json_t *roles_record(const double values[TRACE_ROLES][TRACE_KINDS]) {
    json_t *record = json_object();
    for (int role = 0; role < TRACE_ROLES; role++)
        json_object_set_new(record, trace_role_name[role], role_record(values[role]));
    return record;
}

static json_t *rank_record(const struct traces *traces, const struct trace_rank *rank) {
    const mmoe_trace *trace = &rank->trace;
    return json_pack("{s:i, s:f, s:i, s:I, s:I, s:f, s:f, s:I, s:I, s:o, s:o}", "rank", (int)trace->rank, "shift_us",
                     1e-3 * (double)rank->shift_ns, "multiprocessors", (int)trace->multiprocessors, "events",
                     (json_int_t)trace->count, "lost", (json_int_t)trace->lost, "begin_us",
                     trace_us(traces, trace->begin_ns), "end_us", trace_us(traces, trace->end_ns), "bytes_pulled",
                     (json_int_t)rank->bytes_pulled, "bytes_pushed", (json_int_t)rank->bytes_pushed, "spent_us",
                     roles_record(rank->spent), "waited_us", roles_record(rank->waited));
}

static json_t *reports_record(const struct traces *traces, bool traced) {
    mmoe_report reports[MMOE_MAX_WORLD];
    for (int r = 0; r < traces->problem->world; r++)
        reports[r] = traced ? traces->rank[r].traced : traces->rank[r].untraced;
    return phases_record(reports, traces->problem->world);
}

static json_t *checksum_record(const struct traces *traces, bool traced) {
    uint64_t sum = 0;
    char text[20];
    for (int r = 0; r < traces->problem->world; r++)
        sum += traced ? traces->rank[r].checksum_traced : traces->rank[r].checksum_untraced;
    snprintf(text, sizeof text, "%016" PRIx64, sum);
    return json_string(text);
}

json_t *trace_record(const struct traces *traces) {
    json_t *record = record_start(traces->problem), *ranks = json_array();
    char date[32];
    machine_date(date, sizeof date);
    for (int r = 0; r < traces->problem->world; r++)
        json_array_append_new(ranks, rank_record(traces, &traces->rank[r]));
    json_object_set_new(record, "date", json_string(date));
    json_object_set_new(record, "commit", json_string(machine_commit));
    json_object_set_new(record, "traces", ranks);
    for (int traced = 0; traced < 2; traced++) {
        json_object_set_new(record, traced ? "forward" : "untraced", reports_record(traces, traced));
        json_object_set_new(record, traced ? "y" : "untraced_y", checksum_record(traces, traced));
    }
    return record;
}
