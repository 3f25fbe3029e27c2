/* Bits that depend neither on the run, nor on the order of tokens, nor on their company, on one GPU. */
#include <stdio.h>
#include <string.h>

#include "base/bf16.h"
#include "support.h"

#define HIDDEN 128
#define INNER 64
#define EXPERTS 6
#define TOP_K 3

static int64_t some_tokens(void) {
    return rig_scaled("tokens of a batch", 700, 150);
}

/* ---- Sum in slot order ---- */

#define BIG 134217728.0f /* 2^27, exact in bf16; in fp32 BIG + 1 = BIG, so that the order of a sum shows */

/* One token, four experts whose outputs are exactly BIG, 1, -BIG, 1 in the features 1 to INNER. */
static struct rig_batch ordered_batch(const int64_t slots[4]) {
    const int64_t tokens = 1;
    static const float outputs[4] = {BIG, 1, -BIG, 1};
    struct rig_batch batch = exact_batch_of(HIDDEN, INNER, 4, 4, 1, &tokens, RIG_UNIFORM, 201);
    for (int64_t i = 0; i < rig_batch_stack(&batch); i++)
        if (batch.down[i])
            batch.down[i] = mm_bf16_from_float(outputs[i / (HIDDEN * INNER)] / 64);
    for (int h = 1; h < HIDDEN; h++)
        batch.x[h] = mm_bf16_from_float(1);
    memcpy(batch.ids, slots, 4 * sizeof *slots);
    return batch;
}

static void check_sum(const int64_t slots[4], float sum) {
    struct rig_batch batch = ordered_batch(slots);
    const struct rig_options options = {0};
    run_one(&batch, &options);
    for (int h = 1; h <= INNER; h++)
        if (mm_bf16_to_float(batch.y[h]) != sum)
            fail_msg("the sum is %g, expected %g", (double)mm_bf16_to_float(batch.y[h]), (double)sum);
    rig_batch_free(&batch);
}

static void b28_slots_are_summed_in_order(void **state) {
    (void)state;
    check_sum((int64_t[]){0, 1, 2, 3}, 1);
    check_sum((int64_t[]){1, 3, 0, 2}, 0);
    check_sum((int64_t[]){0, 2, 1, 3}, 2);
}

/* ---- One bit pattern ---- */

struct repeat {
    struct rig_batch *first, *again;
    struct rig_options options;
    int runs;
};

static void repeat_body(struct rig_rank *rank, void *context) {
    struct repeat *repeat = context;
    mmoe_layer *layer;
    mmoe_saved *saved;
    RIG_OK(rank, mmoe_layer_create(rank->group, &repeat->again->layer, &layer));
    RIG_OK(rank, mmoe_saved_create(layer, repeat->options.keep, &saved));
    for (int run = 0; run < repeat->runs; run++) {
        if (!rig_step(rank, layer, saved, repeat->again, &repeat->options, run % 2 ? 0x7f : 0xff))
            return;
        RIG_EXPECT(rank, rig_rank_same_bits(rank, repeat->first, repeat->again), "other bits in run %d", run);
    }
    mmoe_saved_destroy(&saved);
    mmoe_layer_destroy(&layer);
}

static void b28_one_bit_pattern_in_every_run(void **state) {
    (void)state;
    mmoe_layer_config layer = rig_layer(HIDDEN, INNER, EXPERTS, TOP_K);
    const int64_t tokens = some_tokens();
    for (int form = 0; form < 4; form++) {
        struct rig_batch first = rig_batch_make(&layer, 1, &tokens, RIG_ZIPF, 203);
        struct rig_batch again = rig_batch_make(&layer, 1, &tokens, RIG_ZIPF, 203);
        struct repeat repeat = {&first, &again, {.keep = form & 1, .accumulate = form & 2}, 0};
        repeat.options.narrow_gradients = form & 2;
        repeat.runs = rig_scaled("runs of one batch", 25, 1);
        run_one(&first, &repeat.options);
        struct rig_world world = rig_world_for(&again, 1, RIG_THREADS);
        rig_world_run(&world, repeat_body, &repeat);
        rig_batch_free(&first);
        rig_batch_free(&again);
    }
}

/* What is kept between forward and backward changes no bit. */
static void keeping_rows_changes_no_bit(void **state) {
    (void)state;
    mmoe_layer_config layer = rig_layer(HIDDEN, INNER, EXPERTS, TOP_K);
    layer.limit = 0.75f;
    const int64_t tokens = some_tokens();
    const struct rig_options plan = {.keep = MMOE_KEEP_PLAN}, rows = {.keep = MMOE_KEEP_ROWS};
    struct rig_batch first = rig_batch_make(&layer, 1, &tokens, RIG_HOLES, 205);
    struct rig_batch other = rig_batch_make(&layer, 1, &tokens, RIG_HOLES, 205);
    run_one(&first, &plan);
    run_one(&other, &rows);
    rig_same_bits(&first, &other, "rows kept");
    rig_batch_free(&first);
    rig_batch_free(&other);
}

/* Multiprocessors that are left to others change no bit; one at least has to be used. */
static void a_smaller_budget_changes_no_bit(void **state) {
    (void)state;
    mmoe_layer_config layer = rig_layer(HIDDEN, INNER, EXPERTS, TOP_K);
    const int64_t tokens = some_tokens();
    const int all = count_multiprocessors(), spare[] = {1, all / 2, all - 1};
    const struct rig_options options = {.keep = MMOE_KEEP_ROWS};
    struct rig_batch first = rig_batch_make(&layer, 1, &tokens, RIG_ZIPF, 207);
    struct rig_batch other = rig_batch_make(&layer, 1, &tokens, RIG_ZIPF, 207);
    run_one(&first, &options);
    struct rig_world world = rig_world_for(&other, 1, RIG_THREADS);
    for (int i = 0; i < COUNT(spare); i++) {
        world.config.spare_multiprocessors = spare[i];
        rig_run(&world, &other, 1, &options);
        rig_same_bits(&first, &other, "multiprocessors are left to others");
    }
    world.config.spare_multiprocessors = all;
    mmoe_group *group;
    char text[120];
    snprintf(text, sizeof text, "config.spare_multiprocessors is %d, expected 0 .. %d on a GPU of %d multiprocessors",
             all, all - 1, all);
    assert_int_equal(mmoe_group_create_threads(&world.config, 1, &group), MMOE_INVALID_ARGUMENT);
    assert_non_null(strstr(mmoe_last_error(), text));
    rig_batch_free(&first);
    rig_batch_free(&other);
}

/* ---- Order and company ---- */

/* Gives `to` the token `from_token` of `from`, as its token `to_token`. */
static void copy_token(struct rig_batch *to, int64_t to_token, const struct rig_batch *from, int64_t from_token) {
    memcpy(to->x + to_token * HIDDEN, from->x + from_token * HIDDEN, HIDDEN * sizeof *to->x);
    memcpy(to->dy + to_token * HIDDEN, from->dy + from_token * HIDDEN, HIDDEN * sizeof *to->dy);
    memcpy(to->ids + to_token * TOP_K, from->ids + from_token * TOP_K, TOP_K * sizeof *to->ids);
    memcpy(to->weights + to_token * TOP_K, from->weights + from_token * TOP_K, TOP_K * sizeof *to->weights);
}

static void same_token(const struct rig_batch *a, int64_t a_token, const struct rig_batch *b, int64_t b_token) {
    assert_memory_equal(a->y + a_token * HIDDEN, b->y + b_token * HIDDEN, HIDDEN * sizeof *a->y);
    assert_memory_equal(a->dx + a_token * HIDDEN, b->dx + b_token * HIDDEN, HIDDEN * sizeof *a->dx);
    assert_memory_equal(a->dweights + a_token * TOP_K, b->dweights + b_token * TOP_K, TOP_K * sizeof *a->dweights);
}

static void copy_weights(struct rig_batch *to, const struct rig_batch *from) {
    const size_t stack = (size_t)rig_batch_stack(from) * sizeof *from->gate;
    memcpy(to->gate, from->gate, stack);
    memcpy(to->up, from->up, stack);
    memcpy(to->down, from->down, stack);
}

/* Token t of the other batch is token 7t + 3 of the first, which meets each once: 7 divides neither 151 nor 701. */
static void order_of_tokens_does_not_matter(void **state) {
    (void)state;
    mmoe_layer_config layer = rig_layer(HIDDEN, INNER, EXPERTS, TOP_K);
    const int64_t tokens = some_tokens() + 1;
    const struct rig_options options = {0};
    struct rig_batch first = rig_batch_make(&layer, 1, &tokens, RIG_HOLES, 312);
    struct rig_batch other = rig_batch_make(&layer, 1, &tokens, RIG_HOLES, 312);
    for (int64_t t = 0; t < tokens; t++)
        copy_token(&other, t, &first, (7 * t + 3) % tokens);
    run_one(&first, &options);
    run_one(&other, &options);
    for (int64_t t = 0; t < tokens; t++)
        same_token(&other, t, &first, (7 * t + 3) % tokens);
    rig_compare(&first, &options, RIG_BOUND);
    rig_compare(&other, &options, RIG_BOUND);
    rig_batch_free(&first);
    rig_batch_free(&other);
}

/* A token alone in its call has the bits that it has among the others. */
static void company_in_the_batch_does_not_matter(void **state) {
    (void)state;
    mmoe_layer_config layer = rig_layer(HIDDEN, INNER, EXPERTS, TOP_K);
    const int64_t tokens = some_tokens(), one = 1, chosen[] = {tokens - 1, 130, 0, 7, 64};
    const struct rig_options options = {0};
    struct rig_batch batch = rig_batch_make(&layer, 1, &tokens, RIG_UNIFORM, 331);
    run_one(&batch, &options);
    const int count = rig_scaled("tokens alone", COUNT(chosen), 2);
    for (int i = 0; i < count; i++) {
        struct rig_batch alone = rig_batch_make(&layer, 1, &one, RIG_UNIFORM, 332);
        copy_weights(&alone, &batch);
        copy_token(&alone, 0, &batch, chosen[i]);
        run_one(&alone, &options);
        same_token(&alone, 0, &batch, chosen[i]);
        rig_batch_free(&alone);
    }
    rig_batch_free(&batch);
}

/* Expert e of the other batch is expert E - 1 - e of the first. */
static void names_of_experts_do_not_matter(void **state) {
    (void)state;
    mmoe_layer_config layer = rig_layer(HIDDEN, INNER, EXPERTS, TOP_K);
    const int64_t tokens = some_tokens();
    const size_t matrix = HIDDEN * INNER;
    const struct rig_options options = {0};
    struct rig_batch first = rig_batch_make(&layer, 1, &tokens, RIG_HOLES, 322);
    struct rig_batch other = rig_batch_make(&layer, 1, &tokens, RIG_HOLES, 322);
    for (size_t e = 0; e < EXPERTS; e++) {
        const size_t to = e * matrix, from = (EXPERTS - 1 - e) * matrix;
        memcpy(other.gate + to, first.gate + from, matrix * sizeof *first.gate);
        memcpy(other.up + to, first.up + from, matrix * sizeof *first.up);
        memcpy(other.down + to, first.down + from, matrix * sizeof *first.down);
    }
    for (int64_t s = 0; s < rig_batch_slots(&first); s++)
        other.ids[s] = first.ids[s] < 0 ? -1 : EXPERTS - 1 - first.ids[s];
    run_one(&first, &options);
    run_one(&other, &options);
    for (int64_t t = 0; t < tokens; t++)
        same_token(&other, t, &first, t);
    for (size_t e = 0; e < EXPERTS; e++) {
        const size_t to = e * matrix, from = (EXPERTS - 1 - e) * matrix;
        assert_memory_equal(other.dgate + to, first.dgate + from, matrix * sizeof *first.dgate);
        assert_memory_equal(other.dup + to, first.dup + from, matrix * sizeof *first.dup);
        assert_memory_equal(other.ddown + to, first.ddown + from, matrix * sizeof *first.ddown);
    }
    rig_batch_free(&first);
    rig_batch_free(&other);
}

/* Small integers through experts that pass features on: no rounding may show. */
static void identity_experts_are_exact(void **state) {
    (void)state;
    const int64_t tokens = some_tokens();
    const int last = rig_scaled("kinds of routing", RIG_HOLES, RIG_ZIPF);
    for (int routing = RIG_UNIFORM; routing <= last; routing++) {
        const struct rig_options options = {0};
        struct rig_batch batch = exact_batch_of(HIDDEN, INNER, EXPERTS, 2, 1, &tokens, routing, 341);
        run_one(&batch, &options);
        rig_compare(&batch, &options, RIG_EXACT);
        rig_batch_free(&batch);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b28_slots_are_summed_in_order),        cmocka_unit_test(b28_one_bit_pattern_in_every_run),
        cmocka_unit_test(keeping_rows_changes_no_bit),          cmocka_unit_test(order_of_tokens_does_not_matter),
        cmocka_unit_test(company_in_the_batch_does_not_matter), cmocka_unit_test(names_of_experts_do_not_matter),
        cmocka_unit_test(identity_experts_are_exact),           cmocka_unit_test(a_smaller_budget_changes_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
