/* What holds on any input: order of tokens, names of experts, number and kind of ranks, company in the batch. */
#include "proof.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oracle/oracle.h"

#define HIDDEN 40
#define INNER 36
#define EXPERTS 8
#define TOP_K 3
#define TOKENS 320

static mmoe_layer_config layer_of_form(int form) {
    mmoe_layer_config layer = rig_layer(HIDDEN, INNER, EXPERTS, TOP_K);
    layer.weight_on = form & 1 ? MMOE_WEIGHT_ON_INPUT : MMOE_WEIGHT_ON_OUTPUT;
    layer.limit = form & 2 ? 0.75f : 0;
    return layer;
}

static void run(struct rig_batch *batch, enum rig_kind kind, mmoe_keep keep) {
    struct rig_options options = {.keep = keep};
    struct rig_world world = rig_world_for(batch, 1, kind);
    rig_run(&world, batch, 1, &options);
}

/* Splits TOKENS over the ranks unevenly, one rank of many without tokens. */
static void split(int world, int64_t *tokens) {
    int64_t left = TOKENS;
    for (int r = 0; r < world; r++) {
        tokens[r] = r == world - 1 ? left : world > 2 && r == 1 ? 0 : left / 3;
        left -= tokens[r];
    }
}

static void same_bits_at_any_number_of_ranks(void **state) {
    (void)state;
    for (int form = 0; form < 4; form++) {
        mmoe_layer_config layer = layer_of_form(form);
        const int64_t alone[1] = {TOKENS};
        struct rig_batch first = rig_batch_make(&layer, 1, alone, RIG_HOLES, 301);
        run(&first, RIG_THREADS, MMOE_KEEP_PLAN);
        for (int world = 1; world <= 8; world *= 2)
            for (int way = 0; way < 4; way++) {
                int64_t tokens[8];
                split(world, tokens);
                struct rig_batch batch = rig_batch_make(&layer, world, tokens, RIG_HOLES, 301);
                run(&batch, way & 1 ? RIG_PROCESSES : RIG_THREADS, way & 2 ? MMOE_KEEP_ROWS : MMOE_KEEP_PLAN);
                char what[80];
                snprintf(what, sizeof what, "W = %d as %s, keeping %s", world, way & 1 ? "processes" : "threads",
                         way & 2 ? "rows" : "the plan");
                rig_same_bits(&first, &batch, what);
                rig_batch_free(&batch);
            }
        rig_batch_free(&first);
    }
}

/* ---- Permutations */

static void shuffle(int64_t *order, int64_t n, uint64_t seed) {
    struct rig_random random = rig_seed(seed);
    for (int64_t i = 0; i < n; i++)
        order[i] = i;
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t j = rig_below(&random, i + 1), kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
}

/* Row i of `to` is row order[i] of `from`. */
static void permute(void *to, const void *from, const int64_t *order, int64_t rows, size_t row_bytes) {
    for (int64_t i = 0; i < rows; i++)
        memcpy((char *)to + (size_t)i * row_bytes, (const char *)from + (size_t)order[i] * row_bytes, row_bytes);
}

static void check_rows(const void *permuted, const void *from, const int64_t *order, int64_t rows, size_t row_bytes) {
    for (int64_t i = 0; i < rows; i++)
        assert_memory_equal((const char *)permuted + (size_t)i * row_bytes,
                            (const char *)from + (size_t)order[i] * row_bytes, row_bytes);
}

static void check_to_rounding(const float *value, const float *reference, int64_t n) {
    double *a = malloc((size_t)n * sizeof *a), *b = malloc((size_t)n * sizeof *b);
    for (int64_t i = 0; i < n; i++) {
        a[i] = value[i];
        b[i] = reference[i];
    }
    assert_true(oracle_relative_error(a, b, n) < 1e-6);
    free(a);
    free(b);
}

static void check_token_order(int world, int form) {
    mmoe_layer_config layer = layer_of_form(form);
    int64_t tokens[8], order[TOKENS];
    split(world, tokens);
    shuffle(order, TOKENS, 311);
    struct rig_batch first = rig_batch_make(&layer, world, tokens, RIG_HOLES, 312);
    struct rig_batch other = rig_batch_make(&layer, world, tokens, RIG_HOLES, 312);
    permute(other.x, first.x, order, TOKENS, HIDDEN * sizeof *first.x);
    permute(other.dy, first.dy, order, TOKENS, HIDDEN * sizeof *first.dy);
    permute(other.ids, first.ids, order, TOKENS, TOP_K * sizeof *first.ids);
    permute(other.weights, first.weights, order, TOKENS, TOP_K * sizeof *first.weights);
    run(&first, RIG_THREADS, MMOE_KEEP_PLAN);
    run(&other, RIG_THREADS, MMOE_KEEP_PLAN);
    check_rows(other.y, first.y, order, TOKENS, HIDDEN * sizeof *first.y);
    check_rows(other.dx, first.dx, order, TOKENS, HIDDEN * sizeof *first.dx);
    check_rows(other.dweights, first.dweights, order, TOKENS, TOP_K * sizeof *first.dweights);
    int64_t stack = rig_batch_stack(&first);
    check_to_rounding(other.dgate, first.dgate, stack);
    check_to_rounding(other.dup, first.dup, stack);
    check_to_rounding(other.ddown, first.ddown, stack);
    rig_batch_free(&first);
    rig_batch_free(&other);
}

static void order_of_tokens_does_not_matter(void **state) {
    (void)state;
    for (int form = 0; form < 4; form++) {
        check_token_order(1, form);
        check_token_order(4, form);
    }
}

/* Expert e of the other batch is expert order[e] of the first, and lives on another rank. */
static void names_of_experts_do_not_matter(void **state) {
    (void)state;
    for (int form = 0; form < 4; form++) {
        mmoe_layer_config layer = layer_of_form(form);
        int64_t tokens[8], order[EXPERTS], name[EXPERTS];
        split(4, tokens);
        shuffle(order, EXPERTS, 321);
        for (int64_t e = 0; e < EXPERTS; e++)
            name[order[e]] = e;
        struct rig_batch first = rig_batch_make(&layer, 4, tokens, RIG_HOLES, 322);
        struct rig_batch other = rig_batch_make(&layer, 4, tokens, RIG_HOLES, 322);
        const size_t matrix = HIDDEN * INNER;
        permute(other.gate, first.gate, order, EXPERTS, matrix * sizeof *first.gate);
        permute(other.up, first.up, order, EXPERTS, matrix * sizeof *first.up);
        permute(other.down, first.down, order, EXPERTS, matrix * sizeof *first.down);
        for (int64_t s = 0; s < rig_batch_slots(&first); s++)
            other.ids[s] = first.ids[s] < 0 ? -1 : name[first.ids[s]];
        run(&first, RIG_THREADS, MMOE_KEEP_PLAN);
        run(&other, RIG_THREADS, MMOE_KEEP_PLAN);
        assert_memory_equal(other.y, first.y, TOKENS * HIDDEN * sizeof *first.y);
        assert_memory_equal(other.dx, first.dx, TOKENS * HIDDEN * sizeof *first.dx);
        assert_memory_equal(other.dweights, first.dweights, TOKENS * TOP_K * sizeof *first.dweights);
        check_rows(other.dgate, first.dgate, order, EXPERTS, matrix * sizeof *first.dgate);
        check_rows(other.dup, first.dup, order, EXPERTS, matrix * sizeof *first.dup);
        check_rows(other.ddown, first.ddown, order, EXPERTS, matrix * sizeof *first.ddown);
        rig_batch_free(&first);
        rig_batch_free(&other);
    }
}

/* A token alone in its call has the bits it has among 319 others. */
static void company_in_the_batch_does_not_matter(void **state) {
    (void)state;
    static const int64_t chosen[] = {0, 7, 130, TOKENS - 1};
    for (int form = 0; form < 4; form++) {
        mmoe_layer_config layer = layer_of_form(form);
        const int64_t all[1] = {TOKENS}, one[1] = {1};
        struct rig_batch batch = rig_batch_make(&layer, 1, all, RIG_UNIFORM, 331);
        run(&batch, RIG_THREADS, MMOE_KEEP_PLAN);
        for (int i = 0; i < 4; i++) {
            int64_t t = chosen[i];
            struct rig_batch alone = rig_batch_make(&layer, 1, one, RIG_UNIFORM, 332);
            const size_t stack = (size_t)rig_batch_stack(&batch) * sizeof *batch.gate;
            memcpy(alone.gate, batch.gate, stack);
            memcpy(alone.up, batch.up, stack);
            memcpy(alone.down, batch.down, stack);
            memcpy(alone.x, batch.x + t * HIDDEN, HIDDEN * sizeof *batch.x);
            memcpy(alone.dy, batch.dy + t * HIDDEN, HIDDEN * sizeof *batch.dy);
            memcpy(alone.ids, batch.ids + t * TOP_K, TOP_K * sizeof *batch.ids);
            memcpy(alone.weights, batch.weights + t * TOP_K, TOP_K * sizeof *batch.weights);
            run(&alone, RIG_THREADS, MMOE_KEEP_PLAN);
            assert_memory_equal(alone.y, batch.y + t * HIDDEN, HIDDEN * sizeof *batch.y);
            assert_memory_equal(alone.dx, batch.dx + t * HIDDEN, HIDDEN * sizeof *batch.dx);
            assert_memory_equal(alone.dweights, batch.dweights + t * TOP_K, TOP_K * sizeof *batch.dweights);
            rig_batch_free(&alone);
        }
        rig_batch_free(&batch);
    }
}

/* Small integers through experts that pass features on: no rounding may show, at any number of ranks. */
static void identity_experts_are_exact(void **state) {
    (void)state;
    for (int routing = RIG_UNIFORM; routing <= RIG_HOLES; routing++)
        for (int world = 1; world <= 8; world *= 2) {
            int64_t tokens[8];
            split(world, tokens);
            struct rig_options options = {0};
            struct rig_batch batch = exact_batch(12, EXPERTS, 2, world, tokens, routing, 341);
            run(&batch, world == 2 ? RIG_PROCESSES : RIG_THREADS, MMOE_KEEP_PLAN);
            rig_compare(&batch, &options, RIG_EXACT);
            rig_batch_free(&batch);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_at_any_number_of_ranks), cmocka_unit_test(order_of_tokens_does_not_matter),
        cmocka_unit_test(names_of_experts_do_not_matter),   cmocka_unit_test(company_in_the_batch_does_not_matter),
        cmocka_unit_test(identity_experts_are_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
