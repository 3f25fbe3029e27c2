/* Bits of the whole layer at sizes where products have several tiles, panels and runs: company in the batch, threads,
 * ranks. Run again with OpenBLAS's AVX2 kernels. */
#include "rig/rig.h"

#include <string.h>

/* Two tiles of columns in every product, two panels of depth; an expert's rows make more than one run. */
#define HIDDEN 1040
#define INNER 400
#define EXPERTS 2
#define TOP_K 2

/* Under sanitizers an expert's rows fit one run. */
static int64_t tokens_of_batch(void) {
    return rig_scaled("tokens of a batch", 700, 150);
}

static struct rig_batch make(int world, const int64_t *tokens, uint64_t seed) {
    mmoe_layer_config layer = rig_layer(HIDDEN, INNER, EXPERTS, TOP_K);
    return rig_batch_make(&layer, world, tokens, RIG_DUPLICATES, seed);
}

static void run(struct rig_batch *batch, int threads, const struct rig_options *options) {
    struct rig_world world = rig_world_for(batch, 1, RIG_THREADS);
    world.config.threads = threads;
    rig_run(&world, batch, 1, options);
}

static const struct rig_options kept = {.keep = MMOE_KEEP_ROWS};

static void the_number_of_threads_does_not_matter(void **state) {
    (void)state;
    const int64_t tokens[1] = {tokens_of_batch()};
    struct rig_batch first = make(1, tokens, 11);
    run(&first, 1, &kept);
    for (int threads = 2; threads <= 4; threads += 2) {
        struct rig_batch batch = make(1, tokens, 11);
        run(&batch, threads, &kept);
        rig_same_bits(&first, &batch, "more threads");
        rig_batch_free(&batch);
    }
    rig_batch_free(&first);
}

static void the_number_of_ranks_does_not_matter(void **state) {
    (void)state;
    const int64_t alone[1] = {tokens_of_batch()}, two[2] = {alone[0] - 77, 77};
    struct rig_options options[] = {{.keep = MMOE_KEEP_PLAN},
                                    {.keep = MMOE_KEEP_PLAN, .accumulate = true, .narrow_gradients = true}};
    for (int o = 0; o < 2; o++) {
        struct rig_batch first = make(1, alone, 12), batch = make(2, two, 12);
        run(&first, 2, &options[o]);
        run(&batch, 1, &options[o]);
        rig_same_bits(&first, &batch, "two ranks");
        rig_batch_free(&first);
        rig_batch_free(&batch);
    }
}

/* Copies token `from` of a batch and the experts to the only token of another. */
static void take_token(const struct rig_batch *batch, int64_t from, struct rig_batch *alone) {
    const size_t stack = (size_t)rig_batch_stack(batch) * sizeof *batch->gate;
    memcpy(alone->gate, batch->gate, stack);
    memcpy(alone->up, batch->up, stack);
    memcpy(alone->down, batch->down, stack);
    memcpy(alone->x, batch->x + from * HIDDEN, HIDDEN * sizeof *batch->x);
    memcpy(alone->dy, batch->dy + from * HIDDEN, HIDDEN * sizeof *batch->dy);
    memcpy(alone->ids, batch->ids + from * TOP_K, TOP_K * sizeof *batch->ids);
    memcpy(alone->weights, batch->weights + from * TOP_K, TOP_K * sizeof *batch->weights);
}

static void a_token_alone_has_the_bits_it_has_in_company(void **state) {
    (void)state;
    const int64_t all[1] = {tokens_of_batch()}, one[1] = {1};
    const int64_t chosen[] = {0, 100, all[0] / 3, all[0] / 2, all[0] - 1};
    struct rig_batch batch = make(1, all, 13);
    run(&batch, 2, &kept);
    for (size_t i = 0; i < sizeof chosen / sizeof chosen[0]; i++) {
        int64_t t = chosen[i];
        struct rig_batch alone = make(1, one, 14);
        take_token(&batch, t, &alone);
        run(&alone, 1, &kept);
        assert_memory_equal(alone.y, batch.y + t * HIDDEN, HIDDEN * sizeof *batch.y);
        assert_memory_equal(alone.dx, batch.dx + t * HIDDEN, HIDDEN * sizeof *batch.dx);
        assert_memory_equal(alone.dweights, batch.dweights + t * TOP_K, TOP_K * sizeof *batch.dweights);
        rig_batch_free(&alone);
    }
    rig_batch_free(&batch);
}

static void agrees_with_the_oracle(void **state) {
    (void)state;
    const int64_t tokens[1] = {tokens_of_batch() / 2};
    for (int on_input = 0; on_input < 2; on_input++) {
        mmoe_layer_config layer = rig_layer(HIDDEN, INNER, EXPERTS, TOP_K);
        layer.weight_on = on_input ? MMOE_WEIGHT_ON_INPUT : MMOE_WEIGHT_ON_OUTPUT;
        struct rig_batch batch = rig_batch_make(&layer, 1, tokens, RIG_DUPLICATES, 15);
        run(&batch, 2, &kept);
        rig_compare(&batch, &kept, RIG_BOUND);
        rig_batch_free(&batch);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_number_of_threads_does_not_matter),
        cmocka_unit_test(the_number_of_ranks_does_not_matter),
        cmocka_unit_test(a_token_alone_has_the_bits_it_has_in_company),
        cmocka_unit_test(agrees_with_the_oracle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
