/* Experts, tokens and slots that have nothing to do, on one GPU. */
#include "layer/zeros.h"
#include "support.h"

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
    const int stride = rig_scaled("every n-th form of an empty expert", 1, 7);
    mmoe_layer_config layer = rig_layer(64, 64, 4, 1);
    for (int i = 0; i < 4 * COUNT(ids); i += stride) {
        const int form = i / COUNT(ids);
        const struct rig_options options = {.accumulate = form & 1, .narrow_gradients = form & 2};
        prove_tokens(&layer, 4, ids[i % COUNT(ids)], &options);
    }
}

static void b02_no_token_and_no_used_slot_give_zeros(void **state) {
    (void)state;
    mmoe_layer_config layer = rig_layer(64, 64, 4, 2);
    const int64_t unused[] = {-1, -1, -1, -1, -1, -1};
    for (int keep = MMOE_KEEP_PLAN; keep <= MMOE_KEEP_ROWS; keep++) {
        const struct rig_options options = {.keep = keep};
        prove_tokens(&layer, 0, unused, &options);
        prove_tokens(&layer, 3, unused, &options);
    }
}

/* A group and a layer made for no token at all. */
static void b02_group_without_room_for_a_token(void **state) {
    (void)state;
    mmoe_layer_config layer = rig_layer(64, 64, 4, 2);
    const int64_t none = 0;
    const struct rig_options options = {0};
    struct rig_batch batch = rig_batch_make(&layer, 1, &none, RIG_UNIFORM, 31);
    struct rig_world world = rig_world_for(&batch, 1, RIG_THREADS);
    rig_prove(&world, &batch, 1, &options);
    rig_batch_free(&batch);
}

static void b04_unwritten_rows_are_never_read(void **state) {
    (void)state;
    mmoe_layer_config layer = rig_layer(64, 128, 4, 2);
    const int64_t ids[] = {-1, 2, 1, -1, -1, 0};
    for (int keep = MMOE_KEEP_PLAN; keep <= MMOE_KEEP_ROWS; keep++) {
        const struct rig_options options = {.keep = keep};
        prove_tokens(&layer, 3, ids, &options);
    }
}

/* ---- B06: expert 0 of 2 gets the tokens that `used` says; expert 1 has no row ---- */

#define B06_TOKENS (2 * MMOE_ROW_BLOCK + 2)

static bool one_past_a_block(int64_t token) {
    return token <= MMOE_ROW_BLOCK;
}
static bool every_other(int64_t token) {
    return token % 2 == 0;
}
static bool all_but_first(int64_t token) {
    return token != 0;
}
static bool all_but_last(int64_t token) {
    return token != B06_TOKENS - 1;
}
static bool all_but_a_block(int64_t token) {
    return token / MMOE_ROW_BLOCK != 1;
}
static bool a_full_block(int64_t token) {
    return token < MMOE_ROW_BLOCK;
}
static bool none(int64_t token) {
    return token < 0;
}

static void b06_skip_at_any_row(void **state) {
    (void)state;
    bool (*const arms[])(int64_t) = {one_past_a_block, every_other,  all_but_first, all_but_last,
                                     all_but_a_block,  a_full_block, none};
    mmoe_layer_config layer = rig_layer(64, 64, 2, 1);
    const struct rig_options options = {0};
    const int count = rig_scaled("ways to skip rows", COUNT(arms), 1);
    for (int arm = 0; arm < count; arm++) {
        int64_t ids[B06_TOKENS];
        for (int64_t t = 0; t < B06_TOKENS; t++)
            ids[t] = arms[arm](t) ? 0 : -1;
        prove_tokens(&layer, B06_TOKENS, ids, &options);
    }
}

/* ---- B23: zeros in, zeros out ---- */

static void b23_zeros_in_zeros_out(void **state) {
    (void)state;
    mmoe_layer_config layer = rig_layer(320, 64, 4, 2);
    const int64_t tokens = 40;
    const struct rig_options options = {0};
    const int count = rig_scaled("kinds of zeros", ZEROED_BATCHES, 2);
    for (int arm = 0; arm < count; arm++) {
        struct rig_batch batch = rig_batch_make(&layer, 1, &tokens, RIG_UNIFORM, 50);
        zeroed_batches[arm](&batch);
        struct rig_world world = rig_world_for(&batch, 1, RIG_THREADS);
        rig_prove(&world, &batch, 1, &options);
        rig_batch_free(&batch);
    }
}

/* ---- B26: router weights that are exactly zero ---- */

static void b26_weights_of_zero_still_get_their_gradient(void **state) {
    (void)state;
    const mmoe_layer_config layer = rig_layer(64, 64, 4, 2);
    const int64_t tokens = 5;
    prove_zero_router_weights(&layer, 1, &tokens);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b01_empty_expert_has_zero_or_unchanged_gradients),
        cmocka_unit_test(b02_no_token_and_no_used_slot_give_zeros),
        cmocka_unit_test(b02_group_without_room_for_a_token),
        cmocka_unit_test(b04_unwritten_rows_are_never_read),
        cmocka_unit_test(b06_skip_at_any_row),
        cmocka_unit_test(b23_zeros_in_zeros_out),
        cmocka_unit_test(b26_weights_of_zero_still_get_their_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
