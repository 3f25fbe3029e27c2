/* What the tests over several GPUs share; see gpus.h. */
#include "gpus.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rig/one_gpu.h"

enum rig_kind gpus_kind;
int gpus_most;

int gpus_least(void) {
    return rig_simulated() ? gpus_most : 2;
}

void gpus_two_at_small_size(void) {
    if (rig_small() && gpus_most > 2) {
        print_message("not run on %d GPUs at small size\n", gpus_most);
        skip();
    }
}

void gpus_leave(struct rig_rank *rank, int multiprocessors) {
    const int least = rank->share != NULL ? rank->share->spare : 0;
    rank->group->config.spare_multiprocessors = multiprocessors < least ? least : multiprocessors;
}

void gpus_uneven_tokens(int world, int64_t most, int64_t *tokens) {
    for (int r = 0; r < world; r++)
        tokens[r] = r % 4 == 1 ? (most > 0 ? most - 1 : 0) : r % 4 == 2 ? 0 : r % 4 == 3 ? 1 : most;
}

static int run_as(enum rig_kind kind, const char *name, struct gpus_tests tests) {
    gpus_kind = kind;
    return tests.count > 0 ? _cmocka_run_group_tests(name, tests.tests, tests.count, NULL, NULL) : 0;
}

/* Ranks that share GPUs; 0: each has its own. */
static int ranks_that_share(void) {
    const char *ranks = getenv("MMOE_TEST_RANKS");
    return ranks != NULL ? atoi(ranks) : 0;
}

/* Processes come first: what this process does with the driver is of no use to forked ranks. */
int gpus_main(int least, struct gpus_tests processes, struct gpus_tests threads) {
    enum { SKIPPED = 77, MOST = 8 };
    const int sharing = ranks_that_share(), count = sharing > 0 ? sharing : rig_count_gpus();
    gpus_most = count < MOST ? count : MOST;
    if (gpus_most < least) {
        print_message("not run: it needs %d GPUs, and %d can be seen\n", least, gpus_most);
        return SKIPPED;
    }
    if (sharing > 0)
        return getenv("MEGAMOE_SHARE_GPUS") != NULL ? run_as(RIG_PROCESSES, "processes that share GPUs", threads)
                                                    : run_as(RIG_ONE_GPU, "ranks on one GPU", threads);
    if (rig_simulated())
        print_message("not run with ranks that are processes: simulated GPUs lie in one process\n");
    else if (run_as(RIG_PROCESSES, "processes", processes) != 0)
        return 1;
    return run_as(RIG_THREADS, "threads", threads);
}

void gpus_run(struct rig_batch *batches, int count, const struct rig_options *options) {
    struct rig_world world = rig_world_for(batches, count, gpus_kind);
    rig_run(&world, batches, count, options);
}

int64_t gpus_demand(const struct rig_batch *batch, int rank) {
    const int64_t local = batch->layer.experts / batch->world;
    int64_t rows = 0;
    for (int64_t s = 0; s < rig_batch_slots(batch); s++)
        rows += batch->ids[s] >= 0 && batch->ids[s] / local == rank;
    return rows;
}

int64_t gpus_most_demand(const struct rig_batch *batch) {
    int64_t most = 0;
    for (int r = 0; r < batch->world; r++)
        most = gpus_demand(batch, r) > most ? gpus_demand(batch, r) : most;
    return most;
}

bool gpus_is_culprit(const struct rig_rank *rank) {
    return rank->rank == rank->world - 1;
}

/* What stands for a number in the text of a failure. */
struct gpus_name {
    const char *name;
    unsigned number;
};

static void fill_in(char *text, size_t bytes, const char *form, const struct gpus_name *names, int count) {
    size_t used = 0;
    while (*form != '\0' && used + 1 < bytes) {
        int i = 0;
        while (i < count && strncmp(form, names[i].name, strlen(names[i].name)) != 0)
            i++;
        if (i < count) {
            used += (size_t)snprintf(text + used, bytes - used, "%u", names[i].number);
            form += strlen(names[i].name);
        } else {
            text[used++] = *form++;
        }
    }
    text[used < bytes ? used : bytes - 1] = '\0';
}

bool gpus_told(struct rig_rank *rank, const struct gpus_failure *failure, unsigned call, mmoe_status status) {
    const bool own = gpus_is_culprit(rank);
    const mmoe_status expected = own ? failure->own : failure->others;
    const struct gpus_name names[] = {{"{culprit}", (unsigned)rank->world - 1},
                                      {"{rank}", (unsigned)rank->rank},
                                      {"{call}", call},
                                      {"{call-1}", call - 1},
                                      {"{call-2}", call - 2}};
    char text[300];
    fill_in(text, sizeof text, own ? failure->own_text : failure->others_text, names, COUNT(names));
    RIG_TRY(rank, status == expected && strstr(mmoe_last_error(), text), "%s: %s: \"%s\", expected %s: \"%s\"",
            failure->name, mmoe_status_name(status), mmoe_last_error(), mmoe_status_name(expected), text);
    return true;
}

bool gpus_gradients_are_spoilt(const struct rig_call *call) {
    bool spoilt = rig_operand_is_nan(call, RIG_DX) && rig_operand_is_nan(call, RIG_DWEIGHTS);
    for (int i = RIG_DGATE; i <= RIG_DDOWN; i++)
        spoilt = spoilt && (call->options->accumulate ? rig_tensor_intact(&call->tensor[i])
                                                      : rig_operand_is_nan(call, (enum rig_operand)i));
    return spoilt;
}
