/* megamoe check: the layer against the float64 oracle.
 *
 * Every rank checks what it has: y, dx and dw of its tokens, and the weight gradients of its experts. Squared errors
 * and norms add up over ranks to one relative error a tensor. */
#include <inttypes.h>
#include <math.h>

#include "commands.h"
#include "message.h"
#include "record.h"
#include "share.h"
#include "verify.h"

struct check {
    const struct problem *problem;
    struct verify_sums sums[MMOE_MAX_WORLD]; /* written by rank 0 */
};

static void verify(struct share *share, struct check *check) {
    struct rank *rank = share->rank;
    struct verify_sums mine = {0};
    if (rank->index == 0 || check->problem->rank >= 0)
        progress_label(rank_progress(rank), "the oracle", verify_steps(check->problem));
    verify_share(share, &mine);
    if (rank_all_well(rank))
        rank_gather(rank, &mine, sizeof mine, rank->index == 0 ? check->sums : NULL);
}

static void check_rank(struct rank *rank, void *context) {
    struct check *check = context;
    struct share share;
    share_open(&share, check->problem, rank);
    if (share_both(&share))
        verify(&share, check);
    share_close(&share);
}

static double total_error(const struct check *check, int tensor) {
    double error = 0, norm = 0;
    for (int r = 0; r < check->problem->world; r++) {
        error += check->sums[r].error[tensor];
        norm += check->sums[r].norm[tensor];
    }
    return error == 0 ? 0 : sqrt(error / norm);
}

/* Prints in either form; returns whether every error is within the bound. */
static int report(const struct check *check, const struct options *options) {
    json_t *record = options->json ? record_start(check->problem) : NULL, *lines = json_array();
    bool good = true;
    if (!options->json)
        record_print_problem(check->problem, stdout);
    for (int v = 0; v < verify_count(check->problem); v++) {
        double error = total_error(check, v);
        bool ok = error <= options->bound; /* not so for NaN */
        good &= ok;
        if (!options->json)
            printf("%-4s error %.3e  bound %.3e  %s\n", tensor_name(verified[v]), error, options->bound,
                   ok ? "ok" : "FAIL");
        json_array_append_new(lines, json_pack("{s:s, s:o, s:f, s:b}", "tensor", tensor_name(verified[v]), "error",
                                               record_real(error), "bound", options->bound, "ok", ok));
    }
    int code = good ? 0 : EXIT_CHECK;
    if (options->json) {
        json_object_set(record, "tensors", lines);
        json_object_set_new(record, "ok", json_boolean(good));
        int failed = record_print(record);
        code = failed ? failed : code;
    }
    json_decref(lines);
    return code;
}

int command_check(int argc, char **argv) {
    static const struct argp_option own[] = {
        {"forward", KEY_FORWARD, NULL, 0, "the forward alone", 0},
        {"bound", KEY_BOUND, "B", 0, "the relative Frobenius error allowed (default 5.5e-3)", 0},
        {0}};
    struct options options = {.command = "check"};
    struct problem problem;
    int code = problem_open(&problem, &options, own,
                            "One MoE layer, forward and backward, against a float64 reference: one line a tensor with "
                            "its error and the bound." EXIT_CODES_HELP,
                            argc, argv);
    if (code)
        return code;
    struct check check = {.problem = &problem};
    code = ranks_run(&problem, check_rank, &check);
    if (!code && ranks_print(&problem))
        code = report(&check, &options);
    problem_close(&problem);
    return code;
}
