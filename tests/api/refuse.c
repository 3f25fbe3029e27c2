/* A rank that has nothing to call with: the others fail with its reason, nothing is written, and the next calls work.
 */
#include <stdio.h>
#include <string.h>

#include "rig/rig.h"
#include "undisturbed.h"

enum { TOKENS = 4, HIDDEN = 8, INTERMEDIATE = 6, EXPERTS = 4, TOP_K = 2 };

static const struct rig_options plan_kept;

struct refusal {
    bool backward;
    const char *reason, *text; /* what is told of it */
};

static const struct refusal refusals[] = {
    {false, "there is no memory for y", "there is no memory for y"},
    {true, "there is no memory for dx, 100% is in use", "there is no memory for dx, 100% is in use"},
    {false, "", ""},
    {true, NULL, "reason is NULL, expected a sentence"},
};
enum { REFUSALS = sizeof refusals / sizeof refusals[0] };

static mmoe_status take_part(const struct refusal *refusal, bool refuses, mmoe_layer *layer,
                             const struct rig_call *call) {
    if (refuses)
        return refusal->backward ? mmoe_refuse_backward(layer, NULL, refusal->reason)
                                 : mmoe_refuse_forward(layer, NULL, refusal->reason);
    return refusal->backward ? mmoe_backward(layer, &call->backward) : mmoe_forward(layer, &call->forward);
}

static bool is_told(struct rig_rank *rank, const struct refusal *refusal, int refusing, mmoe_status status) {
    char expected[160];
    if (rank->rank == refusing)
        snprintf(expected, sizeof expected, "%s", refusal->text);
    else
        snprintf(expected, sizeof expected, ": %s", refusal->text);
    const char *said = mmoe_last_error(), *end = strstr(said, expected);
    RIG_TRY(rank, status == (rank->rank == refusing ? MMOE_INVALID_ARGUMENT : MMOE_REFUSED), "%s (%s)",
            mmoe_status_name(status), said);
    RIG_TRY(rank, end != NULL && (rank->rank == refusing ? end == said : strncmp(said, "rank ", 5) == 0),
            "\"%s\", expected \"%s\"", said, expected);
    return true;
}

static bool refuse_once(struct rig_rank *rank, const struct refusal *refusal, int refusing, mmoe_layer *layer,
                        mmoe_saved *saved, struct rig_batch *batch) {
    struct rig_call call = rig_call_make(rank, batch, &plan_kept, saved, 0xff);
    const mmoe_status status = take_part(refusal, rank->rank == refusing, layer, &call);
    const bool good = is_told(rank, refusal, refusing, status);
    RIG_TRY(rank, rig_call_untouched(&call), "a refused call wrote something (\"%s\")", refusal->text);
    rig_call_free(&call);
    return good && rig_step(rank, layer, saved, batch, &plan_kept, 0xff);
}

static void refuse_on_a_rank(struct rig_rank *rank, void *context) {
    struct rig_batch *batch = context;
    mmoe_layer *layer;
    mmoe_saved *saved;
    RIG_OK(rank, mmoe_layer_create(rank->group, &batch->layer, &layer));
    RIG_OK(rank, mmoe_saved_create(layer, MMOE_KEEP_PLAN, &saved));
    bool good = rig_step(rank, layer, saved, batch, &plan_kept, 0xff);
    for (int i = 0; i < REFUSALS && good; i++)
        good = refuse_once(rank, &refusals[i], i % rank->world, layer, saved, batch);
    mmoe_saved_destroy(&saved);
    mmoe_layer_destroy(&layer);
}

static void the_others_are_told(void **state) {
    (void)state;
    const int64_t tokens[] = {TOKENS, TOKENS};
    mmoe_layer_config layer = rig_layer(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K);
    for (int world = 1; world <= 2; world++) {
        struct rig_batch batch = rig_batch_make(&layer, world, tokens, RIG_UNIFORM, 1);
        struct rig_world stage = rig_world_make(world, RIG_THREADS, TOKENS, HIDDEN, TOP_K, EXPERTS);
        rig_world_run(&stage, refuse_on_a_rank, &batch);
        compare_with_undisturbed(&batch, &plan_kept, 1);
        rig_batch_free(&batch);
    }
}

static void a_layer_is_needed(void **state) {
    (void)state;
    assert_int_equal(mmoe_refuse_forward(NULL, NULL, "none"), MMOE_INVALID_ARGUMENT);
    assert_int_equal(mmoe_refuse_backward(NULL, NULL, "none"), MMOE_INVALID_ARGUMENT);
    assert_non_null(strstr(mmoe_last_error(), "layer is NULL"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_others_are_told),
        cmocka_unit_test(a_layer_is_needed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
