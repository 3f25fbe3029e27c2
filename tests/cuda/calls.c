/* Calls on one GPU apart from their numbers: the plan, what is refused and what that leaves, memory that runs out.
 * MMOE_TEST_BACKEND is "cuda"; the GPU may be a simulated one. */
#include <stdlib.h>
#include <string.h>

#include "rig/rig.h"

#define HIDDEN 64
#define INNER 64
#define EXPERTS 6
#define TOP_K 3
#define TOKENS 50

static struct rig_batch batch_of(const mmoe_layer_config *layer, enum rig_routing routing) {
    int64_t tokens = TOKENS;
    return rig_batch_make(layer, 1, &tokens, routing, 31);
}

/* Runs `body` on a rank with this batch. */
static void run(struct rig_batch *batch, rig_body body) {
    struct rig_world world = rig_world_for(batch, 1, RIG_THREADS);
    rig_world_run(&world, body, batch);
}

static void run_and_free(struct rig_batch batch, rig_body body) {
    run(&batch, body);
    rig_batch_free(&batch);
}

/* ---- The plan ---- */

static void plan_body(struct rig_rank *rank, void *context) {
    struct rig_batch *batch = context;
    const struct rig_options options = {.keep = MMOE_KEEP_PLAN};
    mmoe_layer *layer;
    mmoe_saved *saved;
    RIG_OK(rank, mmoe_layer_create(rank->group, &batch->layer, &layer));
    RIG_OK(rank, mmoe_saved_create(layer, MMOE_KEEP_PLAN, &saved));
    RIG_EXPECT(rank, mmoe_saved_plan(saved) == NULL, "a plan before any forward");
    RIG_EXPECT(rank, rig_step(rank, layer, saved, batch, &options, 0xff), "the step failed");
    const mmoe_plan *found = mmoe_saved_plan(saved);
    if (!rig_plan_is_right(rank, found, batch))
        return;
    RIG_EXPECT(rank, mmoe_saved_plan(saved) == found, "the plan is copied again");
    mmoe_saved_destroy(&saved);
    mmoe_layer_destroy(&layer);
}

static void plan_is_the_hosts(void **state) {
    (void)state;
    mmoe_layer_config layer = rig_layer(HIDDEN, INNER, EXPERTS, TOP_K);
    run_and_free(batch_of(&layer, RIG_HOLES), plan_body);
    run_and_free(batch_of(&layer, RIG_DUPLICATES), plan_body);
    layer.capacity_policy = MMOE_CAPACITY_FIXED;
    layer.capacity = TOKENS * TOP_K / 2;
    layer.drop = 1;
    run_and_free(batch_of(&layer, RIG_ZIPF), plan_body);
}

/* ---- Refusals ---- */

/* A forward that is refused with a sentence, leaves every operand alone, and is followed by one that works. */
struct refusal {
    struct rig_batch batch;
    mmoe_status status;
    const char *sentence;
    void (*spoil)(struct rig_rank *rank, struct rig_call *call); /* after the operands have been placed; may be NULL */
};

static void expect_refusal(struct rig_rank *rank, mmoe_layer *layer, const struct refusal *refusal) {
    const struct rig_options options = {.keep = MMOE_KEEP_PLAN};
    struct rig_call call = rig_call_make(rank, &refusal->batch, &options, NULL, 0x7f);
    struct rig_placed placed;
    RIG_EXPECT(rank, rig_call_place(rank, &call, &placed), "not placed");
    if (refusal->spoil)
        refusal->spoil(rank, &call);
    mmoe_status status = mmoe_forward(layer, &call.forward);
    RIG_EXPECT(rank, status == refusal->status && strstr(mmoe_last_error(), refusal->sentence),
               "%s: \"%s\", expected %s: \"%s\"", mmoe_status_name(status), mmoe_last_error(),
               mmoe_status_name(refusal->status), refusal->sentence);
    RIG_EXPECT(rank, rig_call_fetch(rank, &call, &placed) && rig_call_untouched(&call), "an operand was written");
    rig_placed_free(rank, &placed);
    rig_call_free(&call);
}

static void refusal_body(struct rig_rank *rank, void *context) {
    const struct refusal *refusal = context;
    const struct rig_options options = {.keep = MMOE_KEEP_PLAN};
    mmoe_layer *layer;
    mmoe_saved *saved;
    struct rig_batch good = batch_of(&refusal->batch.layer, RIG_UNUSED);
    RIG_OK(rank, mmoe_layer_create(rank->group, &refusal->batch.layer, &layer));
    RIG_OK(rank, mmoe_saved_create(layer, MMOE_KEEP_PLAN, &saved));
    for (int i = 0; i < 2; i++) {
        expect_refusal(rank, layer, refusal);
        RIG_EXPECT(rank, !rank->failed && rig_step(rank, layer, saved, &good, &options, 0xff),
                   "the call after the refusal failed");
    }
    RIG_OK(rank, mmoe_group_check(rank->group));
    mmoe_saved_destroy(&saved);
    mmoe_layer_destroy(&layer);
    rig_batch_free(&good);
}

static void expect(struct refusal refusal) {
    struct rig_world world = rig_world_for(&refusal.batch, 1, RIG_THREADS);
    rig_world_run(&world, refusal_body, &refusal);
    rig_batch_free(&refusal.batch);
}

static void bad_values(void **state) {
    (void)state;
    mmoe_layer_config layer = rig_layer(HIDDEN, INNER, EXPERTS, TOP_K);
    struct refusal refusal = {.batch = batch_of(&layer, RIG_UNIFORM), .status = MMOE_INVALID_ARGUMENT};
    refusal.batch.ids[17 * TOP_K + 2] = EXPERTS;
    refusal.batch.ids[40 * TOP_K] = -2;
    refusal.sentence = "ids at token 17, slot 2 is 6, expected -1 or 0 .. 5";
    expect(refusal);
    refusal.batch = batch_of(&layer, RIG_UNIFORM);
    refusal.batch.weights[3 * TOP_K + 1] = INFINITY;
    refusal.sentence = "weights at token 3, slot 1 is inf, expected a finite number";
    expect(refusal);
}

/* ---- What is found out when a call has returned ---- */

static void expect_over(struct rig_rank *rank, mmoe_status status) {
    RIG_EXPECT(rank,
               status == MMOE_CAPACITY &&
                   strstr(mmoe_last_error(), "rank 0 was routed 150 rows, expected at most its capacity of 149"),
               "%s: \"%s\"", mmoe_status_name(status), mmoe_last_error());
}

/* A forward of too many rows, and y afterwards. */
static void forward_over(struct rig_rank *rank, mmoe_layer *layer, struct rig_batch *batch, mmoe_report *report,
                         mmoe_status *status) {
    const struct rig_options options = {.keep = MMOE_KEEP_PLAN};
    struct rig_call call = rig_call_make(rank, batch, &options, NULL, 0x7f);
    struct rig_placed placed;
    RIG_EXPECT(rank, rig_call_place(rank, &call, &placed), "not placed");
    call.forward.report = report;
    *status = mmoe_forward(layer, &call.forward);
    RIG_EXPECT(rank, rig_call_fetch(rank, &call, &placed) && rig_operand_is_nan(&call, RIG_Y), "y is not all NaN");
    rig_placed_free(rank, &placed);
    rig_call_free(&call);
}

static void over_body(struct rig_rank *rank, void *context) {
    struct rig_batch *batch = context;
    const struct rig_options options = {.keep = MMOE_KEEP_PLAN};
    mmoe_layer *layer;
    mmoe_saved *saved;
    mmoe_report report;
    mmoe_status status;
    struct rig_batch good = batch_of(&batch->layer, RIG_UNUSED);
    RIG_OK(rank, mmoe_layer_create(rank->group, &batch->layer, &layer));
    RIG_OK(rank, mmoe_saved_create(layer, MMOE_KEEP_PLAN, &saved));
    forward_over(rank, layer, batch, NULL, &status);
    RIG_OK(rank, status);
    expect_over(rank, mmoe_group_check(rank->group));
    RIG_OK(rank, mmoe_group_check(rank->group));
    forward_over(rank, layer, batch, &report, &status);
    expect_over(rank, status);
    RIG_OK(rank, mmoe_group_check(rank->group));
    forward_over(rank, layer, batch, NULL, &status);
    RIG_OK(rank, status);
    forward_over(rank, layer, batch, NULL, &status); /* made, and tells of the one before */
    expect_over(rank, status);
    expect_over(rank, mmoe_group_check(rank->group));
    RIG_EXPECT(rank, rig_step(rank, layer, saved, &good, &options, 0xff), "a call after it failed");
    mmoe_saved_destroy(&saved);
    mmoe_layer_destroy(&layer);
    rig_batch_free(&good);
}

static void over_capacity(void **state) {
    (void)state;
    mmoe_layer_config layer = rig_layer(HIDDEN, INNER, EXPERTS, TOP_K);
    layer.capacity_policy = MMOE_CAPACITY_FIXED;
    layer.capacity = TOKENS * TOP_K - 1;
    run_and_free(batch_of(&layer, RIG_UNIFORM), over_body);
}

static void host_memory(struct rig_rank *rank, struct rig_call *call) {
    (void)rank;
    call->forward.x = call->tensor[RIG_X].view;
}

static void host_weight(struct rig_rank *rank, struct rig_call *call) {
    (void)rank;
    call->forward.down = call->tensor[RIG_DOWN].view;
}

static void odd_rows(struct rig_rank *rank, struct rig_call *call) {
    (void)rank;
    call->forward.gate.stride[1] = HIDDEN + 1;
}

static void transposed(struct rig_rank *rank, struct rig_call *call) {
    (void)rank;
    call->forward.up.stride[1] = 1;
    call->forward.up.stride[2] = INNER;
}

static void misaligned(struct rig_rank *rank, struct rig_call *call) {
    (void)rank;
    call->forward.down.data = (char *)call->forward.down.data + 2;
}

static void bad_tensors(void **state) {
    (void)state;
    const struct {
        void (*spoil)(struct rig_rank *rank, struct rig_call *call);
        mmoe_status status;
        const char *sentence;
    } all[] = {
        {host_memory, MMOE_INVALID_ARGUMENT, "expected memory of GPU 0"},
        {host_weight, MMOE_INVALID_ARGUMENT, "expected memory of GPU 0"},
        {odd_rows, MMOE_UNSUPPORTED, "gate has stride[1] 65, expected a positive multiple of 8 on a GPU"},
        {transposed, MMOE_UNSUPPORTED, "up has stride[2] 64, expected 1 on a GPU"},
        {misaligned, MMOE_UNSUPPORTED, "expected a multiple of 16 on a GPU"},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        mmoe_layer_config layer = rig_layer(HIDDEN, INNER, EXPERTS, TOP_K);
        expect((struct refusal){.batch = batch_of(&layer, RIG_UNIFORM),
                                .status = all[i].status,
                                .sentence = all[i].sentence,
                                .spoil = all[i].spoil});
    }
}

/* ---- Set-up ---- */

static void expect_unsupported(const mmoe_layer_config *layer, int world, const char *sentence) {
    const char *reason = mmoe_unsupported_reason("cuda", layer, world);
    if (reason == NULL || strstr(reason, sentence) == NULL)
        fail_msg("\"%s\", expected \"%s\"", reason ? reason : "supported", sentence);
}

static void unsupported(void **state) {
    (void)state;
    mmoe_layer_config layer = rig_layer(72, INNER, EXPERTS, TOP_K);
    expect_unsupported(&layer, 1, "hidden is 72, expected a multiple of 64");
    layer = rig_layer(HIDDEN, 96, EXPERTS, TOP_K);
    expect_unsupported(&layer, 1, "intermediate is 96, expected a multiple of 64");
    layer = rig_layer(HIDDEN, INNER, EXPERTS, TOP_K);
    assert_null(mmoe_unsupported_reason("cuda", &layer, 1));
    assert_null(mmoe_unsupported_reason("cuda", &layer, 2));
    layer.weight_on = MMOE_WEIGHT_ON_INPUT;
    expect_unsupported(&layer, 1, "weight_on is 1");
}

static void adopted_memory_of_the_host(void **state) {
    (void)state;
    struct rig_world world = rig_world_make(1, RIG_THREADS, TOKENS, HIDDEN, TOP_K, EXPERTS);
    _Alignas(128) char host[128] = {0};
    void *segment = host;
    mmoe_group *group;
    assert_int_equal(mmoe_group_create_adopted(&world.config, 0, 1, &segment, &group), MMOE_INVALID_ARGUMENT);
    assert_non_null(strstr(mmoe_last_error(), "is not of a GPU"));
    assert_null(group);
}

static void device_memory(void **state) {
    (void)state;
    struct rig_world world = rig_world_make(1, RIG_THREADS, TOKENS, HIDDEN, TOP_K, EXPERTS);
    mmoe_group *group;
    void *memory;
    char text[] = "abcdef", back[sizeof text] = "";
    assert_int_equal(mmoe_group_create_threads(&world.config, 1, &group), MMOE_OK);
    assert_int_equal(mmoe_group_device(group), 0);
    assert_int_equal(mmoe_device_alloc(group, sizeof text, &memory), MMOE_OK);
    assert_int_equal(mmoe_device_write(group, memory, text, sizeof text), MMOE_OK);
    assert_int_equal(mmoe_device_read(group, back, memory, sizeof text), MMOE_OK);
    assert_string_equal(text, back);
    mmoe_device_free(group, &memory);
    assert_null(memory);
    mmoe_device_free(group, &memory);
    assert_int_equal(mmoe_device_alloc(group, 0, &memory), MMOE_OK);
    mmoe_device_free(group, &memory);
    assert_int_equal(mmoe_device_alloc(group, (size_t)1 << 50, &memory), MMOE_OUT_OF_MEMORY);
    assert_non_null(strstr(mmoe_last_error(), "1125899906842624 bytes asked"));
    assert_null(memory);
    mmoe_group_destroy(&group);
    world.config.backend = "cpu";
    assert_int_equal(mmoe_group_create_threads(&world.config, 1, &group), MMOE_OK);
    assert_int_equal(mmoe_group_device(group), -1);
    assert_int_equal(mmoe_device_alloc(group, 1, &memory), MMOE_INVALID_ARGUMENT);
    mmoe_group_destroy(&group);
}

/* ---- Reports and memory ---- */

static void report_body(struct rig_rank *rank, void *context) {
    struct rig_batch *batch = context;
    const struct rig_options options = {.keep = MMOE_KEEP_ROWS};
    mmoe_layer *layer;
    mmoe_saved *saved;
    mmoe_report forward, backward;
    struct rig_placed placed;
    RIG_OK(rank, mmoe_layer_create(rank->group, &batch->layer, &layer));
    RIG_OK(rank, mmoe_saved_create(layer, MMOE_KEEP_ROWS, &saved));
    struct rig_call call = rig_call_make(rank, batch, &options, saved, 0xff);
    RIG_EXPECT(rank, rig_call_place(rank, &call, &placed), "not placed");
    call.forward.report = &forward;
    call.backward.report = &backward;
    RIG_OK(rank, mmoe_forward(layer, &call.forward));
    RIG_OK(rank, mmoe_backward(layer, &call.backward));
    RIG_EXPECT(rank, forward.call == 1 && backward.call == 2, "calls %u and %u", forward.call, backward.call);
    RIG_EXPECT(rank, forward.rows == TOKENS * TOP_K && forward.padded_rows % MMOE_ROW_BLOCK == 0, "%lld rows of %lld",
               (long long)forward.rows, (long long)forward.padded_rows);
    RIG_EXPECT(rank,
               forward.seconds_exchange > 0 && forward.seconds_plan > 0 && forward.seconds_fused > 0 &&
                   forward.seconds_gate_up == 0 && forward.seconds_dgrad == 0,
               "times of the forward");
    RIG_EXPECT(rank,
               backward.seconds_exchange > 0 && backward.seconds_plan > 0 && backward.seconds_fused > 0 &&
                   backward.seconds_wgrad > 0 && backward.seconds_combine > 0 && backward.seconds_dgrad == 0,
               "times of the backward");
    rig_placed_free(rank, &placed);
    rig_call_free(&call);
    mmoe_saved_destroy(&saved);
    mmoe_layer_destroy(&layer);
}

static void reports(void **state) {
    (void)state;
    mmoe_layer_config layer = rig_layer(HIDDEN, INNER, EXPERTS, TOP_K);
    run_and_free(batch_of(&layer, RIG_UNIFORM), report_body);
}

/* A piece of the device's memory, or NULL when less than twice as much as `left` is there. */
static void *take_memory(struct rig_rank *rank, size_t left) {
    void *memory = NULL;
    for (size_t bytes = (size_t)1 << 42; bytes > left && !memory; bytes /= 2)
        if (mmoe_device_alloc(rank->group, bytes, &memory) != MMOE_OK)
            memory = NULL;
    return memory;
}

static void full_body(struct rig_rank *rank, void *context) {
    struct rig_batch *batch = context;
    const struct rig_options options = {.keep = MMOE_KEEP_PLAN};
    void *taken[64];
    int count = 0;
    mmoe_layer *layer;
    struct rig_placed placed;
    RIG_OK(rank, mmoe_layer_create(rank->group, &batch->layer, &layer));
    struct rig_call call = rig_call_make(rank, batch, &options, NULL, 0x7f);
    RIG_EXPECT(rank, rig_call_place(rank, &call, &placed), "not placed");
    while (count < 64 && (taken[count] = take_memory(rank, 1 << 17)))
        count++;
    RIG_EXPECT(rank, mmoe_forward(layer, &call.forward) == MMOE_OUT_OF_MEMORY, "no memory was needed");
    RIG_EXPECT(rank, strstr(mmoe_last_error(), "bytes asked"), "\"%s\"", mmoe_last_error());
    RIG_EXPECT(rank, rig_call_fetch(rank, &call, &placed) && rig_operand_is_nan(&call, RIG_Y), "y is not NaN");
    RIG_EXPECT(rank, mmoe_forward(layer, &call.forward) == MMOE_BROKEN, "the group is not broken");
    while (count > 0)
        mmoe_device_free(rank->group, &taken[--count]);
    rig_placed_free(rank, &placed);
    rig_call_free(&call);
    mmoe_layer_destroy(&layer);
}

/* Where all memory has been taken, a plan still finds room in what is left, and the pools of rows, 1 KiB each, must
 * find none: a driver has taken memory for its streams from the device, 32 MiB at a time. */
static void memory_runs_out(void **state) {
    (void)state;
    const mmoe_layer_config layer = rig_layer(512, INNER, EXPERTS, TOP_K);
    const int64_t tokens = rig_simulated() ? TOKENS : 50000;
    run_and_free(rig_batch_make(&layer, 1, &tokens, RIG_UNIFORM, 31), full_body);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan_is_the_hosts), cmocka_unit_test(bad_values),
        cmocka_unit_test(over_capacity),     cmocka_unit_test(bad_tensors),
        cmocka_unit_test(unsupported),       cmocka_unit_test(adopted_memory_of_the_host),
        cmocka_unit_test(device_memory),     cmocka_unit_test(reports),
        cmocka_unit_test(memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
