/* Traces as JSON; see trace_json.h. */
#include "trace_json.h"

#include <inttypes.h>

#include "machine.h"
#include "phases.h"
#include "trace_rates.h"

/* ---- The record ---- */

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

/* ---- The timeline ---- */

/* Of a multiprocessor, in the order in which they are shown. */
static int thread_of(const mmoe_trace_event *event) {
    static const int first[TRACE_ROLES] = {
        [MMOE_TRACE_CONSUMER] = 0, [MMOE_TRACE_LOADER] = 8,  [MMOE_TRACE_STORER] = 9,
        [MMOE_TRACE_FETCHER] = 10, [MMOE_TRACE_FLIGHT] = 11,
    };
    return event->multiprocessor * 16 + first[event->role] + event->number;
}

static void write_names(FILE *file, int rank, const mmoe_trace_event *event) {
    int thread = thread_of(event);
    fprintf(file,
            "{\"ph\": \"M\", \"pid\": %d, \"tid\": %d, \"name\": \"thread_name\", \"args\": {\"name\": \"SM %03d %s",
            rank, thread, event->multiprocessor, trace_role_name[event->role]);
    if (event->role == MMOE_TRACE_CONSUMER || event->role == MMOE_TRACE_FLIGHT)
        fprintf(file, " %d", event->number);
    fprintf(file,
            "\"}},\n{\"ph\": \"M\", \"pid\": %d, \"tid\": %d, \"name\": \"thread_sort_index\", "
            "\"args\": {\"sort_index\": %d}},\n",
            rank, thread, thread);
}

static void write_ranks(FILE *file, uint64_t ranks) {
    const char *separator = "";
    fprintf(file, ", \"ranks\": [");
    for (int r = 0; r < MMOE_MAX_WORLD; r++)
        if (ranks >> r & 1) {
            fprintf(file, "%s%d", separator, r);
            separator = ", ";
        }
    fputc(']', file);
}

/* What the kind tells; what is 0 goes without saying, but for places. */
static void write_arguments(FILE *file, const mmoe_trace_event *event) {
    const struct {
        const char *name;
        int32_t value;
    } counts[] = {{"rows", event->rows}, {"peer_rows", event->peer_rows}, {"bytes", event->bytes}};
    const bool moves_token = event->kind == MMOE_TRACE_PULL || event->kind == MMOE_TRACE_SUM;
    fprintf(file, "{\"waited_us\": %.3f", (double)event->waited_ns * 1e-3);
    if (moves_token)
        fprintf(file, ", \"token\": %d", event->token);
    else
        fprintf(file, ", \"block\": %d", event->block);
    fprintf(file, ", \"tile\": %d", event->tile);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        if (counts[i].value != 0)
            fprintf(file, ", \"%s\": %d", counts[i].name, counts[i].value);
    if (event->ranks != 0)
        write_ranks(file, event->ranks);
    fputc('}', file);
}

static void write_event(FILE *file, const struct traces *traces, int rank, const mmoe_trace_event *event) {
    fprintf(
        file,
        "{\"ph\": \"X\", \"pid\": %d, \"tid\": %d, \"ts\": %.3f, \"dur\": %.3f, \"name\": \"%s\", \"cat\": \"%s\", ",
        rank, thread_of(event), trace_us(traces, event->begin_ns), (double)(event->end_ns - event->begin_ns) * 1e-3,
        mmoe_trace_kind_name(event->kind), trace_role_name[event->role]);
    fprintf(file, "\"args\": ");
    write_arguments(file, event);
    fprintf(file, "},\n");
}

static void write_rates(FILE *file, const struct traces *traces, int rank) {
    struct trace_rates rates;
    trace_rates_of(traces, rank, &rates);
    for (int i = 0; i < TRACE_STEPS; i++) {
        double ts = rates.step_us * i;
        fprintf(file,
                "{\"ph\": \"C\", \"pid\": %d, \"ts\": %.3f, \"name\": \"multiplying\", \"args\": {\"share\": %.4f}},\n",
                rank, ts, rates.multiplying[i]);
        fprintf(file,
                "{\"ph\": \"C\", \"pid\": %d, \"ts\": %.3f, \"name\": \"link, GB/s\", \"args\": {\"pulled\": %.3f, "
                "\"pushed\": %.3f}},\n",
                rank, ts, rates.pulled[i], rates.pushed[i]);
    }
}

static void write_rank(FILE *file, const struct traces *traces, int rank) {
    const mmoe_trace *trace = &traces->rank[rank].trace;
    fprintf(file, "{\"ph\": \"M\", \"pid\": %d, \"name\": \"process_name\", \"args\": {\"name\": \"rank %d\"}},\n",
            rank, rank);
    for (int64_t e = 0; e < trace->count; e++) {
        const mmoe_trace_event *event = &trace->events[e];
        if (e == 0 || thread_of(event) != thread_of(event - 1))
            write_names(file, rank, event);
        write_event(file, traces, rank, event);
    }
    write_rates(file, traces, rank);
}

void trace_write_json(FILE *file, const void *timeline) {
    const struct trace_timeline *from = timeline;
    int world = from->traces->problem->world;
    fprintf(file, "{\"displayTimeUnit\": \"ns\",\n\"traceEvents\": [\n");
    for (int r = 0; r < world; r++)
        write_rank(file, from->traces, r);
    fprintf(file, "{\"ph\": \"M\", \"pid\": 0, \"name\": \"process_sort_index\", \"args\": {\"sort_index\": 0}}],\n");
    fprintf(file, "\"otherData\": ");
    json_dumpf(from->record, file, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    fprintf(file, "}\n");
}
