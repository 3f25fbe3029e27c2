/* megamoe info: what was built and found here, the size of every buffer, and the plan of a routing. No layer runs. */
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "machine.h"
#include "message.h"
#include "ranks.h"
#include "record.h"
#include "table.h"

struct info {
    const struct problem *problem;
    mmoe_plan *plans[MMOE_MAX_WORLD];
    mmoe_sizes sizes, worst; /* of the rank with most rows; of a rank that gets every slot there can be */
    int busiest;
};

/* ---- Finding out ---- */

static int make_plans(struct info *info) {
    const struct problem *problem = info->problem;
    int64_t tokens = problem->first[problem->world], top_k = problem->layer.top_k;
    mmoe_tensor ids[MMOE_MAX_WORLD];
    int64_t *all = malloc((size_t)(tokens * top_k) * sizeof *all + 1);
    if (!all)
        return complain_memory("the ids");
    problem_fill(problem, TENSOR_IDS, 0, tokens, all);
    for (int r = 0; r < problem->world; r++)
        ids[r] = mmoe_matrix(all + problem->first[r] * top_k, MMOE_I64, problem->tokens[r], top_k);
    int code = 0;
    for (int r = 0; r < problem->world && !code; r++)
        if (mmoe_plan_create(&problem->layer, r, problem->world, ids, &info->plans[r]) != MMOE_OK)
            code = complain(EXIT_INPUT, "%s", mmoe_last_error());
    free(all);
    return code;
}

static int find_sizes(struct info *info) {
    const struct problem *problem = info->problem;
    mmoe_group_config group = ranks_group_config(problem);
    for (int r = 1; r < problem->world; r++)
        if (info->plans[r]->rows > info->plans[info->busiest]->rows)
            info->busiest = r;
    int64_t tokens = problem->tokens[info->busiest];
    if (mmoe_sizes_of(&group, &problem->layer, problem->world, tokens, info->plans[info->busiest]->rows,
                      problem->options->keep, &info->sizes) != MMOE_OK ||
        mmoe_sizes_of(&group, &problem->layer, problem->world, group.max_tokens, -1, problem->options->keep,
                      &info->worst) != MMOE_OK)
        return complain(EXIT_INPUT, "%s", mmoe_last_error());
    return 0;
}

/* The most loaded rank's rows over the mean; 1 is balanced. */
static double imbalance(const struct info *info) {
    const int64_t *demand = info->plans[0]->demand;
    int64_t most = 0, sum = 0;
    for (int r = 0; r < info->problem->world; r++) {
        most = demand[r] > most ? demand[r] : most;
        sum += demand[r];
    }
    return sum ? (double)most * info->problem->world / (double)sum : 1;
}

/* Slots of all ranks for each expert. */
static void expert_counts(const struct info *info, int64_t counts[MMOE_MAX_EXPERTS]) {
    const mmoe_plan *plan = info->plans[0];
    for (int e = 0; e < plan->experts; e++) {
        counts[e] = 0;
        for (int r = 0; r < plan->world; r++)
            counts[e] += plan->counts[r * plan->experts + e];
    }
}

/* ---- Sizes, in the header's order ---- */

static const struct {
    const char *name, *part;
    size_t offset;
} buffers[] = {
#define BUFFER(part, name)                                                                                             \
    { #name, part, offsetof(mmoe_sizes, name) }
    BUFFER("symmetric", x_slot),   BUFFER("symmetric", dy_slot),
    BUFFER("symmetric", routing),  BUFFER("symmetric", combine_slots),
    BUFFER("symmetric", dw_slots), BUFFER("symmetric", flags),
    BUFFER("symmetric", segment),  BUFFER("scratch", rows_x),
    BUFFER("scratch", rows_dy),    BUFFER("scratch", rows_gate_up),
    BUFFER("scratch", rows_h),     BUFFER("scratch", rows_dgrad),
    BUFFER("scratch", rows_dw),    BUFFER("scratch", thread_buffers),
    BUFFER("scratch", scratch),    BUFFER("saved", plan),
    BUFFER("saved", kept_x),       BUFFER("saved", kept_gate_up),
    BUFFER("saved", saved),
#undef BUFFER
};
#define BUFFERS ((int)(sizeof buffers / sizeof buffers[0]))

static size_t buffer_bytes(const mmoe_sizes *sizes, int buffer) {
    size_t bytes;
    memcpy(&bytes, (const char *)sizes + buffers[buffer].offset, sizeof bytes);
    return bytes;
}

static void print_sizes(const struct info *info) {
    static const char *const headings[] = {"buffer", "of", "bytes", "", "worst case", "", NULL};
    struct table table;
    char text[24];
    printf("buffers of rank %d, for its %lld rows, and of a rank that receives every slot there can be\n",
           info->busiest, (long long)info->plans[info->busiest]->rows);
    table_start(&table, headings);
    for (int b = 0; b < BUFFERS; b++) {
        size_t exact = buffer_bytes(&info->sizes, b), worst = buffer_bytes(&info->worst, b);
        table_cell(&table, "%s", buffers[b].name);
        table_cell(&table, "%s", buffers[b].part);
        table_cell(&table, "%zu", exact);
        table_cell(&table, "%s", record_bytes_text((double)exact, text));
        table_cell(&table, "%zu", worst);
        table_cell(&table, "%s", record_bytes_text((double)worst, text));
    }
    table_print(&table, stdout);
}

static json_t *sizes_record(const mmoe_sizes *sizes) {
    json_t *record = json_object();
    for (int b = 0; b < BUFFERS; b++)
        json_object_set_new(record, buffers[b].name, json_integer((json_int_t)buffer_bytes(sizes, b)));
    return record;
}

/* ---- Backends and presets ---- */

static void print_backends(void) {
    for (int b = 0; b < mmoe_backend_count(); b++) {
        int present = 0;
        const char *detail = NULL, *name = mmoe_backend(b, &present, &detail);
        printf("%-8s %s: %s\n", name, present ? "found" : "absent", detail);
        for (int d = 0; mmoe_backend_device(b, d); d++)
            printf("%-8s %s\n", "", mmoe_backend_device(b, d));
    }
}

static json_t *backends_record(void) {
    json_t *array = json_array();
    for (int b = 0; b < mmoe_backend_count(); b++) {
        int present = 0;
        const char *detail = NULL, *name = mmoe_backend(b, &present, &detail);
        json_t *devices = json_array();
        for (int d = 0; mmoe_backend_device(b, d); d++)
            json_array_append_new(devices, json_string(mmoe_backend_device(b, d)));
        json_array_append_new(array, json_pack("{s:s, s:b, s:s, s:o}", "name", name, "present", present, "detail",
                                               detail, "devices", devices));
    }
    return array;
}

static void print_presets(void) {
    static const char *const headings[] = {"preset", "hidden", "intermediate", "experts", "top-k", "", NULL};
    struct table table;
    table_start(&table, headings);
    for (const struct preset *preset = presets; preset->name; preset++) {
        table_cell(&table, "%s", preset->name);
        table_cell(&table, "%lld", (long long)preset->hidden);
        table_cell(&table, "%lld", (long long)preset->intermediate);
        table_cell(&table, "%lld", (long long)preset->experts);
        table_cell(&table, "%lld", (long long)preset->top_k);
        table_cell(&table, "%s", preset->note);
    }
    table_print(&table, stdout);
}

static json_t *presets_record(void) {
    json_t *array = json_array();
    for (const struct preset *preset = presets; preset->name; preset++)
        json_array_append_new(array,
                              json_pack("{s:s, s:I, s:I, s:I, s:I, s:f, s:s}", "name", preset->name, "hidden",
                                        (json_int_t)preset->hidden, "intermediate", (json_int_t)preset->intermediate,
                                        "experts", (json_int_t)preset->experts, "top_k", (json_int_t)preset->top_k,
                                        "limit", preset->limit, "note", preset->note));
    return array;
}

/* ---- The plan ---- */

static void print_plan(const struct info *info) {
    static const char *const headings[] = {"rank", "tokens", "rows in", "padded", "pads", "dropped", "slots out", NULL};
    const struct problem *problem = info->problem;
    int64_t counts[MMOE_MAX_EXPERTS];
    struct table table;
    printf("plan, the busiest rank has %.2f times the mean rows\n", imbalance(info));
    table_start(&table, headings);
    for (int r = 0; r < problem->world; r++) {
        const mmoe_plan *plan = info->plans[r];
        table_cell(&table, "%d", r);
        table_cell(&table, "%lld", (long long)problem->tokens[r]);
        table_cell(&table, "%lld", (long long)plan->rows);
        table_cell(&table, "%lld", (long long)plan->padded_rows);
        table_cell(&table, "%lld", (long long)(plan->padded_rows - plan->rows));
        table_cell(&table, "%lld", (long long)plan->dropped[r]);
        table_cell(&table, "%lld", (long long)plan->slots);
    }
    table_print(&table, stdout);
    expert_counts(info, counts);
    puts("\nslots of each expert");
    for (int64_t e = 0; e < problem->layer.experts; e++) {
        if (e % 16 == 0)
            printf("%s%4lld:", e ? "\n" : "", (long long)e);
        printf(" %6lld", (long long)counts[e]);
    }
    putchar('\n');
}

static json_t *plan_record(const struct info *info) {
    const struct problem *problem = info->problem;
    int64_t counts[MMOE_MAX_EXPERTS];
    json_t *ranks = json_array();
    for (int r = 0; r < problem->world; r++) {
        const mmoe_plan *plan = info->plans[r];
        json_array_append_new(ranks,
                              json_pack("{s:I, s:I, s:I, s:I, s:I}", "demand", (json_int_t)plan->demand[r], "rows",
                                        (json_int_t)plan->rows, "padded_rows", (json_int_t)plan->padded_rows, "dropped",
                                        (json_int_t)plan->dropped[r], "slots", (json_int_t)plan->slots));
    }
    expert_counts(info, counts);
    return json_pack("{s:f, s:o, s:o}", "imbalance", imbalance(info), "expert_slots",
                     record_integers(counts, problem->layer.experts), "ranks", ranks);
}

/* ---- Telling ---- */

static int print_text(const struct info *info) {
    printf("megamoe %s, commit %s\n\nbackends\n", mmoe_version(), machine_commit);
    print_backends();
    putchar('\n');
    print_presets();
    putchar('\n');
    record_print_problem(info->problem, stdout);
    putchar('\n');
    print_sizes(info);
    putchar('\n');
    print_plan(info);
    return 0;
}

static int print_json(const struct info *info) {
    json_t *record = record_start(info->problem);
    json_object_set_new(record, "commit", json_string(machine_commit));
    json_object_set_new(record, "backends", backends_record());
    json_object_set_new(record, "presets", presets_record());
    json_object_set_new(record, "sizes", sizes_record(&info->sizes));
    json_object_set_new(record, "worst_sizes", sizes_record(&info->worst));
    json_object_set_new(record, "plan", plan_record(info));
    return record_print(record);
}

int command_info(int argc, char **argv) {
    struct options options = {.command = "info"};
    struct problem problem;
    int code = problem_open(&problem, &options, NULL,
                            "The version, the backends and devices found here, the presets; and for a layer the size "
                            "of every buffer and the plan of a routing." EXIT_CODES_HELP,
                            argc, argv);
    if (code)
        return code;
    struct info info = {.problem = &problem};
    code = make_plans(&info);
    if (!code)
        code = find_sizes(&info);
    if (!code && ranks_print(&problem))
        code = options.json ? print_json(&info) : print_text(&info);
    for (int r = 0; r < problem.world; r++)
        mmoe_plan_destroy(&info.plans[r]);
    problem_close(&problem);
    return code;
}
