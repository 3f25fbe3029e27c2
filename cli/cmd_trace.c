/* megamoe trace: a forward and a backward on GPUs, recorded: a timeline as JSON and as a picture, and what was waited
 * for. */
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "message.h"
#include "output.h"
#include "table.h"
#include "trace_account.h"
#include "trace_json.h"
#include "trace_record.h"
#include "trace_svg.h"

/* ---- Running ---- */

/* Untraced calls, the last of which are those to compare with. */
static bool warm_up(struct share *share, struct trace_rank *mine) {
    struct rank *rank = share->rank;
    for (int64_t i = 0; i <= share->problem->options->warmup; i++) {
        if (!rank_all_well(rank))
            return false;
        share_forward(share);
        if (share->problem->options->forward)
            continue;
        if (!rank_all_well(rank))
            return false;
        share_backward(share);
    }
    mine->call[TRACE_FORWARD].untraced = share->forward;
    mine->call[TRACE_BACKWARD].untraced = share->backward;
    return rank_all_well(rank);
}

/* Collective. Right after untraced ones, so that the GPU is as busy as it gets. */
static bool trace_call(struct share *share, enum trace_pass pass, struct trace_rank *mine, mmoe_trace **trace) {
    struct trace_call *call = &mine->call[pass];
    progress_label(rank_progress(share->rank), trace_pass_name[pass], 0);
    if (!warm_up(share, mine) || share_swap_outputs(share))
        return false;
    if (pass == TRACE_FORWARD)
        share_forward_traced(share, trace);
    else
        share_backward_traced(share, trace);
    if (*trace)
        call->trace = **trace;
    call->traced = pass == TRACE_FORWARD ? share->forward : share->backward;
    share_swap_outputs(share);
    return rank_all_well(share->rank);
}

/* Of what the calls that were traced put out. */
static void take_checksums(struct share *share, const struct traces *traces, uint64_t sums[TENSORS]) {
    share_fetch(share);
    for (int t = INPUTS; t < TENSORS && !share->rank->code; t++)
        if (traces_have(traces, t == TENSOR_Y ? TRACE_FORWARD : TRACE_BACKWARD))
            sums[t] = share_checksum(share, (enum tensor)t);
}

static void compare_results(struct share *share, const struct traces *traces, struct trace_rank *mine) {
    progress_label(rank_progress(share->rank), "checksums", 0);
    take_checksums(share, traces, mine->untraced_sums);
    if (!share_swap_outputs(share))
        take_checksums(share, traces, mine->sums);
}

static void trace_rank(struct rank *rank, void *context) {
    struct traces *traces = context;
    struct trace_rank *mine = calloc(1, sizeof *mine);
    struct share share;
    mmoe_trace *trace[TRACE_PASSES] = {NULL};
    share_open(&share, traces->problem, rank);
    if (!mine)
        rank_fail(rank, EXIT_RUN, "no memory for what a rank tells");
    else
        for (int pass = 0; pass < TRACE_PASSES; pass++)
            if (traces_have(traces, (enum trace_pass)pass) &&
                !trace_call(&share, (enum trace_pass)pass, mine, &trace[pass]))
                break;
    if (rank_all_well(rank))
        compare_results(&share, traces, mine);
    if (rank_all_well(rank))
        traces_gather(rank, mine, traces);
    for (int pass = 0; pass < TRACE_PASSES; pass++)
        mmoe_trace_destroy(&trace[pass]);
    share_close(&share);
    free(mine);
}

/* ---- Telling ---- */

static void add_line(struct table *table, int rank, enum trace_pass pass, const struct trace_call *call) {
    double us[TRACE_ACCOUNTS];
    char text[24];
    trace_account_of(call, us);
    table_cell(table, "%d", rank);
    table_cell(table, "%s", trace_pass_name[pass]);
    for (int i = 0; i < TRACE_ACCOUNTS; i++)
        table_cell(table, "%.1f", us[i]);
    table_cell(table, "%s", record_bytes_text((double)call->bytes_pulled, text));
    table_cell(table, "%s", record_bytes_text((double)call->bytes_pushed, text));
    table_cell(table, "%lld", (long long)call->trace.lost);
}

static void print_table(const struct traces *traces) {
    enum { BEFORE = 2 };
    const char *headings[BEFORE + TRACE_ACCOUNTS + 4] = {"rank", "call"};
    struct table table;
    memcpy(headings + BEFORE, trace_account_name, sizeof trace_account_name);
    memcpy(headings + BEFORE + TRACE_ACCOUNTS, (const char *const[]){"pulled", "pushed", "lost", NULL},
           4 * sizeof *headings);
    table_start(&table, headings);
    for (int pass = 0; pass < TRACE_PASSES; pass++)
        for (int r = 0; r < traces->problem->world && traces_have(traces, (enum trace_pass)pass); r++)
            add_line(&table, r, (enum trace_pass)pass, &traces->rank[r].call[pass]);
    table_print(&table, stdout);
}

static void print_text(const struct traces *traces, const char *json, const char *svg) {
    record_print_problem(traces->problem, stdout);
    puts("\nmicroseconds of a multiprocessor: its consumers' work and waits (for stages, room, tasks, results, "
         "nothing), "
         "and what\n"
         "its loader (rows, inner) and fetcher (tokens) waited for meanwhile; bytes from and to peers");
    print_table(traces);
    printf("\ntimeline in '%s', for ui.perfetto.dev; picture in '%s'\n", json, svg);
}

static int report(struct traces *traces, const char *json, const char *svg) {
    traces_align(traces);
    traces_add_up(traces);
    traces_join(traces);
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
        {"only", KEY_ONLY, "forward|backward", 0, "the one alone (default: a whole layer)", 0},
        {"output", KEY_OUTPUT, "NAME", 0, "write NAME.json and NAME.svg (default trace)", 0},
        {"records", KEY_RECORDS, "N", 0, "events of a warp that are kept (default 4096); more are counted as lost", 0},
        {"rows", KEY_ROWS, "N", 0, "multiprocessors of each rank in the picture (default 64 of all ranks)", 0},
        {"warmup", KEY_WARMUP, "N", 0, "how often to run before each call (default 1)", 0},
        {0}};
    struct options options = {.command = "trace", .backend = "cuda"};
    struct problem problem;
    int code = problem_open(
        &problem, &options, own,
        "A forward and a backward on GPUs, recorded: what each multiprocessor multiplied, pulled, pushed "
        "and waited for, and when, as a timeline for ui.perfetto.dev and as an SVG picture." EXIT_CODES_HELP,
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
