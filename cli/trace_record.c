/* The record of traces; see trace_record.h. */
#include "trace_record.h"

#include <inttypes.h>

#include "machine.h"
#include "phases.h"
#include "trace_account.h"

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

static json_t *account_record(const struct trace_call *call) {
    json_t *record = json_object();
    double us[TRACE_ACCOUNTS];
    trace_account_of(call, us);
    for (int i = 0; i < TRACE_ACCOUNTS; i++)
        json_object_set_new(record, trace_account_name[i], record_real(us[i]));
    return record;
}

static json_t *call_record(const struct traces *traces, const struct trace_call *call) {
    const mmoe_trace *trace = &call->trace;
    return json_pack("{s:i, s:I, s:I, s:f, s:f, s:I, s:I, s:o, s:o, s:o}", "multiprocessors",
                     (int)trace->multiprocessors, "events", (json_int_t)trace->count, "lost", (json_int_t)trace->lost,
                     "begin_us", trace_us(traces, trace->begin_ns), "end_us", trace_us(traces, trace->end_ns),
                     "bytes_pulled", (json_int_t)call->bytes_pulled, "bytes_pushed", (json_int_t)call->bytes_pushed,
                     "account_us", account_record(call), "spent_us", roles_record(call->spent), "waited_us",
                     roles_record(call->waited));
}

static json_t *rank_record(const struct traces *traces, int r) {
    const struct trace_rank *rank = &traces->rank[r];
    json_t *record = json_pack("{s:i, s:f}", "rank", r, "shift_us", 1e-3 * (double)rank->shift_ns);
    for (int pass = 0; pass < TRACE_PASSES; pass++)
        if (traces_have(traces, (enum trace_pass)pass))
            json_object_set_new(record, trace_pass_name[pass], call_record(traces, &rank->call[pass]));
    return record;
}

/* Of each call, those of all ranks. */
static void add_reports(json_t *record, const struct traces *traces, bool traced) {
    mmoe_report reports[MMOE_MAX_WORLD];
    for (int pass = 0; pass < TRACE_PASSES; pass++) {
        if (!traces_have(traces, (enum trace_pass)pass))
            continue;
        for (int r = 0; r < traces->problem->world; r++) {
            const struct trace_call *call = &traces->rank[r].call[pass];
            reports[r] = traced ? call->traced : call->untraced;
        }
        json_object_set_new(record, trace_pass_name[pass], phases_record(reports, traces->problem->world));
    }
}

static json_t *checksums_record(const struct traces *traces, bool traced) {
    json_t *record = json_object();
    char text[20];
    for (int t = INPUTS; t < TENSORS; t++) {
        uint64_t sum = 0;
        for (int r = 0; r < traces->problem->world; r++)
            sum += traced ? traces->rank[r].sums[t] : traces->rank[r].untraced_sums[t];
        snprintf(text, sizeof text, "%016" PRIx64, sum);
        if (traces_have(traces, t == TENSOR_Y ? TRACE_FORWARD : TRACE_BACKWARD))
            json_object_set_new(record, tensor_name((enum tensor)t), json_string(text));
    }
    return record;
}

/* What the calls before the traced ones took, and put out. */
static json_t *untraced_record(const struct traces *traces) {
    json_t *record = json_object();
    add_reports(record, traces, false);
    json_object_set_new(record, "checksums", checksums_record(traces, false));
    return record;
}

json_t *trace_record(const struct traces *traces) {
    json_t *record = record_start(traces->problem), *ranks = json_array();
    char date[32];
    machine_date(date, sizeof date);
    for (int r = 0; r < traces->problem->world; r++)
        json_array_append_new(ranks, rank_record(traces, r));
    json_object_set_new(record, "date", json_string(date));
    json_object_set_new(record, "commit", json_string(machine_commit));
    json_object_set_new(record, "cut_us", record_real(1e-3 * (double)traces->cut_ns));
    json_object_set_new(record, "traces", ranks);
    add_reports(record, traces, true);
    json_object_set_new(record, "checksums", checksums_record(traces, true));
    json_object_set_new(record, "untraced", untraced_record(traces));
    return record;
}
