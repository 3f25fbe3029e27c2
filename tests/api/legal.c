/* Legal calls that a cruder check of the arguments would refuse. */
#include <string.h>

#include "rig/rig.h"
#include "undisturbed.h"

enum { TOKENS = 4, HIDDEN = 8, INTERMEDIATE = 6, EXPERTS = 4, TOP_K = 2 };

static const struct rig_options plan_kept;

/* The left or the right half of the columns of a matrix twice as wide. */
static mmoe_tensor half(uint16_t *wide, int right) {
    mmoe_tensor tensor = mmoe_matrix(wide + right * HIDDEN, MMOE_BF16, TOKENS, HIDDEN);
    tensor.stride[0] = 2 * HIDDEN;
    return tensor;
}

/* B18: x and y, and dy and dx, as the column halves of one matrix each. */
static void halves_on_a_rank(struct rig_rank *rank, void *context) {
    struct rig_batch *batch = context;
    mmoe_layer *layer;
    mmoe_saved *saved;
    RIG_OK(rank, mmoe_layer_create(rank->group, &batch->layer, &layer));
    RIG_OK(rank, mmoe_saved_create(layer, MMOE_KEEP_PLAN, &saved));
    struct rig_call call = rig_call_make(rank, batch, &plan_kept, saved, 0xff);
    uint16_t forward[TOKENS * 2 * HIDDEN], backward[TOKENS * 2 * HIDDEN];
    for (int t = 0; t < TOKENS; t++)
        for (int h = 0; h < HIDDEN; h++) {
            forward[t * 2 * HIDDEN + h] = batch->x[t * HIDDEN + h];
            backward[t * 2 * HIDDEN + HIDDEN + h] = batch->dy[t * HIDDEN + h];
        }
    call.forward.x = call.backward.x = half(forward, 0);
    call.forward.y = half(forward, 1);
    call.backward.dy = half(backward, 1);
    call.backward.dx = half(backward, 0);
    RIG_OK(rank, mmoe_forward(layer, &call.forward));
    RIG_OK(rank, mmoe_backward(layer, &call.backward));
    for (int t = 0; t < TOKENS; t++)
        for (int h = 0; h < HIDDEN; h++) {
            batch->y[t * HIDDEN + h] = forward[t * 2 * HIDDEN + HIDDEN + h];
            batch->dx[t * HIDDEN + h] = backward[t * 2 * HIDDEN + h];
            RIG_EXPECT(rank, forward[t * 2 * HIDDEN + h] == batch->x[t * HIDDEN + h], "x changed");
            RIG_EXPECT(rank, backward[t * 2 * HIDDEN + HIDDEN + h] == batch->dy[t * HIDDEN + h], "dy changed");
        }
    /* The other gradients are where the batch looks for them; these two were left alone. */
    uint16_t y[TOKENS * HIDDEN], dx[TOKENS * HIDDEN];
    memcpy(y, batch->y, sizeof y);
    memcpy(dx, batch->dx, sizeof dx);
    RIG_EXPECT(rank, rig_call_take_backward(rank, &call, batch), "took more than the gradients");
    memcpy(batch->y, y, sizeof y);
    memcpy(batch->dx, dx, sizeof dx);
    rig_call_free(&call);
    mmoe_saved_destroy(&saved);
    mmoe_layer_destroy(&layer);
}

static void b18_outputs_interleave_with_inputs(void **state) {
    (void)state;
    const int64_t tokens[] = {TOKENS};
    mmoe_layer_config layer = rig_layer(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K);
    struct rig_batch batch = rig_batch_make(&layer, 1, tokens, RIG_UNIFORM, 2);
    struct rig_world stage = rig_world_make(1, RIG_THREADS, TOKENS, HIDDEN, TOP_K, EXPERTS);
    rig_world_run(&stage, halves_on_a_rank, &batch);
    compare_with_undisturbed(&batch, &plan_kept, 2);
    rig_batch_free(&batch);
}

/* Inputs may be one and the same memory, and no token needs no address. */
static void odd_inputs_on_a_rank(struct rig_rank *rank, void *context) {
    struct rig_batch *batch = context;
    mmoe_layer *layer;
    RIG_OK(rank, mmoe_layer_create(rank->group, &batch->layer, &layer));
    struct rig_call call = rig_call_make(rank, batch, &plan_kept, NULL, 0xff);
    call.forward.up = call.forward.gate;
    void *experts[EXPERTS];
    for (int e = 0; e < EXPERTS; e++)
        experts[e] = call.forward.gate.data;
    call.forward.gate = mmoe_stack_of(experts, MMOE_BF16, EXPERTS, INTERMEDIATE, HIDDEN);
    RIG_OK(rank, mmoe_forward(layer, &call.forward));
    call.forward.x = call.forward.y = mmoe_matrix(NULL, MMOE_BF16, 0, HIDDEN);
    call.forward.ids = mmoe_matrix(NULL, MMOE_I64, 0, TOP_K);
    call.forward.weights = mmoe_matrix(NULL, MMOE_F32, 0, TOP_K);
    RIG_OK(rank, mmoe_forward(layer, &call.forward));
    rig_call_free(&call);
    mmoe_layer_destroy(&layer);
}

static void inputs_may_share_memory_and_be_empty(void **state) {
    (void)state;
    const int64_t tokens[] = {TOKENS};
    mmoe_layer_config layer = rig_layer(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K);
    struct rig_batch batch = rig_batch_make(&layer, 1, tokens, RIG_UNIFORM, 3);
    struct rig_world stage = rig_world_make(1, RIG_THREADS, TOKENS, HIDDEN, TOP_K, EXPERTS);
    rig_world_run(&stage, odd_inputs_on_a_rank, &batch);
    rig_batch_free(&batch);
}

/* A dimension of one element is not stepped along. x and y lie between one another's elements, so that the search for
 * a shared address looks at all strides. */
static void one_token_on_a_rank(struct rig_rank *rank, void *context) {
    struct rig_batch *batch = context;
    mmoe_layer *layer;
    RIG_OK(rank, mmoe_layer_create(rank->group, &batch->layer, &layer));
    struct rig_call call = rig_call_make(rank, batch, &plan_kept, NULL, 0xff);
    uint16_t woven[2 * HIDDEN];
    for (int h = 0; h < HIDDEN; h++)
        woven[2 * h] = batch->x[h];
    call.forward.x = mmoe_matrix(woven, MMOE_BF16, 1, HIDDEN);
    call.forward.y = mmoe_matrix(woven + 1, MMOE_BF16, 1, HIDDEN);
    call.forward.x.stride[1] = call.forward.y.stride[1] = 2;
    call.forward.x.stride[0] = INT64_MIN;
    call.forward.y.stride[0] = INT64_MAX;
    RIG_OK(rank, mmoe_forward(layer, &call.forward));
    for (int h = 0; h < HIDDEN; h++)
        batch->y[h] = woven[2 * h + 1];
    rig_call_free(&call);
    mmoe_layer_destroy(&layer);
}

static void a_dimension_of_one_has_any_stride(void **state) {
    (void)state;
    const int64_t tokens[] = {1};
    mmoe_layer_config layer = rig_layer(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K);
    struct rig_batch batch = rig_batch_make(&layer, 1, tokens, RIG_UNIFORM, 4), again;
    again = rig_batch_make(&layer, 1, tokens, RIG_UNIFORM, 4);
    struct rig_world stage = rig_world_make(1, RIG_THREADS, 1, HIDDEN, TOP_K, EXPERTS);
    rig_world_run(&stage, one_token_on_a_rank, &batch);
    rig_run(&stage, &again, 1, &plan_kept);
    assert_memory_equal(batch.y, again.y, HIDDEN * sizeof *batch.y);
    rig_batch_free(&batch);
    rig_batch_free(&again);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b18_outputs_interleave_with_inputs),
        cmocka_unit_test(inputs_may_share_memory_and_be_empty),
        cmocka_unit_test(a_dimension_of_one_has_any_stride),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
