/* Experts, ranks, tokens and slots that have nothing to do. */
#include "proof.h"

#include <string.h>

#include "layer/zeros.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

static void prove_empty_expert(const int64_t *ids, const struct rig_options *options) {
    mmoe_layer_config layer = rig_layer(12, 10, 4, 1);
    const int64_t alone[1] = {4}, two[2] = {1, 3};
    prove_ids(&layer, 1, RIG_THREADS, alone, ids, options);
    prove_ids(&layer, 2, RIG_THREADS, two, ids, options);
}

/* The comparison with the oracle demands exact zeros, or unchanged bits, of an expert without rows. */
static void b01_empty_expert_has_zero_or_unchanged_gradients(void **state) {
    (void)state;
    static const int64_t ids[][4] = {
        {0, 0, 2, 2}, /* the second and the last */
        {1, 2, 3, 1}, /* the first */
        {0, 1, 3, 3}, /* one in the middle */
        {0, 1, 2, 0}, /* the last */
        {0, 3, 3, 0}, /* two in a row */
    };
    for (int arm = 0; arm < COUNT(ids); arm++)
        for (int form = 0; form < 4; form++) {
            struct rig_options options = {.accumulate = form & 1, .narrow_gradients = form & 2};
            prove_empty_expert(ids[arm], &options);
        }
}

static void b02_no_token_and_no_used_slot_give_zeros(void **state) {
    (void)state;
    mmoe_layer_config layer = rig_layer(16, 8, 4, 2);
    const int64_t none[2] = {0, 0}, three[2] = {3, 3};
    const int64_t unused[12] = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
    for (int keep = MMOE_KEEP_PLAN; keep <= MMOE_KEEP_ROWS; keep++)
        for (int world = 1; world <= 2; world++) {
            struct rig_options options = {.keep = keep};
            prove_ids(&layer, world, RIG_THREADS, none, unused, &options);
            prove_ids(&layer, world, RIG_THREADS, three, unused, &options);
        }
}

/* A group and a layer made for no token at all. */
static void b02_group_without_room_for_a_token(void **state) {
    (void)state;
    mmoe_layer_config layer = rig_layer(16, 8, 4, 2);
    const int64_t none[2] = {0, 0};
    struct rig_options options = {0};
    struct rig_batch batch = rig_batch_make(&layer, 2, none, RIG_UNIFORM, 31);
    struct rig_world world = rig_world_for(&batch, 1, RIG_THREADS);
    rig_prove(&world, &batch, 1, &options);
    rig_batch_free(&batch);
}

/* Experts 0, 1 live on rank 0 and 2, 3 on rank 1. */
static void b03_idle_rank_takes_part(void **state) {
    (void)state;
    static const struct {
        int64_t tokens[2], ids[8];
    } arms[] = {
        {{4, 4}, {0, 1, 1, 0, 0, 0, 1, 1}}, /* rank 1 receives none */
        {{4, 0}, {0, 2, 3, 1}},             /* rank 1 sends none */
        {{4, 0}, {0, 1, 1, 0}},             /* both */
        {{0, 0}, {0}},                      /* all ranks are empty */
    };
    mmoe_layer_config layer = rig_layer(12, 10, 4, 1);
    struct rig_options options = {0};
    for (int arm = 0; arm < COUNT(arms); arm++)
        for (int kind = RIG_THREADS; kind <= RIG_PROCESSES; kind++) {
            struct rig_batch batches[3];
            for (int step = 0; step < 3; step++)
                batches[step] = batch_with_ids(&layer, 2, arms[arm].tokens, arms[arm].ids, 40 + (uint64_t)step);
            struct rig_world world = rig_world_for(batches, 3, kind);
            world.seconds = 10;
            rig_prove(&world, batches, 3, &options);
            for (int step = 0; step < 3; step++)
                rig_batch_free(&batches[step]);
        }
}

static void b04_unwritten_rows_are_never_read(void **state) {
    (void)state;
    mmoe_layer_config layer = rig_layer(16, 24, 4, 2);
    const int64_t alone[1] = {3}, two[2] = {1, 2}, ids[6] = {-1, 2, 1, -1, -1, 0};
    for (int keep = MMOE_KEEP_PLAN; keep <= MMOE_KEEP_ROWS; keep++) {
        struct rig_options options = {.keep = keep};
        prove_ids(&layer, 1, RIG_THREADS, alone, ids, &options);
        prove_ids(&layer, 2, RIG_THREADS, two, ids, &options);
    }
}

#define B06_TOKENS (2 * MMOE_ROW_BLOCK + 2)

/* Expert 0 of 2 gets the tokens that `used` says; expert 1 has no row. */
static void prove_skip(bool (*used)(int64_t token)) {
    mmoe_layer_config layer = rig_layer(8, 9, 2, 1);
    const int64_t alone[1] = {B06_TOKENS}, two[2] = {B06_TOKENS / 2, B06_TOKENS / 2};
    int64_t ids[B06_TOKENS];
    for (int64_t t = 0; t < B06_TOKENS; t++)
        ids[t] = used(t) ? 0 : -1;
    struct rig_options options = {0};
    prove_ids(&layer, 1, RIG_THREADS, alone, ids, &options);
    prove_ids(&layer, 2, RIG_THREADS, two, ids, &options);
}

static bool all_but_first(int64_t token) {
    return token != 0;
}
static bool all_but_last(int64_t token) {
    return token != B06_TOKENS - 1;
}
static bool every_other(int64_t token) {
    return token % 2 == 0;
}
static bool all_but_a_block(int64_t token) {
    return token / MMOE_ROW_BLOCK != 1;
}
static bool one_past_a_block(int64_t token) {
    return token <= MMOE_ROW_BLOCK;
}
static bool a_full_block(int64_t token) {
    return token < MMOE_ROW_BLOCK;
}
static bool none(int64_t token) {
    return token < 0;
}

static void b06_skip_at_any_row(void **state) {
    (void)state;
    bool (*const arms[])(int64_t) = {all_but_first,    all_but_last, every_other, all_but_a_block,
                                     one_past_a_block, a_full_block, none};
    for (int arm = 0; arm < COUNT(arms); arm++)
        prove_skip(arms[arm]);
}

/* ---- B23: zeros in, zeros out ---- */

static void b23_zeros_in_zeros_out(void **state) {
    (void)state;
    mmoe_layer_config layer = rig_layer(264, 40, 4, 2);
    const int64_t tokens[2] = {17, 23};
    struct rig_options options = {0};
    for (int arm = 0; arm < ZEROED_BATCHES; arm++) {
        struct rig_batch batches[3];
        for (int step = 0; step < 3; step++) {
            batches[step] = rig_batch_make(&layer, 2, tokens, RIG_UNIFORM, 50 + (uint64_t)step);
            zeroed_batches[arm](&batches[step]);
        }
        struct rig_world world = rig_world_for(batches, 3, RIG_THREADS);
        rig_prove(&world, batches, 3, &options);
        for (int step = 0; step < 3; step++)
            rig_batch_free(&batches[step]);
    }
}

/* Nothing but zeros: every result is zero, whatever the routing. */
static void b23_all_zeros(void **state) {
    (void)state;
    mmoe_layer_config layer = rig_layer(256, 40, 4, 2);
    const int64_t tokens[1] = {256};
    struct rig_options options = {0};
    struct rig_batch batch = rig_batch_make(&layer, 1, tokens, RIG_UNIFORM, 60);
    memset(batch.x, 0, (size_t)rig_batch_values(&batch) * sizeof *batch.x);
    struct rig_world world = rig_world_for(&batch, 1, RIG_THREADS);
    rig_run(&world, &batch, 1, &options);
    for (int64_t i = 0; i < rig_batch_values(&batch); i++)
        assert_int_equal(batch.y[i] & 0x7fff, 0);
    rig_batch_free(&batch);
}

/* ---- B26: router weights that are exactly zero ---- */

static void b26_weights_of_zero_still_get_their_gradient(void **state) {
    (void)state;
    const mmoe_layer_config layer = rig_layer(16, 8, 4, 2);
    const int64_t tokens[2] = {5, 3};
    prove_zero_router_weights(&layer, 2, tokens);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b01_empty_expert_has_zero_or_unchanged_gradients),
        cmocka_unit_test(b02_no_token_and_no_used_slot_give_zeros),
        cmocka_unit_test(b02_group_without_room_for_a_token),
        cmocka_unit_test(b03_idle_rank_takes_part),
        cmocka_unit_test(b04_unwritten_rows_are_never_read),
        cmocka_unit_test(b06_skip_at_any_row),
        cmocka_unit_test(b23_zeros_in_zeros_out),
        cmocka_unit_test(b23_all_zeros),
        cmocka_unit_test(b26_weights_of_zero_still_get_their_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
