/* Calls on streams of the caller, on one GPU. */
#include "fixture.h"
#include "graphs.h"

static struct rig_batch some_batch(void) {
    mmoe_layer_config layer = rig_layer(128, 64, 4, 2);
    const int64_t tokens = 50;
    return rig_batch_make(&layer, 1, &tokens, RIG_HOLES, 501);
}

/* ---- A stream of the caller ---- */

struct same {
    struct rig_batch first, other;
};

/* Forward and backward on a stream that nothing but these calls and the wait for it orders. */
static void own_stream_body(struct rig_rank *rank, void *context) {
    struct rig_batch *batch = &((struct same *)context)->other;
    const struct rig_options options = {.keep = MMOE_KEEP_ROWS};
    mmoe_layer *layer;
    mmoe_saved *saved;
    mm_cu_stream stream;
    struct rig_placed placed;
    RIG_OK(rank, mmoe_layer_create(rank->group, &batch->layer, &layer));
    RIG_OK(rank, mmoe_saved_create(layer, MMOE_KEEP_ROWS, &saved));
    struct rig_call call = rig_call_make(rank, batch, &options, saved, 0xff);
    RIG_EXPECT(rank, rig_call_place(rank, &call, &placed), "not placed");
    RIG_EXPECT(rank, stream_make(rank, &stream), "no stream");
    call.forward.stream = call.backward.stream = stream;
    for (int i = 0; i < 3; i++) {
        RIG_OK(rank, mmoe_forward(layer, &call.forward));
        RIG_OK(rank, mmoe_backward(layer, &call.backward));
    }
    RIG_EXPECT(rank,
               stream_await(rank, stream) && rig_call_fetch(rank, &call, &placed) &&
                   rig_call_take_forward(rank, &call, batch) && rig_call_take_backward(rank, &call, batch),
               "not taken");
    stream_free(rank, stream);
    rig_placed_free(rank, &placed);
    rig_call_free(&call);
    mmoe_saved_destroy(&saved);
    mmoe_layer_destroy(&layer);
}

static void a_stream_of_the_caller_gives_the_same_bits(void **state) {
    (void)state;
    const struct rig_options options = {.keep = MMOE_KEEP_ROWS};
    struct same same = {some_batch(), some_batch()};
    run_one(&same.first, &options);
    struct rig_world world = rig_world_for(&same.other, 1, RIG_THREADS);
    rig_world_run(&world, own_stream_body, &same);
    rig_same_bits(&same.first, &same.other, "another stream");
    rig_batch_free(&same.first);
    rig_batch_free(&same.other);
}

/* ---- Its plan ---- */

/* As soon as the forward has returned. */
static void plan_body(struct rig_rank *rank, void *context) {
    struct rig_batch *batch = context;
    const struct rig_options options = {.keep = MMOE_KEEP_PLAN};
    struct fixture fixture;
    if (!fixture_make(rank, batch, &options, &fixture))
        return;
    for (int i = 0; i < 3; i++) {
        RIG_OK(rank, mmoe_forward(fixture.layer, &fixture.call.forward));
        if (!rig_plan_is_right(rank, mmoe_saved_plan(fixture.saved), batch))
            return;
    }
    RIG_EXPECT(rank, stream_await(rank, fixture.stream), "not ended");
    fixture_free(rank, &fixture);
}

static void the_plan_is_awaited(void **state) {
    (void)state;
    for (int fixed = 0; fixed < 2; fixed++) {
        struct rig_batch batch = some_batch();
        batch.layer.capacity_policy = fixed ? MMOE_CAPACITY_FIXED : MMOE_CAPACITY_GROW;
        batch.layer.capacity = fixed ? rig_batch_slots(&batch) : 0;
        struct rig_world world = rig_world_for(&batch, 1, RIG_THREADS);
        rig_world_run(&world, plan_body, &batch);
        rig_batch_free(&batch);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_of_the_caller_gives_the_same_bits),
        cmocka_unit_test(the_plan_is_awaited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
