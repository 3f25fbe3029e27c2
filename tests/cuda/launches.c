/* A kernel that can't be launched: the call says which, its outputs are NaN, what it may have added to is named, and
 * the group is broken. MMOE_TEST_BACKEND is "cuda" and the GPU a simulated one, whose driver refuses to launch kernels
 * of a name. */
#include <stdlib.h>
#include <string.h>

#include "rig/rig.h"

enum { HIDDEN = 64, INNER = 64, EXPERTS = 3, TOP_K = 2, TOKENS = 20 };

#define NO_LAUNCH "MEGAMOE_SIM_NO_LAUNCH"
#define MAY_BE_SPOILT "; dgate, dup and ddown may be spoilt: a part may have been added to them"

struct refused_launch {
    const char *kernel;
    bool backward;
    bool accumulate, adds; /* gradients of weights are added to; they may have been, when it fails */
    struct rig_batch *batch;
};

static mmoe_status make_call(mmoe_layer *layer, const struct refused_launch *refused, const struct rig_call *call) {
    return refused->backward ? mmoe_backward(layer, &call->backward) : mmoe_forward(layer, &call->forward);
}

static bool is_told(struct rig_rank *rank, const struct refused_launch *refused, mmoe_status status) {
    const char *said = mmoe_last_error();
    RIG_TRY(rank, status != MMOE_OK && strstr(said, refused->kernel) != NULL, "%s: \"%s\", expected %s to be named",
            mmoe_status_name(status), said, refused->kernel);
    RIG_TRY(rank, (strstr(said, MAY_BE_SPOILT) != NULL) == refused->adds, "\"%s\", of %s%s", said, refused->kernel,
            refused->accumulate ? ", added to" : "");
    return true;
}

static bool is_nan(struct rig_rank *rank, const struct refused_launch *refused, const struct rig_call *call) {
    static const enum rig_operand forward[] = {RIG_Y},
                                  backward[] = {RIG_DX, RIG_DWEIGHTS, RIG_DGATE, RIG_DUP, RIG_DDOWN};
    const enum rig_operand *all = refused->backward ? backward : forward;
    const int count = !refused->backward ? 1 : refused->accumulate ? 2 : 5;
    for (int i = 0; i < count; i++)
        RIG_TRY(rank, rig_operand_is_nan(call, all[i]), "operand %d looks good after %s", (int)all[i], refused->kernel);
    return true;
}

static void refuse_on_a_rank(struct rig_rank *rank, void *context) {
    const struct refused_launch *refused = context;
    const struct rig_options options = {.keep = MMOE_KEEP_PLAN, .accumulate = refused->accumulate};
    mmoe_layer *layer;
    mmoe_saved *saved;
    struct rig_placed placed;
    RIG_OK(rank, mmoe_layer_create(rank->group, &refused->batch->layer, &layer));
    RIG_OK(rank, mmoe_saved_create(layer, MMOE_KEEP_PLAN, &saved));
    struct rig_call call = rig_call_make(rank, refused->batch, &options, saved, 0x7f);
    RIG_EXPECT(rank, rig_call_place(rank, &call, &placed), "not placed");
    if (refused->backward)
        RIG_OK(rank, mmoe_forward(layer, &call.forward));
    RIG_EXPECT(rank, setenv(NO_LAUNCH, refused->kernel, 1) == 0, "no memory");
    const mmoe_status status = make_call(layer, refused, &call);
    if (!is_told(rank, refused, status))
        return;
    unsetenv(NO_LAUNCH);
    const mmoe_status next = mmoe_forward(layer, &call.forward);
    RIG_EXPECT(rank, next == MMOE_BROKEN && strstr(mmoe_last_error(), refused->kernel) != NULL, "the next call: %s: %s",
               mmoe_status_name(next), mmoe_last_error());
    if (!rig_call_fetch(rank, &call, &placed) || !is_nan(rank, refused, &call))
        return;
    rig_call_free(&call);
    mmoe_saved_destroy(&saved);
    mmoe_layer_destroy(&layer);
}

static void refuse(struct refused_launch refused) {
    mmoe_layer_config layer = rig_layer(HIDDEN, INNER, EXPERTS, TOP_K);
    const int64_t tokens = TOKENS;
    struct rig_batch batch = rig_batch_make(&layer, 1, &tokens, RIG_UNIFORM, 3);
    struct rig_world world = rig_world_for(&batch, 1, RIG_THREADS);
    refused.batch = &batch;
    rig_world_run(&world, refuse_on_a_rank, &refused);
    unsetenv(NO_LAUNCH);
    rig_batch_free(&batch);
}

static void forwards(void **state) {
    (void)state;
    const char *const kernels[] = {"mm_call_open",   "mm_call_enter",  "mm_call_meet",
                                   "mm_count_slots", "mm_place_slots", "mm_forward"};
    for (size_t k = 0; k < sizeof kernels / sizeof kernels[0]; k++)
        refuse((struct refused_launch){.kernel = kernels[k]});
}

static void backwards(void **state) {
    (void)state;
    const struct {
        const char *kernel;
        bool after_adding;
    } kernels[] = {{"mm_call_open", false},   {"mm_call_enter", false}, {"mm_call_meet", false},
                   {"mm_plan_resume", false}, {"mm_backward", false},   {"mm_wgrad_f32", true},
                   {"mm_backward_end", true}};
    for (size_t k = 0; k < sizeof kernels / sizeof kernels[0]; k++)
        for (int accumulate = 0; accumulate < 2; accumulate++)
            refuse((struct refused_launch){.kernel = kernels[k].kernel,
                                           .backward = true,
                                           .accumulate = accumulate,
                                           .adds = accumulate && kernels[k].after_adding});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forwards),
        cmocka_unit_test(backwards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
