/* Offsets, numbers of rows and numbers of calls past a limit, and values past that of another type, on one GPU. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "support.h"

/* ---- B11: weights past 2^31 elements ---- */

#define STACK_EXPERTS 256
#define STACK_HIDDEN 7168
#define STACK_INNER 2048
#define STACK_MATRIX ((size_t)STACK_HIDDEN * STACK_INNER)

/* Experts of which one straddles 2^31 bytes of its stack, one begins past them, one straddles 2^31 elements and one
 * begins past these. */
static const int lates[] = {73, 80, 146, 200};

/* Memory of the device for a stack, of which only the late experts' matrices are written: zeros and one number. */
static void *late_stack(struct rig_rank *rank, size_t at, float value) {
    void *stack = NULL;
    uint16_t *matrix = calloc(STACK_MATRIX, sizeof *matrix);
    matrix[at] = mm_bf16_from_float(value);
    mmoe_status status = mmoe_device_alloc(rank->group, STACK_EXPERTS * STACK_MATRIX * sizeof *matrix, &stack);
    for (int i = 0; i < COUNT(lates) && status == MMOE_OK; i++)
        status = mmoe_device_write(rank->group, (uint16_t *)stack + (size_t)lates[i] * STACK_MATRIX, matrix,
                                   STACK_MATRIX * sizeof *matrix);
    if (status != MMOE_OK)
        rig_fail(rank, __FILE__, __LINE__, "no weights on the device: %s", mmoe_last_error());
    free(matrix);
    return stack;
}

static void *on_device(struct rig_rank *rank, const void *values, size_t bytes) {
    void *memory = NULL;
    if (mmoe_device_alloc(rank->group, bytes, &memory) != MMOE_OK ||
        mmoe_device_write(rank->group, memory, values, bytes) != MMOE_OK)
        rig_fail(rank, __FILE__, __LINE__, "no memory on the device: %s", mmoe_last_error());
    return memory;
}

/* Experts whose gradients are looked at beside that of the one with a row, in their last element. */
#define OTHERS 6

static size_t other_end(size_t i) {
    return (i * 51 + 1) * STACK_MATRIX - 1;
}

/* A gradient: NaN where it is looked at. */
static void *late_gradient(struct rig_rank *rank) {
    const uint16_t nan = 0xffff;
    void *stack = late_stack(rank, 0, NAN);
    for (size_t i = 0; i < OTHERS && !rank->failed; i++)
        if (mmoe_device_write(rank->group, (uint16_t *)stack + other_end(i), &nan, sizeof nan) != MMOE_OK)
            rig_fail(rank, __FILE__, __LINE__, "can't write: %s", mmoe_last_error());
    return stack;
}

/* Element `at` of a stack. */
static float element(struct rig_rank *rank, const void *stack, size_t at) {
    uint16_t value = 0xffff;
    if (mmoe_device_read(rank->group, &value, (const uint16_t *)stack + at, sizeof value) != MMOE_OK)
        rig_fail(rank, __FILE__, __LINE__, "can't read: %s", mmoe_last_error());
    return mm_bf16_to_float(value);
}

/* The gate of unit 5 is 64 times feature 1; it passes feature 3 on to feature 4. So x = h % 7 gives y[4] = 3. */
#define GATE_AT ((size_t)5 * STACK_HIDDEN + 1)
#define UP_AT ((size_t)5 * STACK_HIDDEN + 3)
#define DOWN_AT ((size_t)4 * STACK_INNER + 5)

struct late {
    mmoe_forward_args forward;
    mmoe_backward_args backward;
};

static void check_late(struct rig_rank *rank, const struct late *late, size_t expert) {
    uint16_t y[STACK_HIDDEN];
    RIG_OK(rank, mmoe_device_read(rank->group, y, late->forward.y.data, sizeof y));
    for (int h = 0; h < STACK_HIDDEN; h++)
        RIG_EXPECT(rank, mm_bf16_to_float(y[h]) == (h == 4 ? 3 : 0), "y[%d] is %g", h, (double)mm_bf16_to_float(y[h]));
    /* dy is 1 everywhere: dW2[4][5] = h = 192, du = 64 / 64, dW3[5][3] = du * x[3]. */
    const float ddown = element(rank, late->backward.ddown.data, expert * STACK_MATRIX + DOWN_AT);
    const float dup = element(rank, late->backward.dup.data, expert * STACK_MATRIX + UP_AT);
    RIG_EXPECT(rank, ddown == 192, "dW2 is %g, expected 192", (double)ddown);
    RIG_EXPECT(rank, dup == 3, "dW3 is %g, expected 3", (double)dup);
    for (size_t i = 0; i < OTHERS; i++)
        RIG_EXPECT(rank, element(rank, late->backward.ddown.data, other_end(i)) == 0,
                   "the gradient of expert %zu, which has no row, is not zero", i * 51);
}

static void late_body(struct rig_rank *rank, void *context) {
    (void)context;
    mmoe_layer_config config = rig_layer(STACK_HIDDEN, STACK_INNER, STACK_EXPERTS, 1);
    mmoe_layer *layer;
    mmoe_saved *saved;
    RIG_OK(rank, mmoe_layer_create(rank->group, &config, &layer));
    RIG_OK(rank, mmoe_saved_create(layer, MMOE_KEEP_ROWS, &saved));
    uint16_t x[STACK_HIDDEN], dy[STACK_HIDDEN];
    for (int h = 0; h < STACK_HIDDEN; h++) {
        x[h] = mm_bf16_from_float((float)(h % 7));
        dy[h] = mm_bf16_from_float(1);
    }
    const int32_t id = lates[0];
    const float weight = 1;
    void *memory[] = {on_device(rank, x, sizeof x),
                      on_device(rank, dy, sizeof dy),
                      on_device(rank, x, sizeof x),
                      on_device(rank, &id, sizeof id),
                      on_device(rank, &weight, sizeof id),
                      late_stack(rank, GATE_AT, 64),
                      late_stack(rank, UP_AT, 1),
                      late_stack(rank, DOWN_AT, 1.0f / 64),
                      late_gradient(rank),
                      late_gradient(rank)};
    struct late late = {mmoe_forward_args_default(), mmoe_backward_args_default()};
    late.forward.x = mmoe_matrix(memory[0], MMOE_BF16, 1, STACK_HIDDEN);
    late.backward.dy = mmoe_matrix(memory[1], MMOE_BF16, 1, STACK_HIDDEN);
    late.forward.y = mmoe_matrix(memory[2], MMOE_BF16, 1, STACK_HIDDEN);
    late.forward.ids = mmoe_matrix(memory[3], MMOE_I32, 1, 1);
    late.forward.weights = mmoe_matrix(memory[4], MMOE_F32, 1, 1);
    late.forward.gate = late.backward.gate = mmoe_stack(memory[5], MMOE_BF16, STACK_EXPERTS, STACK_INNER, STACK_HIDDEN);
    late.forward.up = late.backward.up = mmoe_stack(memory[6], MMOE_BF16, STACK_EXPERTS, STACK_INNER, STACK_HIDDEN);
    late.forward.down = late.backward.down = mmoe_stack(memory[7], MMOE_BF16, STACK_EXPERTS, STACK_HIDDEN, STACK_INNER);
    late.backward.dup = mmoe_stack(memory[8], MMOE_BF16, STACK_EXPERTS, STACK_INNER, STACK_HIDDEN);
    late.backward.ddown = mmoe_stack(memory[9], MMOE_BF16, STACK_EXPERTS, STACK_HIDDEN, STACK_INNER);
    late.forward.saved = late.backward.saved = saved;
    for (int i = 0; i < COUNT(lates) && !rank->failed; i++) {
        RIG_OK(rank, mmoe_device_write(rank->group, memory[3], &lates[i], sizeof lates[i]));
        RIG_OK(rank, mmoe_forward(layer, &late.forward));
        RIG_OK(rank, mmoe_backward(layer, &late.backward));
        check_late(rank, &late, (size_t)lates[i]);
    }
    for (int i = 0; i < COUNT(memory); i++)
        mmoe_device_free(rank->group, &memory[i]);
    mmoe_saved_destroy(&saved);
    mmoe_layer_destroy(&layer);
}

static void b11_expert_past_two_to_the_31(void **state) {
    (void)state;
    not_at_small_size("stacks of 7.5 GB");
    const size_t limit = (size_t)1 << 31, straddling = (size_t)lates[0], last = (size_t)lates[2];
    assert_true(straddling * STACK_MATRIX * 2 < limit && (straddling + 1) * STACK_MATRIX * 2 > limit);
    assert_true(last * STACK_MATRIX < limit && (last + 1) * STACK_MATRIX > limit);
    struct rig_world world = rig_world_make(1, RIG_THREADS, 1, STACK_HIDDEN, 1, STACK_EXPERTS);
    rig_world_run(&world, late_body, NULL);
}

/* ---- B12: numbers of slots around 2^16 ---- */

static void b12_slots_around_two_to_the_16(void **state) {
    (void)state;
    not_at_small_size("65535 slots and more");
    static const int64_t shapes[][2] = {{65535, 1}, {65536, 1}, {65537, 1}, {21845, 3}, {8191, 8}, {8192, 8}};
    for (int i = 0; i < COUNT(shapes); i++) {
        mmoe_layer_config layer = rig_layer(64, 64, 8, shapes[i][1]);
        const struct rig_options options = {0};
        struct rig_batch batch = rig_batch_make(&layer, 1, &shapes[i][0], RIG_UNIFORM, 171);
        run_one(&batch, &options);
        compare_with_cpu(&batch, &options);
        rig_batch_free(&batch);
    }
}

/* ---- B32: many calls, of zeros and ones, where each row counts ---- */

struct calls {
    struct rig_batch *batch;
    int count;
};

/* T changes from call to call; every token goes to the experts 0 and 1, which scale by 1 and 2. */
static void calls_body(struct rig_rank *rank, void *context) {
    struct calls *calls = context;
    struct rig_batch *batch = calls->batch;
    const int64_t most = batch->total, hidden = batch->layer.hidden;
    const struct rig_options options = {0};
    uint16_t *y = malloc((size_t)(most * hidden) * sizeof *y);
    mmoe_layer *layer;
    struct rig_placed placed;
    RIG_OK(rank, mmoe_layer_create(rank->group, &batch->layer, &layer));
    struct rig_call call = rig_call_make(rank, batch, &options, NULL, 0xff);
    RIG_EXPECT(rank, rig_call_place(rank, &call, &placed), "not placed");
    for (int i = 0; i < calls->count && !rank->failed; i++) {
        const int64_t tokens = i % 5 == 0 ? most : 1 + (int64_t)i * 37 % most;
        call.forward.x.shape[0] = call.forward.ids.shape[0] = call.forward.weights.shape[0] = tokens;
        call.forward.y.shape[0] = tokens;
        memset(y, 0xff, (size_t)(tokens * hidden) * sizeof *y);
        RIG_OK(rank, mmoe_device_write(rank->group, call.forward.y.data, y, (size_t)(tokens * hidden) * sizeof *y));
        RIG_OK(rank, mmoe_forward(layer, &call.forward));
        RIG_OK(rank, mmoe_device_read(rank->group, y, call.forward.y.data, (size_t)(tokens * hidden) * sizeof *y));
        for (int64_t j = 0; j < tokens * hidden; j++) {
            const int64_t feature = j % hidden;
            const float x = feature == 0 || feature > batch->layer.intermediate ? 0 : mm_bf16_to_float(batch->x[j]);
            RIG_EXPECT(rank, mm_bf16_to_float(y[j]) == 3 * x, "call %d of %lld tokens: y[%lld] is %g, expected %g", i,
                       (long long)tokens, (long long)j, (double)mm_bf16_to_float(y[j]), (double)(3 * x));
        }
    }
    free(y);
    rig_placed_free(rank, &placed);
    rig_call_free(&call);
    mmoe_layer_destroy(&layer);
}

static void b32_no_row_is_wrong_in_2000_calls(void **state) {
    (void)state;
    const int64_t tokens = rig_scaled("tokens of many calls", 1024, 40);
    struct rig_batch batch = exact_batch_of(128, 64, 8, 2, 1, &tokens, RIG_UNIFORM, 181);
    struct rig_random random = rig_seed(182);
    for (int64_t t = 0; t < tokens; t++) {
        batch.ids[2 * t] = 0;
        batch.ids[2 * t + 1] = 1;
        for (int64_t h = 1; h < 128; h++)
            batch.x[t * 128 + h] = mm_bf16_from_float((float)rig_below(&random, 2));
    }
    struct calls calls = {&batch, rig_scaled("calls", 2000, 6)};
    struct rig_world world = rig_world_for(&batch, 1, RIG_THREADS);
    rig_world_run(&world, calls_body, &calls);
    rig_batch_free(&batch);
}

/* ---- B25: a gate of 300 times an up of 300 is past the largest fp16 ---- */

static void b25_large_products_stay_finite(void **state) {
    (void)state;
    const int64_t tokens = 3;
    const struct rig_options options = {0};
    for (int form = 0; form < 2; form++) {
        struct rig_batch batch = exact_batch_of(128, 64, 4, 1, 1, &tokens, RIG_UNIFORM, 231);
        for (int64_t i = 0; i < rig_batch_stack(&batch); i++)
            if (batch.gate[i])
                batch.gate[i] = mm_bf16_from_float(300);
        for (int64_t t = 0; t < tokens; t++)
            for (int64_t h = 1; h < 128; h++)
                batch.x[t * 128 + h] = mm_bf16_from_float(form ? -300 : 300);
        run_one(&batch, &options);
        rig_compare(&batch, &options, RIG_BOUND);
        assert_true(fabs(rig_reference_of(&batch)->y[1]) >= 300 * 300 / 64);
        rig_batch_free(&batch);
    }
}

/* Experts that all tokens go to, and experts that none does, in blocks that fill many CTAs. */
static void skew_over_many_blocks(void **state) {
    (void)state;
    not_at_small_size("skew over many blocks");
    static const enum rig_routing routings[] = {RIG_ONE_EXPERT, RIG_ZIPF, RIG_DUPLICATES};
    const int64_t tokens = 4000;
    mmoe_layer_config layer = rig_layer(256, 192, 128, 8);
    for (int i = 0; i < COUNT(routings); i++) {
        const struct rig_options options = {.keep = i % 2 ? MMOE_KEEP_PLAN : MMOE_KEEP_ROWS};
        struct rig_batch batch = rig_batch_make(&layer, 1, &tokens, routings[i], 191);
        run_one(&batch, &options);
        compare_with_cpu(&batch, &options);
        rig_batch_free(&batch);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b11_expert_past_two_to_the_31),  cmocka_unit_test(b12_slots_around_two_to_the_16),
        cmocka_unit_test(b25_large_products_stay_finite), cmocka_unit_test(b32_no_row_is_wrong_in_2000_calls),
        cmocka_unit_test(skew_over_many_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
