/* Peak memory against what mmoe_sizes_of() promises, and that calls under a fixed capacity allocate nothing.
 *
 * The linker sends the library's aligned_alloc and free here (--wrap). */
#include "check.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/bf16.h"
#include "megamoe.h"
#include "rig/random.h"

static _Atomic int64_t live, peak, allocations;

void *__real_aligned_alloc(size_t alignment, size_t bytes);
void __real_free(void *memory);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
void __wrap_free(void *memory);

/* Only what aligned_alloc gave is counted: its blocks are marked by a header. */
#define HEADER 128
#define MARK UINT64_C(0x6d656761206d6f65)

struct header {
    uint64_t mark;
    int64_t bytes;
};

void *__wrap_aligned_alloc(size_t alignment, size_t bytes) {
    struct header *header = __real_aligned_alloc(alignment, bytes + HEADER);
    if (header == NULL)
        return NULL;
    *header = (struct header){MARK, (int64_t)bytes};
    allocations++;
    live += (int64_t)bytes;
    if (live > peak)
        peak = live;
    return (char *)header + HEADER;
}

/* The library frees nothing else. */
void __wrap_free(void *memory) {
    if (memory == NULL)
        return;
    struct header *header = (struct header *)(void *)((char *)memory - HEADER);
    assert_true(header->mark == MARK);
    live -= header->bytes;
    __real_free(header);
}

enum { HIDDEN = 256, INNER = 160, EXPERTS = 4, TOP_K = 2, TOKENS = 1026, STACK = EXPERTS * INNER * HIDDEN };

/* One layer's operands, static so that they are not counted. */
static uint16_t x[TOKENS * HIDDEN], dy[TOKENS * HIDDEN], y[TOKENS * HIDDEN], dx[TOKENS * HIDDEN];
static uint16_t gate[STACK], up[STACK], down[STACK];
static float weights[TOKENS * TOP_K], dweights[TOKENS * TOP_K], dgate[STACK], dup[STACK], ddown[STACK];
static int32_t ids[TOKENS * TOP_K];

static void fill(void) {
    struct rig_random random = rig_seed(5);
    for (int i = 0; i < TOKENS * HIDDEN; i++) {
        x[i] = mm_bf16_from_float((float)rig_normal(&random));
        dy[i] = mm_bf16_from_float((float)rig_normal(&random));
    }
    for (int i = 0; i < STACK; i++)
        gate[i] = up[i] = down[i] = mm_bf16_from_float((float)(0.1 * rig_normal(&random)));
    for (int i = 0; i < TOKENS * TOP_K; i++)
        weights[i] = (float)rig_uniform(&random);
}

/* 513 rows each: every expert's segment ends one row into a block, which takes the most padding. */
static void route_evenly(void) {
    for (int i = 0; i < TOKENS * TOP_K; i++)
        ids[i] = i % EXPERTS;
}

static void route_at_random(void) {
    struct rig_random random = rig_seed(6);
    for (int i = 0; i < TOKENS * TOP_K; i++)
        ids[i] = (int32_t)rig_below(&random, EXPERTS + 1) - 1;
}

struct made {
    mmoe_group *group;
    mmoe_layer *layer;
    mmoe_saved *saved;
    mmoe_sizes sizes;
};

static mmoe_layer_config layer_config(mmoe_capacity_policy policy) {
    mmoe_layer_config layer = mmoe_layer_config_default();
    layer.hidden = HIDDEN;
    layer.intermediate = INNER;
    layer.experts = EXPERTS;
    layer.top_k = TOP_K;
    layer.capacity_policy = policy;
    layer.capacity = policy == MMOE_CAPACITY_FIXED ? TOKENS * TOP_K : 0;
    return layer;
}

static struct made make(mmoe_capacity_policy policy, mmoe_keep keep, int64_t rows) {
    struct made made;
    mmoe_group_config group = mmoe_group_config_default();
    group.max_tokens = TOKENS;
    group.max_hidden = HIDDEN;
    group.max_top_k = TOP_K;
    group.max_experts = EXPERTS;
    group.threads = 2;
    mmoe_layer_config layer = layer_config(policy);
    live = peak = 0;
    assert_int_equal(mmoe_sizes_of(&group, &layer, 1, TOKENS, rows, keep, &made.sizes), MMOE_OK);
    assert_int_equal(mmoe_group_create_threads(&group, 1, &made.group), MMOE_OK);
    assert_int_equal(mmoe_layer_create(made.group, &layer, &made.layer), MMOE_OK);
    assert_int_equal(mmoe_saved_create(made.layer, keep, &made.saved), MMOE_OK);
    return made;
}

static void unmake(struct made *made) {
    mmoe_saved_destroy(&made->saved);
    mmoe_layer_destroy(&made->layer);
    mmoe_group_destroy(&made->group);
    assert_int_equal(live, 0);
}

static void forward(const struct made *made, int64_t tokens, mmoe_saved *saved) {
    mmoe_forward_args args = mmoe_forward_args_default();
    args.x = mmoe_matrix(x, MMOE_BF16, tokens, HIDDEN);
    args.ids = mmoe_matrix(ids, MMOE_I32, tokens, TOP_K);
    args.weights = mmoe_matrix(weights, MMOE_F32, tokens, TOP_K);
    args.gate = mmoe_stack(gate, MMOE_BF16, EXPERTS, INNER, HIDDEN);
    args.up = mmoe_stack(up, MMOE_BF16, EXPERTS, INNER, HIDDEN);
    args.down = mmoe_stack(down, MMOE_BF16, EXPERTS, HIDDEN, INNER);
    args.y = mmoe_matrix(y, MMOE_BF16, tokens, HIDDEN);
    args.saved = saved;
    assert_int_equal(mmoe_forward(made->layer, &args), MMOE_OK);
}

static void backward(const struct made *made, int64_t tokens, mmoe_keep keep) {
    mmoe_backward_args args = mmoe_backward_args_default();
    args.saved = made->saved;
    if (keep == MMOE_KEEP_PLAN)
        args.x = mmoe_matrix(x, MMOE_BF16, tokens, HIDDEN);
    args.dy = mmoe_matrix(dy, MMOE_BF16, tokens, HIDDEN);
    args.gate = mmoe_stack(gate, MMOE_BF16, EXPERTS, INNER, HIDDEN);
    args.up = mmoe_stack(up, MMOE_BF16, EXPERTS, INNER, HIDDEN);
    args.down = mmoe_stack(down, MMOE_BF16, EXPERTS, HIDDEN, INNER);
    args.dx = mmoe_matrix(dx, MMOE_BF16, tokens, HIDDEN);
    args.dweights = mmoe_matrix(dweights, MMOE_F32, tokens, TOP_K);
    args.dgate = mmoe_stack(dgate, MMOE_F32, EXPERTS, INNER, HIDDEN);
    args.dup = mmoe_stack(dup, MMOE_F32, EXPERTS, INNER, HIDDEN);
    args.ddown = mmoe_stack(ddown, MMOE_F32, EXPERTS, HIDDEN, INNER);
    assert_int_equal(mmoe_backward(made->layer, &args), MMOE_OK);
}

static const char *const keep_name[] = {"the plan kept", "rows kept"};

static void the_peak_is_what_was_promised(void **state) {
    (void)state;
    route_evenly();
    for (mmoe_capacity_policy policy = MMOE_CAPACITY_GROW; policy <= MMOE_CAPACITY_FIXED; policy++)
        for (mmoe_keep keep = MMOE_KEEP_PLAN; keep <= MMOE_KEEP_ROWS; keep++) {
            struct made made = make(policy, keep, TOKENS * TOP_K);
            for (int call = 0; call < 3; call++) {
                forward(&made, TOKENS, made.saved);
                backward(&made, TOKENS, keep);
            }
            double promised = (double)(made.sizes.segment + made.sizes.scratch + made.sizes.saved);
            printf("%s, %s: promised %.3f MB, peak %.3f MB\n", policy ? "fixed" : "growing", keep_name[keep],
                   promised / 1e6, (double)peak / 1e6);
            assert_true((double)peak <= 1.1 * promised);
            assert_true((double)peak >= 0.9 * promised);
            unmake(&made);
        }
}

static void the_peak_follows_the_demand(void **state) {
    (void)state;
    route_at_random();
    int64_t rows = 0;
    for (int i = 0; i < TOKENS * TOP_K; i++)
        rows += ids[i] >= 0;
    struct made made = make(MMOE_CAPACITY_GROW, MMOE_KEEP_ROWS, rows);
    forward(&made, TOKENS, made.saved);
    backward(&made, TOKENS, MMOE_KEEP_ROWS);
    assert_true((double)peak <= 1.1 * (double)(made.sizes.segment + made.sizes.scratch + made.sizes.saved));
    unmake(&made);
}

static void calls_under_a_fixed_capacity_allocate_nothing(void **state) {
    (void)state;
    for (mmoe_keep keep = MMOE_KEEP_PLAN; keep <= MMOE_KEEP_ROWS; keep++) {
        struct made made = make(MMOE_CAPACITY_FIXED, keep, -1);
        int64_t before = allocations;
        for (int call = 0; call < 3; call++) {
            call == 1 ? route_at_random() : route_evenly();
            int64_t tokens = call == 0 ? 10 : TOKENS;
            forward(&made, tokens, NULL);
            forward(&made, tokens, made.saved);
            backward(&made, tokens, keep);
        }
        assert_int_equal(allocations, before);
        unmake(&made);
    }
}

static void growing_calls_allocate_when_demand_grows_alone(void **state) {
    (void)state;
    struct made made = make(MMOE_CAPACITY_GROW, MMOE_KEEP_ROWS, TOKENS * TOP_K);
    route_evenly();
    forward(&made, 100, made.saved);
    int64_t before = allocations;
    forward(&made, TOKENS, made.saved);
    backward(&made, TOKENS, MMOE_KEEP_ROWS);
    assert_true(allocations > before);
    before = allocations;
    forward(&made, TOKENS / 2, made.saved);
    backward(&made, TOKENS / 2, MMOE_KEEP_ROWS);
    assert_int_equal(allocations, before);
    unmake(&made);
}

int main(void) {
    fill();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_peak_is_what_was_promised),
        cmocka_unit_test(the_peak_follows_the_demand),
        cmocka_unit_test(calls_under_a_fixed_capacity_allocate_nothing),
        cmocka_unit_test(growing_calls_allocate_when_demand_grows_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
