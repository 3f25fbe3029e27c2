/* Many calls over several GPUs with nothing between them that holds the others back: T, routing, layer, budget and
 * pauses drawn anew for each, several calls under way at a time, and every element compared with an exact answer. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpus.h"
#include "graphs.h"

#define HIDDEN 128
#define INNER 64
#define TOP_K 2
#define BATCHES 24
#define MOST_UNDER_WAY 6

struct soak {
    struct rig_batch batch[BATCHES];
    int calls;
};

/* What all ranks draw alike, and what each draws for itself. */
struct draws {
    struct rig_random order, own;
};

static void pause_now_and_then(struct rig_random *random) {
    if (rig_below(random, 16) == 0)
        usleep((useconds_t)rig_below(random, 2000));
}

/* Some calls one behind another, of different batches, on one of the layers each. Returns how many; 0: one failed. */
static int burst(struct rig_rank *rank, struct soak *soak, mmoe_layer *const layers[2], struct gpus_ready *ready,
                 struct draws *draws, int first) {
    const int count = 1 + (int)rig_below(&draws->order, MOST_UNDER_WAY), start = (int)rig_below(&draws->order, BATCHES);
    for (int i = 0; i < count; i++)
        if (!gpus_ready_poison(rank, &ready[(start + i) % BATCHES]))
            return 0;
    for (int i = 0; i < count; i++) {
        mmoe_layer *layer = layers[rig_below(&draws->order, 2)];
        pause_now_and_then(&draws->own);
        rank->group->config.spare_multiprocessors =
            (int32_t)rig_below(&draws->own, gpu_of(rank)->device.multiprocessors);
        const mmoe_status status = mmoe_forward(layer, &ready[(start + i) % BATCHES].call.forward);
        if (status != MMOE_OK)
            return rig_fail(rank, __FILE__, __LINE__, "call %d: %s: %s", first + i, mmoe_status_name(status),
                            mmoe_last_error());
    }
    for (int i = 0; i < count; i++)
        if (!gpus_ready_compare(rank, &soak->batch[(start + i) % BATCHES], &ready[(start + i) % BATCHES], first + i))
            return 0;
    return count;
}

static void soak_body(struct rig_rank *rank, void *context) {
    struct soak *soak = context;
    struct gpus_ready ready[BATCHES];
    struct draws draws = {rig_seed(821), rig_seed(822 + (uint64_t)rank->rank)};
    mmoe_layer *layers[2];
    mmoe_layer_config config = soak->batch[0].layer;
    RIG_OK(rank, mmoe_layer_create(rank->group, &config, &layers[0]));
    config.capacity_policy = MMOE_CAPACITY_FIXED;
    config.capacity = rank->world * rank->group->config.max_tokens * TOP_K;
    RIG_OK(rank, mmoe_layer_create(rank->group, &config, &layers[1]));
    for (int i = 0; i < BATCHES; i++)
        if (!gpus_ready_make(rank, &soak->batch[i], &ready[i]))
            return;
    for (int call = 0; call < soak->calls && !rank->failed;)
        call += burst(rank, soak, layers, ready, &draws, call);
    RIG_EXPECT(rank, !rank->failed, "failed");
    RIG_OK(rank, mmoe_group_check(rank->group));
    for (int i = 0; i < BATCHES; i++)
        gpus_ready_free(rank, &ready[i]);
    for (int i = 0; i < 2; i++)
        mmoe_layer_destroy(&layers[i]);
}

static void soak_of(int calls, int64_t most) {
    for (int world = gpus_least(); world <= gpus_most; world *= 2) {
        struct soak *soak = rig_shared(sizeof *soak);
        struct rig_random random = rig_seed(830);
        soak->calls = calls;
        for (int i = 0; i < BATCHES; i++) {
            int64_t tokens[MMOE_MAX_WORLD];
            for (int r = 0; r < world; r++)
                tokens[r] = rig_below(&random, 5) == 0 ? 0 : rig_below(&random, most + 1);
            const enum rig_routing routing = (enum rig_routing)rig_below(&random, RIG_HOLES + 1);
            soak->batch[i] = exact_batch_of(HIDDEN, INNER, 4 * world, TOP_K, world, tokens, routing, 840 + (uint64_t)i);
            exact_batch_encode(&soak->batch[i], i);
            rig_reference_of(&soak->batch[i]);
        }
        struct rig_world ranks = rig_world_for(soak->batch, BATCHES, gpus_kind);
        ranks.seconds = 110;
        rig_world_run(&ranks, soak_body, soak);
        for (int i = 0; i < BATCHES; i++)
            rig_batch_free(&soak->batch[i]);
        rig_shared_free(soak);
    }
}

static void soak_of_10000_calls(void **state) {
    (void)state;
    soak_of(10000, 300);
}

static void soak_of_fewer_calls(void **state) {
    (void)state;
    soak_of(rig_scaled("calls", 2000, 60), rig_scaled("most tokens", 1500, 40));
}

int main(void) {
    const struct CMUnitTest of_processes[] = {cmocka_unit_test(soak_of_10000_calls)};
    const struct CMUnitTest of_threads[] = {cmocka_unit_test(soak_of_fewer_calls)};
    return gpus_main(2, GPUS_TESTS(of_processes), GPUS_TESTS(of_threads));
}
