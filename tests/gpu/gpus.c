/* What the tests over several GPUs share; see gpus.h. */
#include "gpus.h"

#include <stdlib.h>
#include <string.h>

enum rig_kind gpus_kind;
int gpus_most;

bool gpus_simulated(void) {
    return getenv("MEGAMOE_LIBCUDA") != NULL;
}

int gpus_least(void) {
    return gpus_simulated() ? gpus_most : 2;
}

static int run_as(enum rig_kind kind, const char *name, struct gpus_tests tests) {
    gpus_kind = kind;
    return tests.count > 0 ? _cmocka_run_group_tests(name, tests.tests, tests.count, NULL, NULL) : 0;
}

/* Processes come first: what this process does with the driver is of no use to forked ranks. */
int gpus_main(int least, struct gpus_tests processes, struct gpus_tests threads) {
    enum { SKIPPED = 77, MOST = 8 };
    const int count = rig_count_gpus();
    gpus_most = count < MOST ? count : MOST;
    if (gpus_most < least) {
        print_message("not run: it needs %d GPUs, and %d can be seen\n", least, gpus_most);
        return SKIPPED;
    }
    if (gpus_simulated())
        print_message("not run with ranks that are processes: simulated GPUs lie in one process\n");
    else if (run_as(RIG_PROCESSES, "processes", processes) != 0)
        return 1;
    return run_as(RIG_THREADS, "threads", threads);
}

void gpus_run(struct rig_batch *batches, int count, const struct rig_options *options) {
    struct rig_world world = rig_world_for(batches, count, gpus_kind);
    rig_run(&world, batches, count, options);
}

void gpus_same_on_one(struct rig_batch *batch, const struct rig_options *options) {
    const size_t bytes = (size_t)rig_batch_values(batch) * sizeof *batch->y;
    const int ranks = batch->world;
    int64_t tokens[MMOE_MAX_WORLD];
    uint16_t *y = malloc(bytes + 1);
    memcpy(tokens, batch->tokens, sizeof tokens);
    memcpy(y, batch->y, bytes);
    rig_batch_split(batch, 1, &batch->total);
    gpus_run(batch, 1, options);
    if (memcmp(y, batch->y, bytes) != 0)
        fail_msg("y of %d GPUs has other bits than y of one", ranks);
    rig_batch_split(batch, ranks, tokens);
    free(y);
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
