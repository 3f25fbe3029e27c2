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

/* Experts of which one straddles 2^31 bytes of its stack, one begins past them, one straddles 2^31 elements and one
 * begins past these. The one at place i scales by i + 1. */
static const int64_t lates[] = {73, 80, 146, 200};
#define LATES ((int)(sizeof lates / sizeof *lates))

/* Two units of each that pass feature 3 on, times the gate of 64 * feature 1: one at the begin of its matrices and one
 * at their end. */
static const struct { int64_t unit, feature; } passed[] = {{5, 4}, {STACK_INNER - 1, STACK_HIDDEN - 1}};

struct late {
    uint16_t *gate, *up, *down, *y[LATES];
};

static void late_body(struct rig_rank *rank, void *context) {
    struct late *late = context;
    mmoe_layer_config config = rig_layer(STACK_HIDDEN, STACK_INNER, STACK_EXPERTS, 1);
    mmoe_layer *layer;
    RIG_OK(rank, mmoe_layer_create(rank->group, &config, &layer));
    uint16_t x[STACK_HIDDEN];
    for (int h = 0; h < STACK_HIDDEN; h++)
        x[h] = mm_bf16_from_float((float)(h % 7));
    float weight = 1;
    mmoe_forward_args args = mmoe_forward_args_default();
    args.x = mmoe_matrix(x, MMOE_BF16, 1, STACK_HIDDEN);
    args.weights = mmoe_matrix(&weight, MMOE_F32, 1, 1);
    args.gate = mmoe_stack(late->gate, MMOE_BF16, STACK_EXPERTS, STACK_INNER, STACK_HIDDEN);
    args.up = mmoe_stack(late->up, MMOE_BF16, STACK_EXPERTS, STACK_INNER, STACK_HIDDEN);
    args.down = mmoe_stack(late->down, MMOE_BF16, STACK_EXPERTS, STACK_HIDDEN, STACK_INNER);
    for (int i = 0; i < LATES; i++) {
        int32_t id = (int32_t)lates[i];
        args.ids = mmoe_matrix(&id, MMOE_I32, 1, 1);
        args.y = mmoe_matrix(late->y[i], MMOE_BF16, 1, STACK_HIDDEN);
        RIG_OK(rank, mmoe_forward(layer, &args));
    }
    mmoe_layer_destroy(&layer);
}

static void put_late_weights(struct late *late, int i) {
    for (int p = 0; p < 2; p++) {
        const int64_t matrix = lates[i] * STACK_MATRIX, row = matrix + passed[p].unit * STACK_HIDDEN;
        late->gate[row + 1] = mm_bf16_from_float(64);
        late->up[row + 3] = mm_bf16_from_float(1);
        late->down[matrix + passed[p].feature * STACK_INNER + passed[p].unit] = mm_bf16_from_float((float)(i + 1) / 64);
    }
}

static void b11_expert_past_two_to_the_31(void **state) {
    (void)state;
    const int64_t stack = STACK_EXPERTS * STACK_MATRIX, limit = INT64_C(1) << 31;
    assert_true(lates[0] * STACK_MATRIX * 2 < limit && (lates[0] + 1) * STACK_MATRIX * 2 > limit);
    assert_true(lates[2] * STACK_MATRIX < limit && (lates[2] + 1) * STACK_MATRIX > limit);
    struct late late = {sparse(stack), sparse(stack), sparse(stack), {NULL}};
    for (int i = 0; i < LATES; i++) {
        put_late_weights(&late, i);
        late.y[i] = rig_shared(STACK_HIDDEN * sizeof *late.y[i]);
        memset(late.y[i], 0xff, STACK_HIDDEN * sizeof *late.y[i]);
    }
    struct rig_world world = rig_world_make(1, RIG_THREADS, 1, STACK_HIDDEN, 1, STACK_EXPERTS);
    rig_world_run(&world, late_body, &late);
    for (int i = 0; i < LATES; i++) {
        for (int h = 0; h < STACK_HIDDEN; h++) {
            const bool is_passed = h == passed[0].feature || h == passed[1].feature;
            assert_true(mm_bf16_to_float(late.y[i][h]) == (is_passed ? 3 * (i + 1) : 0));
        }
        rig_shared_free(late.y[i]);
    }
    munmap(late.gate, (size_t)stack * 2);
    munmap(late.up, (size_t)stack * 2);
    munmap(late.down, (size_t)stack * 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b11_sizes_past_two_to_the_31),
        cmocka_unit_test(b11_strides_past_two_to_the_30),
        cmocka_unit_test(b11_expert_past_two_to_the_31),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
