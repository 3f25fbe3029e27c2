/* Backwards over several GPUs that one rank refuses, that the ranks mean differently, or whose forward has failed: what
 * each rank is told, by what it is told, that nothing is left that looks like a gradient, and that the next call works.
 */
#include <stdio.h>
#include <string.h>

#include "gpus.h"

#define HIDDEN 64
#define INNER 64
#define TOP_K 2
#define TOKENS 9

struct failure {
    struct gpus_failure told;
    void (*spoil)(mmoe_backward_args *args);              /* of the culprit, whose host refuses it at once */
    bool other_layer, other_forward, other_keep;          /* that the culprit means, or has kept */
    bool forward;                                         /* the culprit makes one, the others a backward */
    void (*spoil_batch)(struct rig_batch *, int culprit); /* so that the device finds the forward bad, */
    struct gpus_failure forward_told;                     /* as is told first */
};

struct calls {
    const struct failure *failure;
    struct rig_batch bad, good;
    struct rig_options options, others; /* of the good calls; of the culprit's bad one that has kept something else */
    enum gpus_teller teller;
    int rounds;
};

/* Of one rank. A round makes a forward, whose backward is to fail, and another one; that backward, and the backward of
 * the other forward. */
struct own {
    mmoe_layer *layers[2], *bad_layer, *good_layer;
    mmoe_saved *bad_saved, *good_saved;
    struct rig_call bad, good;
    struct rig_placed bad_placed, good_placed;
    unsigned made; /* calls */
};

/* ---- What is told, and what is left ---- */

static bool told_at_once(const struct rig_rank *rank, const struct calls *calls) {
    return (gpus_is_culprit(rank) && calls->failure->spoil != NULL) || calls->teller == GPUS_BY_REPORT;
}

static bool gradients_are_untouched(const struct rig_call *call) {
    bool untouched = true;
    for (int i = RIG_DX; i <= RIG_DDOWN; i++)
        untouched = untouched && rig_tensor_intact(&call->tensor[i]);
    return untouched;
}

/* A failure that the host knows before it queues anything leaves all alone. */
static bool is_spoilt(struct rig_rank *rank, const struct failure *failure, const struct rig_call *call) {
    const bool own = gpus_is_culprit(rank);
    if (own && failure->spoil != NULL)
        RIG_TRY(rank, gradients_are_untouched(call), "%s: a call that was refused wrote", failure->told.name);
    else if (own && failure->forward)
        RIG_TRY(rank, rig_operand_is_nan(call, RIG_Y), "%s: y is not NaN", failure->told.name);
    else
        RIG_TRY(rank, gpus_gradients_are_spoilt(call), "%s: gradients look good", failure->told.name);
    return true;
}

/* ---- The calls of a round ---- */

/* The bad forward is told when asked, or by the good one. */
static bool make_forwards(struct rig_rank *rank, struct calls *calls, struct own *own) {
    const struct failure *failure = calls->failure;
    const bool fails = failure->spoil_batch != NULL, asks = calls->teller != GPUS_BY_NEXT_CALL;
    mmoe_status status = mmoe_forward(own->bad_layer, &own->bad.forward);
    RIG_TRY(rank, status == MMOE_OK, "%s: the forward: %s", failure->told.name, mmoe_last_error());
    if (!rig_call_fetch(rank, &own->bad, &own->bad_placed) ||
        (fails && asks && !gpus_told(rank, &failure->forward_told, own->made + 1, mmoe_group_check(rank->group))))
        return false;
    status = mmoe_forward(own->good_layer, &own->good.forward);
    own->made += 2;
    if (fails && !asks && !gpus_told(rank, &failure->forward_told, own->made - 1, status))
        return false;
    RIG_TRY(rank, status == MMOE_OK || (fails && !asks), "%s: the other forward: %s", failure->told.name,
            mmoe_last_error());
    return true;
}

static mmoe_status begin_bad_call(struct rig_rank *rank, const struct calls *calls, struct own *own,
                                  mmoe_report *report) {
    const struct failure *failure = calls->failure;
    mmoe_backward_args args = own->bad.backward;
    mmoe_forward_args forward = own->bad.forward;
    mmoe_layer *layer = own->bad_layer;
    forward.saved = NULL;
    args.report = forward.report = report;
    if (gpus_is_culprit(rank) && failure->forward)
        return mmoe_forward(layer, &forward);
    if (gpus_is_culprit(rank) && failure->spoil != NULL)
        failure->spoil(&args);
    if (gpus_is_culprit(rank) && (failure->other_layer || failure->other_forward)) {
        args.saved = own->good_saved;
        layer = own->good_layer;
    }
    return mmoe_backward(layer, &args);
}

static bool make_bad_call(struct rig_rank *rank, const struct calls *calls, struct own *own) {
    const struct gpus_failure *told = &calls->failure->told;
    const bool at_once = told_at_once(rank, calls);
    mmoe_report report;
    const mmoe_status status = begin_bad_call(rank, calls, own, calls->teller == GPUS_BY_REPORT ? &report : NULL);
    own->made++;
    if (at_once && !gpus_told(rank, told, own->made, status))
        return false;
    RIG_TRY(rank, at_once || status == MMOE_OK, "%s: told too early: %s", told->name, mmoe_last_error());
    if (!rig_call_fetch(rank, &own->bad, &own->bad_placed) || !is_spoilt(rank, calls->failure, &own->bad))
        return false;
    if (calls->teller == GPUS_BY_NEXT_CALL)
        return true;
    if (!at_once && !gpus_told(rank, told, own->made, mmoe_group_check(rank->group)))
        return false;
    RIG_TRY(rank, mmoe_group_check(rank->group) == MMOE_OK, "%s: told twice", told->name);
    return true;
}

/* It has its result also when it tells of the call before. */
static bool make_good_backward(struct rig_rank *rank, struct calls *calls, struct own *own) {
    const bool tells = calls->teller == GPUS_BY_NEXT_CALL && !told_at_once(rank, calls);
    const mmoe_status status = mmoe_backward(own->good_layer, &own->good.backward);
    own->made++;
    if (tells && !gpus_told(rank, &calls->failure->told, own->made - 1, status))
        return false;
    RIG_TRY(rank, tells || status == MMOE_OK, "%s, the call after: %s", calls->failure->told.name, mmoe_last_error());
    return rig_call_fetch(rank, &own->good, &own->good_placed) &&
           rig_call_take_forward(rank, &own->good, &calls->good) &&
           rig_call_take_backward(rank, &own->good, &calls->good);
}

static bool make_round(struct rig_rank *rank, struct calls *calls, struct own *own) {
    const bool differs = calls->failure->other_keep && gpus_is_culprit(rank);
    own->bad = rig_call_make(rank, &calls->bad, differs ? &calls->others : &calls->options, own->bad_saved, 0x7f);
    own->good = rig_call_make(rank, &calls->good, &calls->options, own->good_saved, 0xff);
    const bool good = rig_call_place(rank, &own->bad, &own->bad_placed) &&
                      rig_call_place(rank, &own->good, &own->good_placed) && make_forwards(rank, calls, own) &&
                      make_bad_call(rank, calls, own) && make_good_backward(rank, calls, own);
    rig_placed_free(rank, &own->bad_placed);
    rig_placed_free(rank, &own->good_placed);
    rig_call_free(&own->bad);
    rig_call_free(&own->good);
    return good;
}

/* ---- All ranks ---- */

static void calls_body(struct rig_rank *rank, void *context) {
    struct calls *calls = context;
    const bool differs = calls->failure->other_keep && gpus_is_culprit(rank);
    struct own own = {.made = 0};
    for (int i = 0; i < 2; i++)
        RIG_OK(rank, mmoe_layer_create(rank->group, &calls->good.layer, &own.layers[i]));
    own.bad_layer = own.layers[0];
    own.good_layer = own.layers[calls->failure->other_layer];
    RIG_OK(rank, mmoe_saved_create(own.bad_layer, differs ? calls->others.keep : calls->options.keep, &own.bad_saved));
    RIG_OK(rank, mmoe_saved_create(own.good_layer, calls->options.keep, &own.good_saved));
    for (int round = 0; round < calls->rounds; round++)
        if (!make_round(rank, calls, &own))
            return;
    RIG_OK(rank, mmoe_group_check(rank->group));
    mmoe_saved_destroy(&own.bad_saved);
    mmoe_saved_destroy(&own.good_saved);
    for (int i = 0; i < 2; i++)
        mmoe_layer_destroy(&own.layers[i]);
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

/* `form`: bit 0, rows are kept; bit 1, gradients are added to what is there. */
static void run_failure(const struct failure *failure, int world, enum gpus_teller teller, int form) {
    mmoe_layer_config layer = rig_layer(HIDDEN, INNER, 2 * world, TOP_K);
    const bool fixed = teller != GPUS_BY_NEXT_CALL || failure->forward || failure->spoil_batch != NULL;
    layer.capacity_policy = fixed ? MMOE_CAPACITY_FIXED : MMOE_CAPACITY_GROW;
    layer.capacity = fixed ? TOKENS * TOP_K : 0;
    const struct rig_options options = {.keep = (mmoe_keep)(form & 1), .accumulate = form & 2},
                             others = {.keep = (mmoe_keep)(1 - (form & 1)), .accumulate = form & 2};
    struct calls calls = {failure, round_batch(&layer, world, 861), round_batch(&layer, world, 862), options, others,
                          teller,  rig_scaled("rounds", 2, 1)};
    assert_int_equal(gpus_most_demand(&calls.good), TOKENS * TOP_K);
    if (failure->spoil_batch != NULL)
        failure->spoil_batch(&calls.bad, world - 1);
    struct rig_world ranks = rig_world_for(&calls.good, 1, gpus_kind);
    rig_world_run(&ranks, calls_body, &calls);
    rig_compare(&calls.good, &options, RIG_BOUND);
    rig_batch_free(&calls.bad);
    rig_batch_free(&calls.good);
}

/* In all forms and told in all ways, or at reduced size in one. */
static void run_all(const struct failure *failures, int count, int world) {
    enum { WAYS = 3, FORMS = 4 };
    for (int i = 0; i < count; i++)
        for (int way = 0; way < rig_scaled("ways in which a failure is told", WAYS, 1); way++)
            run_failure(&failures[i], world, (enum gpus_teller)(GPUS_BY_CHECK + (i + way) % WAYS), (i + way) % FORMS);
}

/* ---- What can go wrong ---- */

static void odd_rows(mmoe_backward_args *args) {
    args->gate.stride[1] = HIDDEN + 1;
}

static void no_gradient(mmoe_backward_args *args) {
    args->dy.dims = 3;
}

static void no_forward(mmoe_backward_args *args) {
    args->saved = NULL;
}

static void a_rank_refuses(void **state) {
    (void)state;
    static const struct failure failures[] = {
        {.told =
             {"a layout that the backend refuses", MMOE_REFUSED, MMOE_UNSUPPORTED,
              "rank {culprit} refused call {call}: gate has stride[1] 65, expected a positive multiple of 8 on a GPU",
              "gate has stride[1] 65, expected a positive multiple of 8 on a GPU"},
         .spoil = odd_rows},
        {.told = {"an argument that the library refuses", MMOE_REFUSED, MMOE_INVALID_ARGUMENT,
                  "rank {culprit} refused call {call}: dy has dims 3", "dy has dims 3"},
         .spoil = no_gradient},
        {.told = {"no saved state", MMOE_REFUSED, MMOE_INVALID_ARGUMENT,
                  "rank {culprit} refused call {call}: saved is NULL, expected the saved state of a forward",
                  "saved is NULL, expected the saved state of a forward"},
         .spoil = no_forward},
    };
    for
        GPUS_EACH_WORLD(world)
    run_all(failures, COUNT(failures), world);
}

static void ranks_mean_different_calls(void **state) {
    (void)state;
    static const struct failure failures[] = {
        {.told =
             {"a forward", MMOE_MISMATCH, MMOE_MISMATCH,
              "rank {culprit} issued a forward of layer 0 where this rank issued a backward of layer 0 (call {call})",
              "rank 0 issued a backward of layer 0 where this rank issued a forward of layer 0 (call {call})"},
         .forward = true},
        {.told =
             {"another forward", MMOE_MISMATCH, MMOE_MISMATCH,
              "forward that this backward belongs to is {call-1} on rank {culprit} and {call-2} on rank {rank} (call "
              "{call})",
              "forward that this backward belongs to is {call-2} on rank 0 and {call-1} on rank {rank} (call {call})"},
         .other_forward = true},
        {.told =
             {"another layer", MMOE_MISMATCH, MMOE_MISMATCH,
              "rank {culprit} issued a backward of layer 1 where this rank issued a backward of layer 0 (call {call})",
              "rank 0 issued a backward of layer 0 where this rank issued a backward of layer 1 (call {call})"},
         .other_layer = true},
        {.told = {"other things kept", MMOE_MISMATCH, MMOE_MISMATCH,
                  "recompute, which is 1 when the saved state keeps no rows, is ",
                  "recompute, which is 1 when the saved state keeps no rows, is "},
         .other_keep = true},
    };
    for
        GPUS_EACH_WORLD(world)
    run_all(failures, COUNT(failures), world);
}

static void bad_id(struct rig_batch *batch, int culprit) {
    batch->ids[(rig_batch_first(batch, culprit) + 3) * TOP_K + 1] = 1000;
}

static void all_to_one(struct rig_batch *batch, int culprit) {
    (void)culprit;
    for (int64_t s = 0; s < rig_batch_slots(batch); s++)
        batch->ids[s] = 0;
}

/* Found by the device, after both calls have returned. */
static void the_forward_has_failed(void **state) {
    (void)state;
    static const char no_forward_text[] =
        "the forward that backward {call} belongs to failed, expected one that went well";
    for
        GPUS_EACH_WORLD(world) {
            char text[100];
            snprintf(text, sizeof text, "rank 0 was routed %d rows, expected at most its capacity of %d",
                     world * TOKENS * TOP_K, TOKENS * TOP_K);
            const struct failure failures[] = {
                {.told = {"the backward of a refused forward", MMOE_REFUSED, MMOE_REFUSED, no_forward_text,
                          no_forward_text},
                 .spoil_batch = bad_id,
                 .forward_told = {"a refused forward", MMOE_REFUSED, MMOE_INVALID_ARGUMENT,
                                  "rank {culprit} refused call {call}: ids at token 3, slot 1 is 1000",
                                  "ids at token 3, slot 1 is 1000"}},
                {.told = {"the backward of a forward with too many rows", MMOE_CAPACITY, MMOE_CAPACITY, text, text},
                 .spoil_batch = all_to_one,
                 .forward_told = {"a forward with too many rows", MMOE_CAPACITY, MMOE_CAPACITY, text, text}},
            };
            run_all(failures, COUNT(failures), world);
        }
}

int main(void) {
    const struct CMUnitTest of_processes[] = {
        cmocka_unit_test(a_rank_refuses),
        cmocka_unit_test(the_forward_has_failed),
    };
    const struct CMUnitTest of_threads[] = {
        cmocka_unit_test(a_rank_refuses),
        cmocka_unit_test(ranks_mean_different_calls),
        cmocka_unit_test(the_forward_has_failed),
    };
    return gpus_main(2, GPUS_TESTS(of_processes), GPUS_TESTS(of_threads));
}
