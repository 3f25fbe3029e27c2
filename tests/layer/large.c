/* B11: sizes and offsets past 2^31 and 2^32. */
#include "proof.h"

#include <string.h>
#include <sys/mman.h>

#include "base/bf16.h"

/* ---- The size functions */

static mmoe_sizes sizes_at(int64_t tokens) {
    mmoe_group_config group = mmoe_group_config_default();
    group.max_tokens = tokens;
    group.max_hidden = 7168;
    group.max_top_k = 8;
    group.max_experts = 256;
    mmoe_layer_config layer = rig_layer(7168, 2048, 256, 8);
    mmoe_sizes sizes;
    mmoe_status status = mmoe_sizes_of(&group, &layer, 8, tokens, -1, MMOE_KEEP_ROWS, &sizes);
    if (status != MMOE_OK)
        fail_msg("%s", mmoe_last_error());
    assert_int_equal(mmoe_group_segment_bytes(&group, 8), sizes.segment);
    return sizes;
}

/* `bytes` and no more than what alignment adds. */
static void assert_about(size_t value, size_t bytes) {
    if (value < bytes || value > bytes + 256)
        fail_msg("%zu bytes, expected %zu", value, bytes);
}

/* One token more takes the combine slots, T * K * H values, past 2^31 of them. */
static void b11_sizes_past_two_to_the_31(void **state) {
    (void)state;
    for (size_t tokens = 37449; tokens <= 37450; tokens++) {
        mmoe_sizes sizes = sizes_at((int64_t)tokens);
        size_t rows = 8 * tokens * 8;
        assert_about(sizes.x_slot, tokens * 7168 * 2);
        assert_about(sizes.dy_slot, tokens * 7168 * 2);
        assert_about(sizes.combine_slots, tokens * 8 * 7168 * 2);
        assert_about(sizes.dw_slots, tokens * 8 * 4);
        assert_about(sizes.routing, 8 * tokens * 8 * (4 + 4));
        assert_true(sizes.segment >= sizes.x_slot + sizes.dy_slot + sizes.combine_slots + sizes.dw_slots);
        assert_true(sizes.kept_x >= rows * 7168 * 2);
        assert_true(sizes.kept_gate_up >= rows * 2 * 2048 * 2);
        assert_true(sizes.saved >= sizes.kept_x + sizes.kept_gate_up + sizes.plan);
        assert_true(sizes.scratch > rows * 2048 * 2);
    }
    assert_int_equal((uint64_t)37449 * 8 * 7168 >> 31, 0);
    assert_int_equal((uint64_t)37450 * 8 * 7168 >> 31, 1);
}

/* ---- Strides over a sparse mapping */

#define FAR ((INT64_C(1) << 30) + 64)

/* Zeroed address space of `elements` values; only what is written takes memory. */
static uint16_t *sparse(int64_t elements) {
    void *memory =
        mmap(NULL, (size_t)elements * 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        fail_msg("no address space of %lld bytes", (long long)elements * 2);
    return memory;
}

/* Copies a contiguous stack of `count` pieces of `n` values to pieces FAR apart. */
static uint16_t *spread(const uint16_t *values, int64_t count, int64_t n) {
    uint16_t *memory = sparse(count * FAR);
    for (int64_t i = 0; i < count; i++)
        memcpy(memory + i * FAR, values + i * n, (size_t)n * sizeof *values);
    return memory;
}

static void assert_spread(const uint16_t *memory, const uint16_t *values, int64_t count, int64_t n) {
    for (int64_t i = 0; i < count; i++)
        assert_memory_equal(memory + i * FAR, values + i * n, (size_t)n * sizeof *values);
}

struct far {
    struct rig_batch *batch;
    uint16_t *x, *dy, *down, *y, *dx, *ddown;
};

/* Steps whose tokens, W2 and their gradients have rows or experts FAR apart; the others stay as the rig makes them. */
static void far_body(struct rig_rank *rank, void *context) {
    struct far *far = context;
    struct rig_options options = {.narrow_gradients = true};
    mmoe_layer *layer;
    mmoe_saved *saved;
    RIG_OK(rank, mmoe_layer_create(rank->group, &far->batch->layer, &layer));
    RIG_OK(rank, mmoe_saved_create(layer, MMOE_KEEP_PLAN, &saved));
    for (int step = 0; step < 3; step++) {
        struct rig_call call = rig_call_make(rank, far->batch, &options, saved, 0xff);
        mmoe_tensor *tensors[] = {&call.forward.x,   &call.forward.down,  &call.forward.y,   &call.backward.x,
                                  &call.backward.dy, &call.backward.down, &call.backward.dx, &call.backward.ddown};
        uint16_t *data[] = {far->x, far->down, far->y, far->x, far->dy, far->down, far->dx, far->ddown};
        for (int i = 0; i < 8; i++) {
            tensors[i]->data = data[i];
            tensors[i]->stride[0] = FAR;
        }
        RIG_OK(rank, mmoe_forward(layer, &call.forward));
        RIG_OK(rank, mmoe_backward(layer, &call.backward));
        rig_call_free(&call);
    }
    mmoe_saved_destroy(&saved);
    mmoe_layer_destroy(&layer);
}

/* Three rows and three experts: the last begins past 2^32 bytes. */
static void b11_strides_past_two_to_the_30(void **state) {
    (void)state;
    mmoe_layer_config layer = rig_layer(8, 6, 3, 2);
    const int64_t tokens[1] = {3};
    struct rig_batch batch = rig_batch_make(&layer, 1, tokens, RIG_UNIFORM, 81);
    struct rig_options options = {.narrow_gradients = true};
    struct rig_world world = rig_world_for(&batch, 1, RIG_THREADS);
    rig_run(&world, &batch, 1, &options);

    struct far far = {&batch,          spread(batch.x, 3, 8), spread(batch.dy, 3, 8), spread(batch.down, 3, 48),
                      sparse(3 * FAR), sparse(3 * FAR),       sparse(3 * FAR)};
    rig_world_run(&world, far_body, &far);
    uint16_t ddown[3 * 48];
    for (int i = 0; i < 3 * 48; i++)
        ddown[i] = mm_bf16_from_float(batch.ddown[i]);
    assert_spread(far.y, batch.y, 3, 8);
    assert_spread(far.dx, batch.dx, 3, 8);
    assert_spread(far.ddown, ddown, 3, 48);
    uint16_t *blocks[] = {far.x, far.dy, far.down, far.y, far.dx, far.ddown};
    for (int i = 0; i < 6; i++)
        munmap(blocks[i], (size_t)(3 * FAR) * 2);
    rig_batch_free(&batch);
}

/* ---- Weights past 2^31 elements */

#define STACK_EXPERTS 256
#define STACK_HIDDEN 7168
#define STACK_INNER 2048
#define STACK_MATRIX ((int64_t)STACK_HIDDEN * STACK_INNER)
#define LATE 200 /* an expert that begins past 2^31 elements of its stack */

struct late {
    uint16_t *gate, *up, *down, *y;
};

static void late_body(struct rig_rank *rank, void *context) {
    struct late *late = context;
    mmoe_layer_config config = rig_layer(STACK_HIDDEN, STACK_INNER, STACK_EXPERTS, 1);
    mmoe_layer *layer;
    RIG_OK(rank, mmoe_layer_create(rank->group, &config, &layer));
    uint16_t x[STACK_HIDDEN];
    for (int h = 0; h < STACK_HIDDEN; h++)
        x[h] = mm_bf16_from_float((float)(h % 7));
    int32_t id = LATE;
    float weight = 1;
    mmoe_forward_args args = mmoe_forward_args_default();
    args.x = mmoe_matrix(x, MMOE_BF16, 1, STACK_HIDDEN);
    args.ids = mmoe_matrix(&id, MMOE_I32, 1, 1);
    args.weights = mmoe_matrix(&weight, MMOE_F32, 1, 1);
    args.gate = mmoe_stack(late->gate, MMOE_BF16, STACK_EXPERTS, STACK_INNER, STACK_HIDDEN);
    args.up = mmoe_stack(late->up, MMOE_BF16, STACK_EXPERTS, STACK_INNER, STACK_HIDDEN);
    args.down = mmoe_stack(late->down, MMOE_BF16, STACK_EXPERTS, STACK_HIDDEN, STACK_INNER);
    args.y = mmoe_matrix(late->y, MMOE_BF16, 1, STACK_HIDDEN);
    for (int call = 0; call < 3; call++)
        RIG_OK(rank, mmoe_forward(layer, &args));
    mmoe_layer_destroy(&layer);
}

/* Only expert 200 has weights: unit 5 passes feature 3 on, times the gate of 64 * feature 1, to feature 4. */
static void b11_expert_past_two_to_the_31(void **state) {
    (void)state;
    int64_t stack = STACK_EXPERTS * STACK_MATRIX;
    assert_true(LATE * STACK_MATRIX > INT64_C(1) << 31);
    struct late late = {sparse(stack), sparse(stack), sparse(stack), rig_shared(STACK_HIDDEN * sizeof(uint16_t))};
    late.gate[LATE * STACK_MATRIX + 5 * STACK_HIDDEN + 1] = mm_bf16_from_float(64);
    late.up[LATE * STACK_MATRIX + 5 * STACK_HIDDEN + 3] = mm_bf16_from_float(1);
    late.down[LATE * STACK_MATRIX + 4 * STACK_INNER + 5] = mm_bf16_from_float(1.0f / 64);
    memset(late.y, 0xff, STACK_HIDDEN * sizeof *late.y);
    struct rig_world world = rig_world_make(1, RIG_THREADS, 1, STACK_HIDDEN, 1, STACK_EXPERTS);
    rig_world_run(&world, late_body, &late);
    for (int h = 0; h < STACK_HIDDEN; h++)
        assert_true(mm_bf16_to_float(late.y[h]) == (h == 4 ? 3 : 0));
    munmap(late.gate, (size_t)stack * 2);
    munmap(late.up, (size_t)stack * 2);
    munmap(late.down, (size_t)stack * 2);
    rig_shared_free(late.y);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b11_sizes_past_two_to_the_31),
        cmocka_unit_test(b11_strides_past_two_to_the_30),
        cmocka_unit_test(b11_expert_past_two_to_the_31),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
