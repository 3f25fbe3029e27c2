/* Sizes, groups of rows and layouts, on one GPU. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "support.h"

static int64_t sum(const int64_t *values, int64_t count) {
    int64_t total = 0;
    for (int64_t i = 0; i < count; i++)
        total += values[i];
    return total;
}

static void b17_groups_of_any_size(void **state) {
    (void)state;
    static const struct groups {
        int64_t experts, rows[4];
    } groups[] = {{4, {1, 15, 16, 17}}, {2, {44, 20}}, {4, {0, 1, 0, 31}}};
    for (int g = 0; g < COUNT(groups); g++) {
        const int64_t experts = groups[g].experts, rows = sum(groups[g].rows, experts);
        int64_t *ids = ids_of_groups(groups[g].rows, experts, rows);
        mmoe_layer_config layer = rig_layer(64, 128, experts, 1);
        const struct rig_options options = {0};
        prove_tokens(&layer, rows, ids, &options);
        free(ids);
    }
}

/* Other tokens for expert 1: nothing of expert 0 may change, not by a bit. */
static void b17_a_group_does_not_see_its_neighbour(void **state) {
    (void)state;
    const int64_t groups[] = {44, 20}, tokens = 64;
    int64_t *ids = ids_of_groups(groups, 2, tokens);
    mmoe_layer_config layer = rig_layer(64, 64, 2, 1);
    const struct rig_options options = {0};
    struct rig_batch batches[2];
    for (int i = 0; i < 2; i++)
        batches[i] = batch_with_ids(&layer, 1, &tokens, ids, 131);
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t h = 0; ids[t] == 1 && h < 64; h++)
            batches[1].x[t * 64 + h] ^= 0x8003; /* another sign and another mantissa */
    struct rig_world world = rig_world_for(batches, 2, RIG_THREADS);
    rig_run(&world, batches, 2, &options);
    for (int64_t t = 0; t < tokens; t++) {
        const size_t bytes = 64 * sizeof(uint16_t);
        const bool same = memcmp(batches[0].y + t * 64, batches[1].y + t * 64, bytes) == 0 &&
                          memcmp(batches[0].dx + t * 64, batches[1].dx + t * 64, bytes) == 0 &&
                          batches[0].dweights[t] == batches[1].dweights[t];
        assert_int_equal(same, ids[t] == 0);
    }
    const size_t matrix = 64 * 64 * sizeof(float);
    assert_memory_equal(batches[0].dgate, batches[1].dgate, matrix);
    assert_memory_equal(batches[0].dup, batches[1].dup, matrix);
    assert_memory_equal(batches[0].ddown, batches[1].ddown, matrix);
    assert_memory_not_equal(batches[0].dgate + 64 * 64, batches[1].dgate + 64 * 64, matrix);
    rig_batch_free(&batches[0]);
    rig_batch_free(&batches[1]);
    free(ids);
}

/* ---- Layouts ---- */

/* Tensors of tokens may lie in any way, which changes no bit. */
static void b18_every_tensor_of_tokens_in_every_layout(void **state) {
    (void)state;
    static const enum rig_operand operands[] = {RIG_X, RIG_IDS, RIG_WEIGHTS, RIG_Y, RIG_DY, RIG_DX, RIG_DWEIGHTS};
    static const enum rig_layout layouts[] = {RIG_OFFSET, RIG_TRANSPOSED, RIG_SLICED, RIG_SPREAD, RIG_NEGATIVE};
    const int64_t tokens = 11;
    const struct rig_options contiguous = {0};
    mmoe_layer_config layer = rig_layer(64, 64, 4, 2);
    struct rig_batch plain = rig_batch_make(&layer, 1, &tokens, RIG_HOLES, 411);
    struct rig_batch other = rig_batch_make(&layer, 1, &tokens, RIG_HOLES, 411);
    run_one(&plain, &contiguous);
    const int stride = rig_scaled("every n-th operand in a layout", 1, 6);
    for (int i = 0; i < COUNT(operands) * COUNT(layouts); i += stride) {
        struct rig_options options = {0};
        options.layout[operands[i % COUNT(operands)]] = layouts[i / COUNT(operands)];
        run_one(&other, &options);
        char what[48];
        snprintf(what, sizeof what, "operand %d in layout %d", operands[i % COUNT(operands)],
                 layouts[i / COUNT(operands)]);
        rig_same_bits(&plain, &other, what);
    }
    rig_batch_free(&plain);
    rig_batch_free(&other);
}

/* A gradient expanded from one number or one row, as autograd hands it over. */
static void b22_gradient_without_strides(void **state) {
    (void)state;
    const int64_t tokens = 7;
    mmoe_layer_config layer = rig_layer(64, 64, 4, 2);
    for (int layout = RIG_REPEATED_ROW; layout <= RIG_REPEATED; layout++) {
        struct rig_batch batch = rig_batch_make(&layer, 1, &tokens, RIG_UNIFORM, 421);
        rig_batch_positive(&batch);
        for (int64_t i = 0; i < rig_batch_values(&batch); i++)
            batch.dy[i] = mm_bf16_from_float(layout == RIG_REPEATED ? 1 : (float)(i % 64 + 1) / 8);
        struct rig_options options = {0};
        options.layout[RIG_DY] = layout;
        run_one(&batch, &options);
        rig_compare(&batch, &options, RIG_BOUND);
        rig_batch_free(&batch);
    }
}

/* ---- Sizes ---- */

/* One step of a small batch at sizes H and I, compared with the oracle. */
static void prove_size(int64_t hidden, int64_t intermediate) {
    mmoe_layer_config layer = rig_layer(hidden, intermediate, 4, 2);
    const int64_t tokens = 6;
    const struct rig_options options = {0};
    struct rig_batch batch = rig_batch_make(&layer, 1, &tokens, RIG_UNIFORM, (uint64_t)(hidden * 2000 + intermediate));
    rig_batch_positive(&batch);
    run_one(&batch, &options);
    rig_compare(&batch, &options, RIG_BOUND);
    rig_batch_free(&batch);
}

static void refuse_size(int64_t hidden, int64_t intermediate, const char *sentence) {
    mmoe_layer_config layer = rig_layer(hidden, intermediate, 4, 2);
    struct rig_world world = rig_world_make(1, RIG_THREADS, 8, hidden, 2, 4);
    mmoe_group *group;
    mmoe_layer *made = NULL;
    const char *reason = mmoe_unsupported_reason(rig_backend(), &layer, 1);
    assert_non_null(reason);
    assert_non_null(strstr(reason, sentence));
    assert_int_equal(mmoe_group_create_threads(&world.config, 1, &group), MMOE_OK);
    assert_int_equal(mmoe_layer_create(group, &layer, &made), MMOE_UNSUPPORTED);
    assert_non_null(strstr(mmoe_last_error(), sentence));
    assert_null(made);
    mmoe_group_destroy(&group);
}

static void b19_hidden_sizes_of_real_models(void **state) {
    (void)state;
    static const int64_t sizes[] = {64, 2880, 1536, 2048, 3072, 6144, 7168};
    const int count = rig_scaled("hidden sizes", COUNT(sizes), 2);
    for (int i = 0; i < count; i++)
        prove_size(sizes[i], 64);
    refuse_size(72, 64, "hidden is 72, expected a multiple of 64");
}

static void b18_sizes_that_are_not_supported(void **state) {
    (void)state;
    static const int64_t sizes[] = {1, 5, 7, 8, 9, 16, 1025};
    for (int i = 0; i < COUNT(sizes); i++) {
        char text[60];
        snprintf(text, sizeof text, "hidden is %d, expected a multiple of 64", (int)sizes[i]);
        refuse_size(sizes[i], 64, text);
    }
    refuse_size(64, 8, "intermediate is 8, expected a multiple of 64");
}

static void b20_sweep_of_sizes(void **state) {
    (void)state;
    const int64_t step = rig_scaled("step of the sweep of H and I", 64, 448);
    for (int64_t size = 64; size <= 1024; size += step) {
        prove_size(size, 64);
        prove_size(64, size);
    }
}

static void intermediate_sizes_of_real_models(void **state) {
    (void)state;
    not_at_small_size("intermediate sizes of real models");
    static const int64_t sizes[] = {768, 1408, 1536, 2880};
    for (int i = 0; i < COUNT(sizes); i++) {
        prove_size(64, sizes[i]);
        prove_size(sizes[i], sizes[i]);
    }
}

/* Exact data: expert e scales by e + 1, so a row at a wrong expert shows. */
static void b20_groups_that_straddle_blocks(void **state) {
    (void)state;
    static const int64_t groups[][3] = {{128, 130, 65}, {127, 1, 129}, {64, 256, 3}, {0, 257, 128}};
    const int count = rig_scaled("groups of rows", COUNT(groups), 1);
    for (int g = 0; g < count; g++) {
        const int64_t rows = sum(groups[g], 3);
        int64_t *ids = ids_of_groups(groups[g], 3, rows);
        struct rig_batch batch = exact_batch_of(128, 64, 3, 1, 1, &rows, RIG_UNIFORM, 151);
        memcpy(batch.ids, ids, (size_t)rows * sizeof *ids);
        const struct rig_options options = {0};
        run_one(&batch, &options);
        rig_compare(&batch, &options, RIG_EXACT);
        rig_batch_free(&batch);
        free(ids);
    }
}

/* Real sizes with the rows of a real load, whose oracle would take minutes: against the CPU backend. */
static void real_layers_are_those_of_the_cpu(void **state) {
    (void)state;
    not_at_small_size("layers of real sizes");
    static const struct {
        int64_t hidden, intermediate, experts, top_k, tokens;
        enum rig_routing routing;
    } layers[] = {
        {2048, 768, 4, 2, 700, RIG_ZIPF},     {4096, 1536, 2, 1, 300, RIG_UNIFORM}, {2880, 2880, 2, 2, 200, RIG_HOLES},
        {4096, 1408, 2, 1, 300, RIG_HOLES},   {7168, 2048, 1, 1, 200, RIG_UNIFORM}, {512, 256, 64, 8, 1000, RIG_ZIPF},
        {1024, 512, 8, 2, 1500, RIG_UNIFORM},
    };
    for (int i = 0; i < COUNT(layers); i++) {
        mmoe_layer_config layer =
            rig_layer(layers[i].hidden, layers[i].intermediate, layers[i].experts, layers[i].top_k);
        const struct rig_options options = {.keep = i % 2 ? MMOE_KEEP_ROWS : MMOE_KEEP_PLAN};
        struct rig_batch batch = rig_batch_make(&layer, 1, &layers[i].tokens, layers[i].routing, 160 + (uint64_t)i);
        run_one(&batch, &options);
        compare_with_cpu(&batch, &options);
        rig_batch_free(&batch);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b17_groups_of_any_size),
        cmocka_unit_test(b17_a_group_does_not_see_its_neighbour),
        cmocka_unit_test(b18_every_tensor_of_tokens_in_every_layout),
        cmocka_unit_test(b18_sizes_that_are_not_supported),
        cmocka_unit_test(b19_hidden_sizes_of_real_models),
        cmocka_unit_test(b20_groups_that_straddle_blocks),
        cmocka_unit_test(b20_sweep_of_sizes),
        cmocka_unit_test(b22_gradient_without_strides),
        cmocka_unit_test(intermediate_sizes_of_real_models),
        cmocka_unit_test(real_layers_are_those_of_the_cpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
