/* Forwards over several GPUs that one rank refuses, that the ranks mean differently, or that need more room than there
 * is: what each rank is told, by what it is told, and that the next call works. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gpus.h"

#define HIDDEN 64
#define INNER 64
#define TOP_K 2
#define TOKENS 9
#define ROUNDS 2

static const struct rig_options forward_only = {.forward_only = true};

struct failure {
    struct gpus_failure told;
    void (*spoil_batch)(struct rig_batch *batch, int culprit);
    void (*spoil_call)(mmoe_forward_args *args); /* of the culprit, whose host refuses it at once */
    bool other_layer;                            /* the culprit means another layer */
};

/* The calls of one failure: a bad one and a good one in turn. */
struct calls {
    const struct failure *failure;
    struct rig_batch bad, good;
    enum gpus_teller teller;
};

/* ---- What is told ---- */

/* Whether the rank's own host knows of the failure when the call returns. */
static bool told_at_once(const struct rig_rank *rank, const struct calls *calls) {
    const bool own = gpus_is_culprit(rank) && calls->failure->spoil_call != NULL;
    return own || calls->teller == GPUS_BY_CALL || calls->teller == GPUS_BY_REPORT;
}

/* A failure that the host knows before it queues anything else leaves y alone; the device spoils it. */
static void expect_spoilt(struct rig_rank *rank, const struct calls *calls, const struct rig_call *call) {
    const bool own = gpus_is_culprit(rank) && calls->failure->spoil_call != NULL;
    if (own || calls->teller == GPUS_BY_CALL)
        RIG_EXPECT(rank, rig_call_untouched(call), "%s: a call that was refused wrote", calls->failure->told.name);
    else
        RIG_EXPECT(rank, rig_operand_is_nan(call, RIG_Y), "%s: y is not NaN", calls->failure->told.name);
}

static void bad_call(struct rig_rank *rank, mmoe_layer *const layers[2], const struct calls *calls, unsigned number) {
    const bool own = gpus_is_culprit(rank);
    mmoe_report report;
    struct rig_placed placed;
    struct rig_call call = rig_call_make(rank, &calls->bad, &forward_only, NULL, 0x7f);
    RIG_EXPECT(rank, rig_call_place(rank, &call, &placed), "not placed");
    call.forward.report = calls->teller == GPUS_BY_REPORT ? &report : NULL;
    mmoe_forward_args args = call.forward;
    if (own && calls->failure->spoil_call != NULL)
        calls->failure->spoil_call(&args);
    mmoe_status status = mmoe_forward(layers[own && calls->failure->other_layer], &args);
    if (told_at_once(rank, calls))
        gpus_told(rank, &calls->failure->told, number, status);
    else
        RIG_EXPECT(rank, status == MMOE_OK, "%s: told too early: %s", calls->failure->told.name, mmoe_last_error());
    RIG_EXPECT(rank, rig_call_fetch(rank, &call, &placed), "not fetched");
    expect_spoilt(rank, calls, &call);
    if (!told_at_once(rank, calls) && calls->teller == GPUS_BY_CHECK)
        gpus_told(rank, &calls->failure->told, number, mmoe_group_check(rank->group));
    if (calls->teller != GPUS_BY_NEXT_CALL)
        RIG_OK(rank, mmoe_group_check(rank->group)); /* once is enough */
    rig_placed_free(rank, &placed);
    rig_call_free(&call);
}

/* It has its result also when it tells of the call before. */
static void good_call(struct rig_rank *rank, mmoe_layer *layer, struct calls *calls, unsigned number) {
    struct rig_placed placed;
    struct rig_call call = rig_call_make(rank, &calls->good, &forward_only, NULL, 0xff);
    RIG_EXPECT(rank, rig_call_place(rank, &call, &placed), "not placed");
    const mmoe_status status = mmoe_forward(layer, &call.forward);
    if (calls->teller == GPUS_BY_NEXT_CALL && !told_at_once(rank, calls))
        gpus_told(rank, &calls->failure->told, number - 1, status);
    else
        RIG_EXPECT(rank, status == MMOE_OK, "%s, the call after: %s", calls->failure->told.name, mmoe_last_error());
    RIG_EXPECT(rank, rig_call_fetch(rank, &call, &placed) && rig_call_take_forward(rank, &call, &calls->good),
               "not taken");
    rig_placed_free(rank, &placed);
    rig_call_free(&call);
}

static void calls_body(struct rig_rank *rank, void *context) {
    struct calls *calls = context;
    mmoe_layer *layers[2];
    for (int i = 0; i < 2; i++)
        RIG_OK(rank, mmoe_layer_create(rank->group, &calls->good.layer, &layers[i]));
    for (unsigned round = 0; round < ROUNDS && !rank->failed; round++) {
        bad_call(rank, layers, calls, 2 * round + 1);
        if (!rank->failed)
            good_call(rank, layers[0], calls, 2 * round + 2);
    }
    RIG_OK(rank, mmoe_group_check(rank->group));
    for (int i = 0; i < 2; i++)
        mmoe_layer_destroy(&layers[i]);
}

/* Slots that go round the experts: each rank receives as many as every other one. */
static struct rig_batch round_batch(const mmoe_layer_config *layer, int world, uint64_t seed) {
    int64_t tokens[MMOE_MAX_WORLD];
    for (int r = 0; r < world; r++)
        tokens[r] = TOKENS;
    struct rig_batch batch = rig_batch_make(layer, world, tokens, RIG_UNIFORM, seed);
    rig_batch_positive(&batch);
    for (int64_t s = 0; s < rig_batch_slots(&batch); s++)
        batch.ids[s] = s % layer->experts;
    return batch;
}

static void run_failure(const struct failure *failure, int world, enum gpus_teller teller) {
    mmoe_layer_config layer = rig_layer(HIDDEN, INNER, 2 * world, TOP_K);
    layer.capacity_policy = teller == GPUS_BY_CALL ? MMOE_CAPACITY_GROW : MMOE_CAPACITY_FIXED;
    layer.capacity = teller == GPUS_BY_CALL ? 0 : TOKENS * TOP_K;
    struct calls calls = {failure, round_batch(&layer, world, 801), round_batch(&layer, world, 802), teller};
    assert_int_equal(gpus_most_demand(&calls.good), TOKENS * TOP_K);
    if (failure->spoil_batch != NULL)
        failure->spoil_batch(&calls.bad, world - 1);
    struct rig_world ranks = rig_world_for(&calls.good, 1, gpus_kind);
    rig_world_run(&ranks, calls_body, &calls);
    rig_compare(&calls.good, &forward_only, RIG_BOUND);
    rig_batch_free(&calls.bad);
    rig_batch_free(&calls.good);
}

/* ---- What can go wrong ---- */

static void bad_id(struct rig_batch *batch, int culprit) {
    batch->ids[(rig_batch_first(batch, culprit) + 3) * TOP_K + 1] = 1000;
}

static void bad_weight(struct rig_batch *batch, int culprit) {
    batch->weights[(rig_batch_first(batch, culprit) + 2) * TOP_K] = NAN;
}

/* The lowest of those that refuse is named; each knows its own reason. */
static void bad_id_and_weight(struct rig_batch *batch, int culprit) {
    bad_id(batch, culprit);
    bad_weight(batch, culprit);
}

static void odd_rows(mmoe_forward_args *args) {
    args->gate.stride[1] = HIDDEN + 1;
}

static void no_tokens(mmoe_forward_args *args) {
    args->x.dims = 3;
}

static void all_to_one(struct rig_batch *batch, int culprit) {
    (void)culprit;
    for (int64_t s = 0; s < rig_batch_slots(batch); s++)
        batch->ids[s] = 0;
}

static const struct failure failures[] = {
    {.told = {"a bad id", MMOE_REFUSED, MMOE_INVALID_ARGUMENT,
              "rank {culprit} refused call {call}: ids at token 3, slot 1 is 1000, expected -1 or 0 ..",
              "ids at token 3, slot 1 is 1000, expected -1 or 0 .."},
     .spoil_batch = bad_id},
    {.told = {"a weight that is not finite, and a bad id", MMOE_REFUSED, MMOE_INVALID_ARGUMENT,
              "rank {culprit} refused call {call}: weights at token 2, slot 0 is nan, expected a finite number",
              "weights at token 2, slot 0 is nan, expected a finite number"},
     .spoil_batch = bad_id_and_weight},
    {.told = {"a layout that the backend refuses", MMOE_REFUSED, MMOE_UNSUPPORTED,
              "rank {culprit} refused call {call}: gate has stride[1] 65, expected a positive multiple of 8 on a GPU",
              "gate has stride[1] 65, expected a positive multiple of 8 on a GPU"},
     .spoil_call = odd_rows},
    {.told = {"an argument that the library refuses", MMOE_REFUSED, MMOE_INVALID_ARGUMENT,
              "rank {culprit} refused call {call}: x has dims 3", "x has dims 3"},
     .spoil_call = no_tokens},
    {.told = {"another layer", MMOE_MISMATCH, MMOE_MISMATCH,
              "rank {culprit} issued a forward of layer 1 where this rank issued a forward of layer 0 (call {call})",
              "rank 0 issued a forward of layer 0 where this rank issued a forward of layer 1"},
     .other_layer = true},
};

static void each_failure(enum gpus_teller teller) {
    const int stride = rig_scaled("every n-th failure", 1, 2);
    for
        GPUS_EACH_WORLD(world)
    for (int i = (int)teller % stride; i < COUNT(failures); i += stride)
        run_failure(&failures[i], world, teller);
}

static void told_by_the_call(void **state) {
    (void)state;
    each_failure(GPUS_BY_CALL);
}

static void told_by_a_report(void **state) {
    (void)state;
    each_failure(GPUS_BY_REPORT);
}

static void told_by_the_next_call(void **state) {
    (void)state;
    each_failure(GPUS_BY_NEXT_CALL);
}

static void told_when_asked(void **state) {
    (void)state;
    each_failure(GPUS_BY_CHECK);
}

/* B15: the same on every rank, whose experts they were or not. */
static void b15_capacity_is_the_same_on_every_rank(void **state) {
    (void)state;
    for
        GPUS_EACH_WORLD(world)
    for (int teller = GPUS_BY_CHECK; teller < GPUS_TELLERS; teller++) {
        char text[100];
        snprintf(text, sizeof text, "rank 0 was routed %d rows, expected at most its capacity of %d",
                 world * TOKENS * TOP_K, TOKENS * TOP_K);
        const struct failure over = {.told = {"too many rows", MMOE_CAPACITY, MMOE_CAPACITY, text, text},
                                     .spoil_batch = all_to_one};
        run_failure(&over, world, (enum gpus_teller)teller);
    }
}

int main(void) {
    const struct CMUnitTest of_processes[] = {
        cmocka_unit_test(told_by_the_call),
        cmocka_unit_test(b15_capacity_is_the_same_on_every_rank),
    };
    const struct CMUnitTest of_threads[] = {
        cmocka_unit_test(told_by_the_call),
        cmocka_unit_test(told_by_a_report),
        cmocka_unit_test(told_by_the_next_call),
        cmocka_unit_test(told_when_asked),
        cmocka_unit_test(b15_capacity_is_the_same_on_every_rank),
    };
    return gpus_main(2, GPUS_TESTS(of_processes), GPUS_TESTS(of_threads));
}
