/* megamoe bench: time of forward and backward, beside the same matrix products through OpenBLAS alone.
 *
 * One iteration is a forward, a backward and the products, so that whatever else the machine does meets all alike.
 * Each side runs twice in a row and the second time counts: the first finds caches as the other side left them, and its
 * threads may begin on one core.
 * A time is that of the slowest rank; medians are told. The products are measured in each way of sharing them over
 * threads, and the one with the faster median is the layer's measure. */
#include <cblas.h>
#include <stdlib.h>
#include <string.h>

#include "baseline.h"
#include "bench_chart.h"
#include "clock.h"
#include "commands.h"
#include "machine.h"
#include "message.h"
#include "output.h"
#include "phases.h"
#include "record.h"
#include "share.h"
#include "table.h"

/* What a rank tells after an iteration. */
struct timing {
    double forward, backward;
    mmoe_report forward_report, backward_report;
};

/* Places of an iteration's numbers: the layer's times, those of the products in each way, the phases of both calls. */
enum {
    FORWARD,
    BACKWARD,
    GEMM_FORWARD,
    GEMM_BACKWARD = GEMM_FORWARD + BASELINE_WAYS,
    FORWARD_PHASES = GEMM_BACKWARD + BASELINE_WAYS,
    BACKWARD_PHASES = FORWARD_PHASES + PHASES,
    NUMBERS = BACKWARD_PHASES + PHASES
};

struct bench {
    const struct problem *problem;
    double (*samples)[NUMBERS]; /* [iterations], written by rank 0, as all below */
    double median[NUMBERS];
    int64_t rows; /* of all experts */
    int threads;  /* of the products alone */
};

/* ---- Measuring ---- */

static void keep_larger(double *kept, double value) {
    if (value > *kept)
        *kept = value;
}

static void merge(const struct timing *timings, int world, double sample[NUMBERS]) {
    double seconds[PHASES];
    for (int r = 0; r < world; r++) {
        keep_larger(&sample[FORWARD], timings[r].forward);
        keep_larger(&sample[BACKWARD], timings[r].backward);
        phase_seconds(&timings[r].forward_report, seconds);
        for (int p = 0; p < PHASES; p++)
            keep_larger(&sample[FORWARD_PHASES + p], seconds[p]);
        phase_seconds(&timings[r].backward_report, seconds);
        for (int p = 0; p < PHASES; p++)
            keep_larger(&sample[BACKWARD_PHASES + p], seconds[p]);
    }
}

/* Collective. On rank 0 the numbers go to `sample`. */
static bool measure_layer(struct share *share, double sample[NUMBERS]) {
    struct timing mine = {0}, all[MMOE_MAX_WORLD];
    struct rank *rank = share->rank;
    double start = clock_now();
    share_forward(share);
    mine.forward = clock_now() - start;
    if (!rank_all_well(rank))
        return false;
    start = clock_now();
    share_backward(share);
    mine.backward = clock_now() - start;
    if (!rank_all_well(rank))
        return false;
    mine.forward_report = share->forward;
    mine.backward_report = share->backward;
    if (rank_gather(rank, &mine, sizeof mine, rank->index == 0 ? all : NULL))
        return false;
    if (rank->index == 0)
        merge(all, rank->world, sample);
    return true;
}

/* Collective: the rows of every expert, to rank 0's baseline. */
static bool open_baseline(struct share *share, struct bench *bench, struct baseline *baseline) {
    const struct problem *problem = bench->problem;
    struct rank *rank = share->rank;
    int32_t rows[MMOE_MAX_EXPERTS];
    const mmoe_plan *plan = mmoe_saved_plan(share->saved);
    size_t bytes = (size_t)problem_local_experts(problem) * sizeof rows[0];
    if (rank_gather(rank, plan->expert_rows, bytes, rank->index == 0 ? rows : NULL))
        return false;
    if (rank->index == 0) {
        for (int64_t e = 0; e < problem->layer.experts; e++)
            bench->rows += rows[e];
        if (baseline_open(baseline, problem->layer.hidden, problem->layer.intermediate, problem->layer.experts, rows,
                          problem->options->keep == MMOE_KEEP_PLAN, bench->threads))
            rank_fail(rank, EXIT_RUN, "no memory for the matrix products to compare with");
    }
    return rank_all_well(rank);
}

static void measure_products(const struct baseline *baseline, double sample[NUMBERS]) {
    for (enum baseline_way way = 0; way < BASELINE_WAYS; way++) {
        for (int again = 0; again < 2; again++) {
            sample[GEMM_FORWARD + way] = baseline_forward(baseline, way);
            sample[GEMM_BACKWARD + way] = baseline_backward(baseline, way);
        }
        baseline_rest();
    }
}

static void iterate(struct share *share, struct bench *bench) {
    const struct options *options = bench->problem->options;
    struct rank *rank = share->rank;
    bool first = rank->index == 0;
    struct baseline baseline = {0};
    double unused[NUMBERS] = {0};
    if (rank_all_well(rank) && measure_layer(share, unused) && open_baseline(share, bench, &baseline)) {
        if (first)
            progress_label(rank_progress(rank), "benchmark", options->warmup + options->iterations);
        for (int64_t i = -options->warmup; i < options->iterations; i++) {
            double *sample = i < 0 || !first ? unused : bench->samples[i];
            if (!measure_layer(share, unused) || !measure_layer(share, sample))
                break;
            if (first) {
                measure_products(&baseline, sample);
                progress_step(rank_progress(rank));
            }
            if (!rank_all_well(rank)) /* the others rest meanwhile */
                break;
        }
    }
    if (first)
        baseline_close(&baseline);
}

static void bench_rank(struct rank *rank, void *context) {
    struct bench *bench = context;
    struct share share;
    share_open(&share, bench->problem, rank);
    iterate(&share, bench);
    share_close(&share);
}

/* ---- Telling ---- */

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int take_medians(struct bench *bench) {
    int64_t n = bench->problem->options->iterations;
    double *values = malloc((size_t)n * sizeof *values);
    if (!values)
        return complain_memory("the medians");
    for (int k = 0; k < NUMBERS; k++) {
        for (int64_t i = 0; i < n; i++)
            values[i] = bench->samples[i][k];
        qsort(values, (size_t)n, sizeof *values, compare_doubles);
        bench->median[k] = (values[(n - 1) / 2] + values[n / 2]) / 2;
    }
    free(values);
    return 0;
}

/* Which way the products of a direction are faster. */
static enum baseline_way faster_way(const struct bench *bench, int direction) {
    const double *median = bench->median + direction;
    return median[BASELINE_EACH] < median[BASELINE_SPLIT] ? BASELINE_EACH : BASELINE_SPLIT;
}

/* Seconds of the layer and of its products, both directions summed where both are asked for. */
struct compared {
    double layer, products;
};

static struct compared compare(const struct bench *bench, bool forward, bool backward) {
    const double *median = bench->median;
    struct compared sum = {0};
    if (forward) {
        sum.layer += median[FORWARD];
        sum.products += median[GEMM_FORWARD + faster_way(bench, GEMM_FORWARD)];
    }
    if (backward) {
        sum.layer += median[BACKWARD];
        sum.products += median[GEMM_BACKWARD + faster_way(bench, GEMM_BACKWARD)];
    }
    return sum;
}

static json_t *ratio_record(const struct bench *bench, bool forward, bool backward) {
    struct compared compared = compare(bench, forward, backward);
    return record_real(compared.layer / compared.products);
}

static json_t *samples_record(const struct bench *bench, int number) {
    json_t *all = json_array();
    for (int64_t i = 0; i < bench->problem->options->iterations; i++)
        json_array_append_new(all, record_real(bench->samples[i][number]));
    return json_pack("{s:o, s:o}", "seconds", record_real(bench->median[number]), "samples", all);
}

static json_t *call_record(const struct bench *bench, int number, int phases) {
    json_t *record = samples_record(bench, number), *seconds = json_object();
    for (int p = 0; p < PHASES; p++)
        json_object_set_new(seconds, phase_name[p], record_real(bench->median[phases + p]));
    json_object_set_new(record, "phases", seconds);
    return record;
}

/* The faster way's times; how it shared the work; and the median of each way, to show what the choice is worth. */
static json_t *products_record(const struct bench *bench, int direction) {
    static const char *const names[BASELINE_WAYS] = {[BASELINE_SPLIT] = "split", [BASELINE_EACH] = "each"};
    enum baseline_way faster = faster_way(bench, direction);
    json_t *record = samples_record(bench, direction + (int)faster), *ways = json_object();
    for (int way = 0; way < BASELINE_WAYS; way++)
        json_object_set_new(ways, names[way], record_real(bench->median[direction + way]));
    json_object_set_new(record, "way", json_string(names[faster]));
    json_object_set_new(record, "ways", ways);
    return record;
}

static json_t *machine_record(void) {
    char cpu[128];
    machine_cpu(cpu, sizeof cpu);
    return json_pack("{s:s, s:i, s:s}", "cpu", cpu, "cores", machine_cores(), "openblas", openblas_get_config());
}

static json_t *make_record(const struct bench *bench) {
    const struct options *options = bench->problem->options;
    json_t *record = record_start(bench->problem);
    char date[32];
    machine_date(date, sizeof date);
    json_object_set_new(record, "date", json_string(date));
    json_object_set_new(record, "commit", json_string(machine_commit));
    json_object_set_new(record, "machine", machine_record());
    json_object_set_new(record, "iterations", json_integer((json_int_t)options->iterations));
    json_object_set_new(record, "warmup", json_integer((json_int_t)options->warmup));
    json_object_set_new(record, "rows", json_integer((json_int_t)bench->rows));
    json_object_set_new(record, "forward", call_record(bench, FORWARD, FORWARD_PHASES));
    json_object_set_new(record, "backward", call_record(bench, BACKWARD, BACKWARD_PHASES));
    json_object_set_new(record, "gemm",
                        json_pack("{s:o, s:o, s:i}", "forward", products_record(bench, GEMM_FORWARD), "backward",
                                  products_record(bench, GEMM_BACKWARD), "threads", bench->threads));
    json_object_set_new(record, "ratio",
                        json_pack("{s:o, s:o, s:o}", "forward", ratio_record(bench, true, false), "backward",
                                  ratio_record(bench, false, true), "both", ratio_record(bench, true, true)));
    return record;
}

static void print_times(const struct bench *bench) {
    static const char *const headings[] = {"milliseconds", "layer", "products alone", "ratio", NULL};
    static const char *const lines[] = {"forward", "backward", "both"};
    struct table table;
    table_start(&table, headings);
    for (int line = 0; line < 3; line++) {
        struct compared compared = compare(bench, line != 1, line != 0);
        table_cell(&table, "%s", lines[line]);
        table_cell(&table, "%.3f", 1e3 * compared.layer);
        table_cell(&table, "%.3f", 1e3 * compared.products);
        table_cell(&table, "%.2f", compared.layer / compared.products);
    }
    table_print(&table, stdout);
}

static void print_phases(const struct bench *bench) {
    static const char *const headings[] = {"milliseconds", "forward", "backward", NULL};
    struct table table;
    table_start(&table, headings);
    for (int p = 0; p < PHASES; p++) {
        table_cell(&table, "%s", phase_name[p]);
        table_cell(&table, "%.3f", 1e3 * bench->median[FORWARD_PHASES + p]);
        table_cell(&table, "%.3f", 1e3 * bench->median[BACKWARD_PHASES + p]);
    }
    table_print(&table, stdout);
}

static void print_text(const struct bench *bench) {
    char cpu[128];
    machine_cpu(cpu, sizeof cpu);
    record_print_problem(bench->problem, stdout);
    printf("on     %s, %d cores; medians of %lld iterations, %lld rows\n\n", cpu, machine_cores(),
           (long long)bench->problem->options->iterations, (long long)bench->rows);
    print_times(bench);
    putchar('\n');
    print_phases(bench);
}

static int report(struct bench *bench) {
    const struct options *options = bench->problem->options;
    int code = take_medians(bench);
    if (code)
        return code;
    json_t *record = make_record(bench);
    if (!record)
        return complain_memory("the record");
    if (options->output)
        code = record_write(record, options->output);
    if (!code && options->json)
        return record_print(record);
    if (!code)
        print_text(bench);
    json_decref(record);
    return code;
}

/* All cores for the products, unless the layer was told to use fewer. */
static int baseline_threads(const struct problem *problem) {
    int64_t layer = problem->options->threads * problem->world, threads = machine_cores();
    if (layer > 0 && layer < threads)
        threads = layer;
    return (int)(threads < BASELINE_MAX_THREADS ? threads : BASELINE_MAX_THREADS);
}

static int measure(const struct problem *problem) {
    const struct options *options = problem->options;
    struct bench bench = {.problem = problem, .threads = baseline_threads(problem)};
    int code = options->output ? output_check(options->output) : 0;
    bench.samples = calloc((size_t)options->iterations, sizeof *bench.samples);
    if (!bench.samples)
        code = complain_memory("the samples");
    if (!code)
        code = ranks_run(problem, bench_rank, &bench);
    if (!code && ranks_print(problem))
        code = report(&bench);
    free(bench.samples);
    return code;
}

int command_bench(int argc, char **argv) {
    static const struct argp_option own[] = {
        {"iterations", KEY_ITERATIONS, "N", 0, "how often to measure (default 5)", 0},
        {"warmup", KEY_WARMUP, "N", 0, "how often to run before that (default 1)", 0},
        {"output", KEY_OUTPUT, "FILE", 0, "write the JSON record to FILE too; with --draw, the picture", 0},
        {"draw", KEY_DRAW, "FILE", 0,
         "measure nothing: draw the record in FILE, of this command or of a GPU's benchmark, as an SVG picture beside "
         "it",
         0},
        {0}};
    struct options options = {.command = "bench"};
    struct problem problem;
    int code = problem_open(&problem, &options, own,
                            "Time of an MoE layer's forward and backward, beside that of the same matrix products "
                            "through OpenBLAS alone in the same run." EXIT_CODES_HELP,
                            argc, argv);
    if (code)
        return code;
    code = options.draw ? bench_draw(options.draw, options.output) : measure(&problem);
    problem_close(&problem);
    return code;
}
