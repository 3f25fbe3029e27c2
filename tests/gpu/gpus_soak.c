/* Many calls over several GPUs with nothing between them that holds the others back: forwards and backwards of two
 * layers in an order that is drawn, T, routing, forms of gradients, budgets and pauses too, several calls under way at
 * a time, and every element compared with an exact answer. MMOE_TEST_CALLS in the environment: how many. */
#include <stdlib.h>
#include <unistd.h>

#include "graphs.h"
#include "ready.h"

#define INNER 64
#define TOP_K 2
#define BATCHES 24
#define LAYERS 2
#define MOST_OPEN 4 /* forwards whose backward is still to come */

struct shape {
    int64_t hidden, inner, local_experts, top_k;
    int64_t most; /* tokens of a rank */
};

/* One tile of columns in each product, and less rows than a group of tasks has. */
static const struct shape narrow = {128, INNER, 4, TOP_K, 300};

struct soak {
    struct rig_batch batch[BATCHES];
    struct rig_options options[BATCHES];
    int calls;
};

/* What all ranks draw alike, and what each draws for itself. */
struct draws {
    struct rig_random order, own;
};

struct own {
    mmoe_layer *layers[LAYERS];
    mmoe_saved *saved[BATCHES];
    struct ready ready[BATCHES];
    struct draws draws;
    int made; /* calls */
};

static mmoe_layer *layer_of(const struct own *own, int batch) {
    return own->layers[(batch + batch / 8) % LAYERS]; /* in every form that the options have */
}

static void pause_now_and_then(struct rig_random *random) {
    if (rig_below(random, 16) == 0)
        usleep((useconds_t)rig_below(random, 2000));
}

static bool make_call(struct rig_rank *rank, struct own *own, int batch, bool backward) {
    struct ready *ready = &own->ready[batch];
    pause_now_and_then(&own->draws.own);
    gpus_leave(rank, (int)rig_below(&own->draws.own, gpu_of(rank)->device.multiprocessors));
    const mmoe_status status = backward ? mmoe_backward(layer_of(own, batch), &ready->call.backward)
                                        : mmoe_forward(layer_of(own, batch), &ready->call.forward);
    RIG_TRY(rank, status == MMOE_OK, "call %d: %s: %s", own->made, mmoe_status_name(status), mmoe_last_error());
    own->made++;
    return true;
}

/* A forward is now and then made again before its backward comes. */
static bool open_batch(struct rig_rank *rank, struct own *own, int batch) {
    return make_call(rank, own, batch, false) &&
           (rig_below(&own->draws.order, 4) > 0 || make_call(rank, own, batch, false));
}

/* Forwards of some batches, and their backwards, each anywhere behind its forward. */
static bool burst(struct rig_rank *rank, struct own *own) {
    struct rig_random *order = &own->draws.order;
    const int count = 1 + (int)rig_below(order, MOST_OPEN), start = (int)rig_below(order, BATCHES);
    int open[MOST_OPEN], opened = 0, left = 0;
    for (int i = 0; i < count; i++)
        if (!ready_poison(rank, &own->ready[(start + i) % BATCHES]))
            return false;
    while (opened < count || left > 0) {
        const bool closes = left > 0 && (opened == count || rig_below(order, 2) == 0);
        const int which = closes ? (int)rig_below(order, left) : left;
        const int batch = closes ? open[which] : (start + opened++) % BATCHES;
        if (closes ? !make_call(rank, own, batch, true) : !open_batch(rank, own, batch))
            return false;
        left += closes ? -1 : 1;
        open[which] = closes ? open[left] : batch;
    }
    for (int i = 0; i < count; i++)
        if (!ready_compare(rank, &own->ready[(start + i) % BATCHES], own->made))
            return false;
    return true;
}

static bool own_make(struct rig_rank *rank, const struct soak *soak, struct own *own) {
    mmoe_layer_config config = soak->batch[0].layer;
    for (int i = 0; i < LAYERS; i++) {
        config.capacity_policy = i == 0 ? MMOE_CAPACITY_GROW : MMOE_CAPACITY_FIXED;
        config.capacity = i == 0 ? 0 : rank->world * rank->group->config.max_tokens * config.top_k;
        RIG_TRY(rank, mmoe_layer_create(rank->group, &config, &own->layers[i]) == MMOE_OK, "%s", mmoe_last_error());
    }
    for (int i = 0; i < BATCHES; i++) {
        RIG_TRY(rank, mmoe_saved_create(layer_of(own, i), soak->options[i].keep, &own->saved[i]) == MMOE_OK, "%s",
                mmoe_last_error());
        if (!ready_make(rank, &soak->batch[i], &soak->options[i], own->saved[i], &own->ready[i]))
            return false;
    }
    return true;
}

static void own_free(struct rig_rank *rank, struct own *own) {
    for (int i = 0; i < BATCHES; i++) {
        ready_free(rank, &own->ready[i]);
        mmoe_saved_destroy(&own->saved[i]);
    }
    for (int i = 0; i < LAYERS; i++)
        mmoe_layer_destroy(&own->layers[i]);
}

static void soak_body(struct rig_rank *rank, void *context) {
    struct soak *soak = context;
    struct own own = {.draws = {rig_seed(821), rig_seed(822 + (uint64_t)rank->rank)}};
    if (!own_make(rank, soak, &own))
        return;
    while (own.made < soak->calls)
        if (!burst(rank, &own))
            return;
    RIG_OK(rank, mmoe_group_check(rank->group));
    own_free(rank, &own);
}

static void soak_of(int calls, const struct shape *shape) {
    for
        GPUS_EACH_WORLD(world) {
            struct soak *soak = rig_shared(sizeof *soak);
            struct rig_random random = rig_seed(830);
            soak->calls = calls;
            for (int i = 0; i < BATCHES; i++) {
                int64_t tokens[MMOE_MAX_WORLD];
                for (int r = 0; r < world; r++)
                    tokens[r] = rig_below(&random, 5) == 0 ? 0 : rig_below(&random, shape->most + 1);
                const enum rig_routing routing = (enum rig_routing)rig_below(&random, RIG_HOLES + 1);
                soak->batch[i] = exact_batch_of(shape->hidden, shape->inner, shape->local_experts * world, shape->top_k,
                                                world, tokens, routing, 840 + (uint64_t)i);
                exact_batch_encode(&soak->batch[i], i);
                rig_reference_of(&soak->batch[i]);
                soak->options[i] =
                    (struct rig_options){.keep = (mmoe_keep)(i & 1), .accumulate = i & 2, .narrow_gradients = i & 4};
            }
            struct rig_world ranks = rig_world_for(soak->batch, BATCHES, gpus_kind);
            ranks.seconds = 110 + (rig_simulated() ? calls : 0);
            rig_world_run(&ranks, soak_body, soak);
            for (int i = 0; i < BATCHES; i++)
                rig_batch_free(&soak->batch[i]);
            rig_shared_free(soak);
        }
}

static int calls_wanted(int full, int small) {
    const char *calls = getenv("MMOE_TEST_CALLS");
    return calls != NULL ? atoi(calls) : rig_scaled("calls", full, small);
}

static void soak_of_10000_calls(void **state) {
    (void)state;
    soak_of(calls_wanted(10000, 10000), &narrow);
}

static void soak_of_fewer_calls(void **state) {
    (void)state;
    struct shape more_tokens = narrow;
    more_tokens.most = rig_scaled("most tokens", 1500, 40);
    soak_of(calls_wanted(2000, 48), &more_tokens);
}

/* Two tiles of columns in each product, the second one short, and more blocks of rows than a group of tasks has: with
 * so many experts most blocks are nearly all pads. */
static void soak_of_many_blocks(void **state) {
    (void)state;
    const struct shape wide = {320, 192, rig_scaled("experts of a rank", 40, 2), 3, rig_scaled("most tokens", 150, 12)};
    soak_of(calls_wanted(1000, 12), &wide);
}

/* ---- B32: one rank sends, and every row counts ---- */

struct sending {
    struct rig_batch *batch;
    int calls;
};

static void sending_body(struct rig_rank *rank, void *context) {
    const struct sending *sending = context;
    const struct rig_options options = {.forward_only = true};
    struct ready ready;
    mmoe_layer *layer;
    RIG_OK(rank, mmoe_layer_create(rank->group, &sending->batch->layer, &layer));
    if (!ready_make(rank, sending->batch, &options, NULL, &ready))
        return;
    for (int i = 0; i < sending->calls; i++) {
        if (!ready_poison(rank, &ready))
            return;
        RIG_OK(rank, mmoe_forward(layer, &ready.call.forward));
        if (!ready_compare(rank, &ready, i))
            return;
    }
    ready_free(rank, &ready);
    mmoe_layer_destroy(&layer);
}

/* Rank 0's tokens go to an expert of its own and to one of the last rank; all other slots are not used. A row of a
 * token is carried in two pieces, the second one short. */
static void b32_only_one_rank_sends(void **state) {
    (void)state;
    const int64_t hidden = rig_scaled("columns of a row", 2112, 64), most = rig_scaled("tokens of a rank", 1024, 20);
    for
        GPUS_EACH_WORLD(world) {
            int64_t tokens[MMOE_MAX_WORLD];
            for (int r = 0; r < world; r++)
                tokens[r] = most;
            struct rig_batch batch = exact_batch_of(hidden, INNER, 2 * world, TOP_K, world, tokens, RIG_UNIFORM, 860);
            for (int64_t slot = 0; slot < rig_batch_slots(&batch); slot++)
                batch.ids[slot] = slot >= most * TOP_K ? -1 : slot % TOP_K == 0 ? 0 : 2 * world - 1;
            exact_batch_encode(&batch, 0);
            rig_reference_of(&batch);
            struct sending sending = {&batch, calls_wanted(2000, 6)};
            struct rig_world ranks = rig_world_for(&batch, 1, gpus_kind);
            ranks.seconds = 100;
            rig_world_run(&ranks, sending_body, &sending);
            rig_batch_free(&batch);
        }
}

int main(void) {
    const struct CMUnitTest of_processes[] = {cmocka_unit_test(soak_of_10000_calls)};
    const struct CMUnitTest of_threads[] = {
        cmocka_unit_test(soak_of_fewer_calls),
        cmocka_unit_test(soak_of_many_blocks),
        cmocka_unit_test(b32_only_one_rank_sends),
    };
    return gpus_main(2, GPUS_TESTS(of_processes), GPUS_TESTS(of_threads));
}
