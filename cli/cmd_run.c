/* megamoe run: one layer forward and backward, what it took on each rank, and checksums of what came out. */
#include <inttypes.h>

#include "commands.h"
#include "message.h"
#include "phases.h"
#include "record.h"
#include "save.h"
#include "share.h"
#include "table.h"

static const enum tensor outputs[] = {TENSOR_Y, TENSOR_DX, TENSOR_DW, TENSOR_DGATE, TENSOR_DUP, TENSOR_DDOWN};
#define OUTPUTS ((int)(sizeof outputs / sizeof outputs[0]))

/* What a rank tells. */
struct outcome {
    mmoe_report forward, backward;
    uint64_t checksums[OUTPUTS];
};

struct run {
    const struct problem *problem;
    struct outcome outcomes[MMOE_MAX_WORLD]; /* written by rank 0 */
};

static int output_count(const struct run *run) {
    return run->problem->options->forward ? 1 : OUTPUTS;
}

static void gather_outcomes(struct share *share, struct run *run) {
    struct outcome mine = {.forward = share->forward, .backward = share->backward};
    for (int o = 0; o < output_count(run); o++)
        mine.checksums[o] = share_checksum(share, outputs[o]);
    rank_gather(share->rank, &mine, sizeof mine, share->rank->index == 0 ? run->outcomes : NULL);
}

static void gather_results(struct share *share, struct run *run) {
    struct rank *rank = share->rank;
    const char *folder = run->problem->options->save;
    progress_label(rank_progress(rank), "checksums", 0);
    gather_outcomes(share, run);
    if (folder && rank_all_well(rank))
        save_tensors(share, folder);
}

static void run_rank(struct rank *rank, void *context) {
    struct run *run = context;
    struct share share;
    share_open(&share, run->problem, rank);
    if (share_both(&share))
        gather_results(&share, run);
    share_close(&share);
}

static uint64_t total_checksum(const struct run *run, int output) {
    uint64_t sum = 0;
    for (int r = 0; r < run->problem->world; r++)
        sum += run->outcomes[r].checksums[output];
    return sum;
}

static void collect(const struct run *run, mmoe_report *forward, mmoe_report *backward) {
    for (int r = 0; r < run->problem->world; r++) {
        forward[r] = run->outcomes[r].forward;
        backward[r] = run->outcomes[r].backward;
    }
}

static int print_text(const struct run *run) {
    mmoe_report forward[MMOE_MAX_WORLD], backward[MMOE_MAX_WORLD];
    int world = run->problem->world;
    collect(run, forward, backward);
    record_print_problem(run->problem, stdout);
    putchar('\n');
    phases_print(forward, world, "forward", stdout);
    if (!run->problem->options->forward) {
        putchar('\n');
        phases_print(backward, world, "backward", stdout);
    }
    puts("\nchecksums");
    for (int o = 0; o < output_count(run); o++)
        printf("%-4s %016" PRIx64 "\n", tensor_name(outputs[o]), total_checksum(run, o));
    return 0;
}

static int print_json(const struct run *run) {
    mmoe_report forward[MMOE_MAX_WORLD], backward[MMOE_MAX_WORLD];
    int world = run->problem->world;
    json_t *record = record_start(run->problem), *checksums = json_object();
    char text[20];
    collect(run, forward, backward);
    json_object_set_new(record, "forward", phases_record(forward, world));
    if (!run->problem->options->forward)
        json_object_set_new(record, "backward", phases_record(backward, world));
    for (int o = 0; o < output_count(run); o++) {
        snprintf(text, sizeof text, "%016" PRIx64, total_checksum(run, o));
        json_object_set_new(checksums, tensor_name(outputs[o]), json_string(text));
    }
    json_object_set_new(record, "checksums", checksums);
    return record_print(record);
}

int command_run(int argc, char **argv) {
    static const struct argp_option own[] = {
        {"forward", KEY_FORWARD, NULL, 0, "the forward alone", 0},
        {"save", KEY_SAVE, "FOLDER", 0, "write every tensor there as .npy, inputs too", 0},
        {0}};
    struct options options = {.command = "run"};
    struct problem problem;
    int code = problem_open(&problem, &options, own,
                            "One MoE layer, forward and backward, over the ranks: times of each phase, bytes moved, "
                            "and checksums of the results." EXIT_CODES_HELP,
                            argc, argv);
    if (code)
        return code;
    struct run run = {.problem = &problem};
    if (options.save)
        code = save_check(options.save);
    if (!code)
        code = ranks_run(&problem, run_rank, &run);
    if (!code && ranks_print(&problem))
        code = options.json ? print_json(&run) : print_text(&run);
    problem_close(&problem);
    return code;
}
