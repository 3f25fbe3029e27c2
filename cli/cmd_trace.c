/* megamoe trace: a forward on GPUs, recorded: a timeline as JSON and as a picture, and what was waited for. */
#include <stdlib.h>

#include "commands.h"
#include "message.h"
#include "output.h"
#include "table.h"
#include "trace_json.h"
#include "trace_record.h"
#include "trace_svg.h"

/* ---- Running ---- */

/* Untraced forwards, the first of which is that to compare with. */
static bool warm_up(struct share *share, struct trace_rank *mine) {
    struct rank *rank = share->rank;
    for (int64_t i = 0; i <= share->problem->options->warmup; i++) {
        if (!rank_all_well(rank))
            return false;
        share_forward(share);
        mine->untraced = share->forward;
    }
    share_fetch(share);
    mine->checksum_untraced = share_checksum(share, TENSOR_Y);
    share_forget_y(share);
    return rank_all_well(rank);
}

/* Collective. `mine` stays without a trace when a rank has failed. */
static void trace_forward(struct share *share, struct trace_rank *mine, mmoe_trace **trace) {
    progress_label(rank_progress(share->rank), "forward", 0);
    if (!warm_up(share, mine) || share_forward_traced(share, trace))
        return;
    mine->trace = **trace;
    mine->traced = share->forward;
    share_fetch(share);
    mine->checksum_traced = share_checksum(share, TENSOR_Y);
}

static void trace_rank(struct rank *rank, void *context) {
    struct traces *traces = context;
    struct trace_rank *mine = calloc(1, sizeof *mine);
    struct share share;
    mmoe_trace *trace = NULL;
    share_open(&share, traces->problem, rank);
    if (!mine)
        rank_fail(rank, EXIT_RUN, "no memory for what a rank tells");
    else
        trace_forward(&share, mine, &trace);
    if (rank_all_well(rank))
        traces_gather(rank, mine, traces);
    mmoe_trace_destroy(&trace);
    share_close(&share);
    free(mine);
}

/* ---- Telling ---- */

static void print_table(const struct traces *traces) {
    static const char *const headings[] = {"rank",   "kernel", "multiply", "stage", "sum", "stages",
                                           "room",   "tasks",  "results",  "rows",  "h",   "tokens",
                                           "pulled", "pushed", "lost",     NULL};
    struct table table;
    char text[24];
    table_start(&table, headings);
    for (int r = 0; r < traces->problem->world; r++) {
        const struct trace_rank *rank = &traces->rank[r];
        const double *consumer = rank->spent[MMOE_TRACE_CONSUMER], *waits = rank->waited[MMOE_TRACE_CONSUMER];
        const double stages = waits[MMOE_TRACE_MULTIPLY_GATE_UP] + waits[MMOE_TRACE_MULTIPLY_DOWN];
        const double room = waits[MMOE_TRACE_STAGE_GATE_UP] + waits[MMOE_TRACE_STAGE_DOWN];
        const double us[] = {
            (double)(rank->trace.end_ns - rank->trace.begin_ns) * 1e-3,
            consumer[MMOE_TRACE_MULTIPLY_GATE_UP] + consumer[MMOE_TRACE_MULTIPLY_DOWN] - stages,
            consumer[MMOE_TRACE_STAGE_GATE_UP] + consumer[MMOE_TRACE_STAGE_DOWN] - room,
            consumer[MMOE_TRACE_SUM],
            stages,
            room,
            consumer[MMOE_TRACE_AWAIT_TASK],
            consumer[MMOE_TRACE_AWAIT_RESULTS],
            rank->spent[MMOE_TRACE_LOADER][MMOE_TRACE_AWAIT_ROWS],
            rank->spent[MMOE_TRACE_LOADER][MMOE_TRACE_AWAIT_H],
            rank->spent[MMOE_TRACE_FETCHER][MMOE_TRACE_AWAIT_TOKENS],
        };
        table_cell(&table, "%d", r);
        for (size_t i = 0; i < sizeof us / sizeof us[0]; i++)
            table_cell(&table, "%.1f", us[i]);
        table_cell(&table, "%s", record_bytes_text((double)rank->bytes_pulled, text));
        table_cell(&table, "%s", record_bytes_text((double)rank->bytes_pushed, text));
        table_cell(&table, "%lld", (long long)rank->trace.lost);
    }
    table_print(&table, stdout);
}

static void print_text(const struct traces *traces, const char *json, const char *svg) {
    record_print_problem(traces->problem, stdout);
    puts("\nmicroseconds of a multiprocessor: its consumers' work and waits (for stages, room, tasks, results), and "
         "what\n"
         "its loader (rows, h) and fetcher (tokens) waited for meanwhile; bytes from and to peers");
    print_table(traces);
    printf("\ntimeline in '%s', for ui.perfetto.dev; picture in '%s'\n", json, svg);
}

static int report(struct traces *traces, const char *json, const char *svg) {
    traces_align(traces);
    traces_add_up(traces);
    json_t *record = trace_record(traces);
    if (!record)
        return complain_memory("the record");
    const struct trace_timeline timeline = {traces, record};
    int code = output_write(json, trace_write_json, &timeline);
    if (!code)
        code = output_write(svg, trace_write_svg, traces);
    if (!code && traces->problem->options->json)
        return record_print(record);
    if (!code)
        print_text(traces, json, svg);
    json_decref(record);
    return code;
}

/* Collective among processes: the files are rank 0's. */
static int run(const struct problem *problem, struct traces *traces) {
    const char *output = problem->options->output ? problem->options->output : "trace";
    char *json = output_name(output, ".json"), *svg = output_name(output, ".svg");
    int code = json && svg ? 0 : complain_memory("the names of the files");
    if (!code && ranks_print(problem))
        code = output_check(json);
    if (!code)
        code = ranks_run(problem, trace_rank, traces);
    if (!code && ranks_print(problem))
        code = report(traces, json, svg);
    free(json);
    free(svg);
    return code;
}

int command_trace(int argc, char **argv) {
    static const struct argp_option own[] = {
        {"output", KEY_OUTPUT, "NAME", 0, "write NAME.json and NAME.svg (default trace)", 0},
        {"records", KEY_RECORDS, "N", 0, "events of a warp that are kept (default 4096); more are counted as lost", 0},
        {"warmup", KEY_WARMUP, "N", 0, "how often to run before that (default 1)", 0},
        {0}};
    struct options options = {.command = "trace", .forward = true, .backend = "cuda"};
    struct problem problem;
    int code =
        problem_open(&problem, &options, own,
                     "A forward on GPUs, recorded: what each multiprocessor multiplied, pulled, pushed and waited "
                     "for, and when, as a timeline for ui.perfetto.dev and as an SVG picture." EXIT_CODES_HELP,
                     argc, argv);
    if (code)
        return code;
    struct traces *traces = calloc(1, sizeof *traces);
    if (!traces) {
        code = complain_memory("the traces");
    } else {
        traces->problem = &problem;
        code = run(&problem, traces);
        traces_free(traces);
    }
    free(traces);
    problem_close(&problem);
    return code;
}
