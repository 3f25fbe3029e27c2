/* The timeline of traces; see trace_json.h. */
#include "trace_json.h"

#include "trace_rates.h"

#define THREADS 32 /* numbers for them, of a multiprocessor */
#define CALLS_THREAD 0x100000

/* In the order in which they are shown. */
static int thread_of(const mmoe_trace_event *event) {
    static const int first[TRACE_ROLES] = {
        [MMOE_TRACE_CONSUMER] = 0, [MMOE_TRACE_LOADER] = 8,  [MMOE_TRACE_STORER] = 9,    [MMOE_TRACE_FETCHER] = 10,
        [MMOE_TRACE_FLIGHT] = 11,  [MMOE_TRACE_SUMMER] = 15, [MMOE_TRACE_FINISHER] = 18, [MMOE_TRACE_GROUPER] = 30,
    };
    return event->multiprocessor * THREADS + first[event->role] + event->number;
}

static void write_names(FILE *file, int rank, const mmoe_trace_event *event) {
    int thread = thread_of(event);
    fprintf(file,
            "{\"ph\": \"M\", \"pid\": %d, \"tid\": %d, \"name\": \"thread_name\", \"args\": {\"name\": \"SM %03d %s",
            rank, thread, event->multiprocessor, trace_role_name[event->role]);
    if (event->role != MMOE_TRACE_LOADER && event->role != MMOE_TRACE_STORER && event->role != MMOE_TRACE_FETCHER &&
        event->role != MMOE_TRACE_GROUPER)
        fprintf(file, " %d", event->number);
    fprintf(file,
            "\"}},\n{\"ph\": \"M\", \"pid\": %d, \"tid\": %d, \"name\": \"thread_sort_index\", "
            "\"args\": {\"sort_index\": %d}},\n",
            rank, thread, thread);
}

static void write_ranks(FILE *file, uint64_t ranks) {
    const char *separator = "";
    fprintf(file, "\"ranks\":[");
    for (int r = 0; r < MMOE_MAX_WORLD; r++)
        if (ranks >> r & 1) {
            fprintf(file, "%s%d", separator, r);
            separator = ",";
        }
    fputc(']', file);
}

/* Where an event was: the name of the first number of a kind, and of the second; NULL: it has none. */
struct place {
    const char *first, *second;
};

static struct place place_of(mmoe_trace_kind kind) {
    switch (kind) {
    case MMOE_TRACE_AWAIT_TOKENS:
    case MMOE_TRACE_AWAIT_PIECE:
    case MMOE_TRACE_SPREAD:
    case MMOE_TRACE_AWAIT_TASK:
    case MMOE_TRACE_AWAIT_RESULTS:
    case MMOE_TRACE_COPY_DW:
        return (struct place){NULL, NULL};
    case MMOE_TRACE_CLEAR_PADS:
        return (struct place){"block", NULL};
    case MMOE_TRACE_PULL:
        return (struct place){"token", "piece"};
    case MMOE_TRACE_SUM:
        return (struct place){"token", NULL};
    case MMOE_TRACE_LOAD_WGRAD:
    case MMOE_TRACE_MULTIPLY_WGRAD:
    case MMOE_TRACE_STAGE_WGRAD:
        return (struct place){"expert", "tile"};
    default:
        return (struct place){"block", "tile"};
    }
}

/* There are hundreds of thousands of them: no blanks, and nothing that is 0 but places. */
static void write_arguments(FILE *file, const mmoe_trace_event *event) {
    const struct place place = place_of(event->kind);
    const bool of_token = event->kind == MMOE_TRACE_PULL || event->kind == MMOE_TRACE_SUM;
    const struct {
        const char *name;
        int32_t value;
        bool shown;
    } numbers[] = {
        {place.first, of_token ? event->token : event->block, place.first != NULL},
        {place.second, event->tile, place.second != NULL},
        {"rows", event->rows, event->rows != 0},
        {"peer_rows", event->peer_rows, event->peer_rows != 0},
        {"bytes", event->bytes, event->bytes != 0},
    };
    const char *separator = "";
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (numbers[i].shown) {
            fprintf(file, "%s\"%s\":%d", separator, numbers[i].name, numbers[i].value);
            separator = ",";
        }
    if (event->waited_ns != 0) {
        fprintf(file, "%s\"waited_us\":%.3f", separator, (double)event->waited_ns * 1e-3);
        separator = ",";
    }
    if (event->ranks != 0) {
        fputs(separator, file);
        write_ranks(file, event->ranks);
    }
}

static void write_event(FILE *file, const struct traces *traces, int rank, const mmoe_trace_event *event) {
    fprintf(file,
            "{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"name\":\"%s\",\"cat\":\"%s\",\"args\":{",
            rank, thread_of(event), trace_us(traces, event->begin_ns), (double)(event->end_ns - event->begin_ns) * 1e-3,
            mmoe_trace_kind_name(event->kind), trace_role_name[event->role]);
    write_arguments(file, event);
    fprintf(file, "}},\n");
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

/* A thread of its own, which says when calls begin and end. */
static void write_calls(FILE *file, const struct traces *traces, int rank) {
    fprintf(
        file,
        "{\"ph\": \"M\", \"pid\": %d, \"tid\": %d, \"name\": \"thread_name\", \"args\": {\"name\": \"calls\"}},\n"
        "{\"ph\": \"M\", \"pid\": %d, \"tid\": %d, \"name\": \"thread_sort_index\", \"args\": {\"sort_index\": -1}},\n",
        rank, CALLS_THREAD, rank, CALLS_THREAD);
    for (int pass = 0; pass < TRACE_PASSES; pass++) {
        const mmoe_trace *trace = &traces->rank[rank].call[pass].trace;
        if (trace->count > 0)
            fprintf(file,
                    "{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"name\":\"%s\",\"cat\":\"call\","
                    "\"args\":{}},\n",
                    rank, CALLS_THREAD, trace_us(traces, trace->begin_ns), trace_length_us(trace),
                    trace_pass_name[pass]);
    }
}

static void write_rank(FILE *file, const struct traces *traces, int rank) {
    const mmoe_trace *trace = &traces->rank[rank].whole;
    fprintf(file, "{\"ph\": \"M\", \"pid\": %d, \"name\": \"process_name\", \"args\": {\"name\": \"rank %d\"}},\n",
            rank, rank);
    write_calls(file, traces, rank);
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
