/* Calls over several GPUs that fail in every way that leaves a group whole, among calls that are good, of a layer with
 * a growing and one with a fixed capacity, several under way at a time: no call waits for a rank in vain, and every
 * element of the good ones is right. MMOE_TEST_CALLS in the environment: how many. */
#include <stdlib.h>

#include "ready.h"

#define HIDDEN 64
#define INNER 64
#define TOP_K 2
#define BATCHES 8 /* good ones, of the two layers in turn */
#define LAYERS 2
#define MOST_OPEN 4 /* good forwards whose backward is still to come */

/* How a call is made. */
enum way { GOOD, A_BAD_ID, TOO_MANY_ROWS, A_HOST_REFUSES, ANOTHER_LAYER, WAYS };

struct mixed {
    struct rig_batch batch[BATCHES], bad_id, too_many;
    struct rig_options options[BATCHES];
    int64_t capacity;
    int calls;
};

struct own {
    mmoe_layer *layers[LAYERS];
    mmoe_saved *saved[BATCHES], *bad_saved[LAYERS];
    struct ready ready[BATCHES];
    struct rig_call bad[WAYS];
    struct rig_placed placed[WAYS];
    struct rig_random draws; /* that all ranks draw alike */
    int made, failed;        /* calls; failures that were told */
};

static const struct rig_options keep_plan = {.keep = MMOE_KEEP_PLAN};

static int layer_of(int batch) {
    return batch % LAYERS;
}

/* ---- What may be told ---- */

static bool is_whole(struct rig_rank *rank, struct own *own, mmoe_status status) {
    own->failed += status != MMOE_OK;
    RIG_TRY(rank,
            status == MMOE_OK || status == MMOE_REFUSED || status == MMOE_INVALID_ARGUMENT ||
                status == MMOE_UNSUPPORTED || status == MMOE_CAPACITY || status == MMOE_MISMATCH,
            "call %d: %s: %s", own->made, mmoe_status_name(status), mmoe_last_error());
    return true;
}

/* All that has still to be told. */
static bool hear(struct rig_rank *rank, struct own *own) {
    mmoe_status status = MMOE_OK;
    for (int i = 0; i < LAYERS * WAYS && (i == 0 || status != MMOE_OK); i++) {
        status = mmoe_group_check(rank->group);
        if (!is_whole(rank, own, status))
            return false;
    }
    RIG_TRY(rank, status == MMOE_OK, "call %d: told again and again: %s", own->made, mmoe_last_error());
    return true;
}

/* ---- Calls ---- */

/* A forward, and now and then its backward. */
static bool make_bad_calls(struct rig_rank *rank, struct own *own) {
    const enum way way = (enum way)(1 + rig_below(&own->draws, WAYS - 1));
    const int layer = (int)rig_below(&own->draws, LAYERS), culprit = (int)rig_below(&own->draws, rank->world);
    const bool backward = rig_below(&own->draws, 2) == 0 && way != ANOTHER_LAYER;
    mmoe_forward_args args = own->bad[way].forward;
    mmoe_backward_args gradients = own->bad[way].backward;
    args.saved = gradients.saved = backward ? own->bad_saved[layer] : NULL;
    if (way == A_HOST_REFUSES && rank->rank == culprit)
        args.gate.stride[1] = HIDDEN + 1;
    const bool other = way == ANOTHER_LAYER && rank->rank == culprit;
    own->made++;
    if (!is_whole(rank, own, mmoe_forward(own->layers[other ? 1 - layer : layer], &args)))
        return false;
    own->made += backward;
    return !backward || is_whole(rank, own, mmoe_backward(own->layers[layer], &gradients));
}

static bool make_good_call(struct rig_rank *rank, struct own *own, int batch, bool backward) {
    struct rig_call *call = &own->ready[batch].call;
    mmoe_layer *layer = own->layers[layer_of(batch)];
    own->made++;
    return is_whole(rank, own, backward ? mmoe_backward(layer, &call->backward) : mmoe_forward(layer, &call->forward));
}

/* Some good forwards and, behind each, its backward, with bad calls anywhere between them. */
static bool burst(struct rig_rank *rank, struct own *own) {
    struct rig_random *draws = &own->draws;
    const int count = 1 + (int)rig_below(draws, MOST_OPEN), start = (int)rig_below(draws, BATCHES);
    for (int i = 0; i < count; i++)
        if (!ready_poison(rank, &own->ready[(start + i) % BATCHES]))
            return false;
    for (int opened = 0, closed = 0; closed < count;) {
        const bool closes = opened == count || (closed < opened && rig_below(draws, 2) == 0);
        if (rig_below(draws, 2) == 0 && !make_bad_calls(rank, own))
            return false;
        if (!make_good_call(rank, own, (start + (closes ? closed : opened)) % BATCHES, closes))
            return false;
        opened += !closes;
        closed += closes;
    }
    for (int i = 0; i < count; i++)
        if (!ready_compare(rank, &own->ready[(start + i) % BATCHES], own->made))
            return false;
    return hear(rank, own);
}

/* ---- All ranks ---- */

static bool bad_make(struct rig_rank *rank, struct mixed *mixed, struct own *own) {
    for (int way = A_BAD_ID; way < WAYS; way++) {
        const struct rig_batch *batch = way == A_BAD_ID        ? &mixed->bad_id
                                        : way == TOO_MANY_ROWS ? &mixed->too_many
                                                               : &mixed->batch[0];
        own->bad[way] = rig_call_make(rank, batch, &keep_plan, NULL, 0x7f);
        if (!rig_call_place(rank, &own->bad[way], &own->placed[way]))
            return false;
    }
    return true;
}

static bool own_make(struct rig_rank *rank, struct mixed *mixed, struct own *own) {
    mmoe_layer_config config = mixed->batch[0].layer;
    for (int i = 0; i < LAYERS; i++) {
        config.capacity_policy = i == 0 ? MMOE_CAPACITY_GROW : MMOE_CAPACITY_FIXED;
        config.capacity = i == 0 ? 0 : mixed->capacity;
        RIG_TRY(rank, mmoe_layer_create(rank->group, &config, &own->layers[i]) == MMOE_OK, "%s", mmoe_last_error());
        RIG_TRY(rank, mmoe_saved_create(own->layers[i], keep_plan.keep, &own->bad_saved[i]) == MMOE_OK, "%s",
                mmoe_last_error());
    }
    for (int i = 0; i < BATCHES; i++) {
        const struct rig_options *options = &mixed->options[i];
        RIG_TRY(rank, mmoe_saved_create(own->layers[layer_of(i)], options->keep, &own->saved[i]) == MMOE_OK, "%s",
                mmoe_last_error());
        if (!ready_make(rank, &mixed->batch[i], options, own->saved[i], &own->ready[i]))
            return false;
    }
    return bad_make(rank, mixed, own);
}

static void own_free(struct rig_rank *rank, struct own *own) {
    for (int way = A_BAD_ID; way < WAYS; way++) {
        rig_placed_free(rank, &own->placed[way]);
        rig_call_free(&own->bad[way]);
    }
    for (int i = 0; i < BATCHES; i++) {
        ready_free(rank, &own->ready[i]);
        mmoe_saved_destroy(&own->saved[i]);
    }
    for (int i = 0; i < LAYERS; i++) {
        mmoe_saved_destroy(&own->bad_saved[i]);
        mmoe_layer_destroy(&own->layers[i]);
    }
}

static void mixed_body(struct rig_rank *rank, void *context) {
    struct mixed *mixed = context;
    struct own own = {.draws = rig_seed(891)};
    if (!own_make(rank, mixed, &own))
        return;
    while (own.made < mixed->calls)
        if (!burst(rank, &own))
            return;
    RIG_EXPECT(rank, own.failed > 0, "nothing has failed");
    own_free(rank, &own);
}

/* The good batches have half the tokens of those that have too many rows. */
static void batches_make(struct mixed *mixed, int world, int64_t most) {
    struct rig_random random = rig_seed(893);
    int64_t tokens[MMOE_MAX_WORLD];
    for (int i = 0; i < BATCHES; i++) {
        for (int r = 0; r < world; r++)
            tokens[r] = rig_below(&random, 5) == 0 ? 0 : rig_below(&random, most / 2 + 1);
        mixed->batch[i] = exact_batch_of(HIDDEN, INNER, 2 * world, TOP_K, world, tokens,
                                         (enum rig_routing)rig_below(&random, RIG_HOLES + 1), 894 + (uint64_t)i);
        exact_batch_encode(&mixed->batch[i], i);
        rig_reference_of(&mixed->batch[i]);
        mixed->options[i] = (struct rig_options){.keep = (mmoe_keep)(i / 2 & 1), .accumulate = i & 4};
        const int64_t demand = gpus_most_demand(&mixed->batch[i]);
        mixed->capacity = demand > mixed->capacity ? demand : mixed->capacity;
    }
    for (int r = 0; r < world; r++)
        tokens[r] = most;
    mixed->bad_id = exact_batch_of(HIDDEN, INNER, 2 * world, TOP_K, world, tokens, RIG_UNIFORM, 902);
    mixed->too_many = exact_batch_of(HIDDEN, INNER, 2 * world, TOP_K, world, tokens, RIG_ONE_EXPERT, 903);
    mixed->bad_id.ids[rig_batch_slots(&mixed->bad_id) - 1] = 2 * world;
    assert_true(gpus_most_demand(&mixed->too_many) > mixed->capacity);
}

static void good_calls_among_bad_ones(void **state) {
    (void)state;
    const char *calls = getenv("MMOE_TEST_CALLS");
    for
        GPUS_EACH_WORLD(world) {
            struct mixed *mixed = rig_shared(sizeof *mixed);
            mixed->calls = calls != NULL ? atoi(calls) : rig_scaled("calls", 3000, gpus_most > 2 ? 60 : 150);
            batches_make(mixed, world, rig_scaled("most tokens", 200, 24));
            struct rig_world ranks = rig_world_for(&mixed->too_many, 1, gpus_kind);
            ranks.seconds = 110 + (rig_simulated() ? mixed->calls : 0);
            rig_world_run(&ranks, mixed_body, mixed);
            for (int i = 0; i < BATCHES; i++)
                rig_batch_free(&mixed->batch[i]);
            rig_batch_free(&mixed->bad_id);
            rig_batch_free(&mixed->too_many);
            rig_shared_free(mixed);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(good_calls_among_bad_ones)};
    return gpus_main(2, GPUS_TESTS(tests), GPUS_TESTS(tests));
}
