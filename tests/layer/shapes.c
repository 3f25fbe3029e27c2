/* Odd shapes, groups of every size, and real models' hidden sizes. */
#include "proof.h"

#include <stdlib.h>
#include <string.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* Ids [rows] of K = 1 such that expert e gets groups[e] rows, in an order that mixes experts. */
static int64_t *ids_of_groups(const int64_t *groups, int64_t experts, int64_t rows) {
    int64_t *ids = malloc((size_t)rows * sizeof *ids), left[8];
    memcpy(left, groups, (size_t)experts * sizeof *left);
    for (int64_t row = 0, e = 0; row < rows; e = (e + 1) % experts)
        if (left[e]-- > 0)
            ids[row++] = e;
    return ids;
}

static int64_t sum(const int64_t *values, int64_t count) {
    int64_t total = 0;
    for (int64_t i = 0; i < count; i++)
        total += values[i];
    return total;
}

static const struct groups {
    int64_t experts, rows[4];
} b17_groups[] = {{4, {1, 15, 16, 17}}, {2, {44, 20}}, {4, {0, 1, 0, 31}}};

static void b17_groups_of_any_size(void **state) {
    (void)state;
    for (int g = 0; g < COUNT(b17_groups); g++) {
        int64_t experts = b17_groups[g].experts, rows = sum(b17_groups[g].rows, experts);
        int64_t *ids = ids_of_groups(b17_groups[g].rows, experts, rows);
        const int64_t alone[1] = {rows}, two[2] = {rows / 2, rows - rows / 2};
        mmoe_layer_config layer = rig_layer(24, 20, experts, 1);
        struct rig_options options = {0};
        prove_ids(&layer, 1, RIG_THREADS, alone, ids, &options);
        prove_ids(&layer, 2, RIG_THREADS, two, ids, &options);
        free(ids);
    }
}

/* Other tokens for expert 1: nothing of expert 0 may change, not by a bit. */
static void b17_a_group_does_not_see_its_neighbour(void **state) {
    (void)state;
    const int64_t groups[2] = {44, 20}, tokens[1] = {64};
    int64_t *ids = ids_of_groups(groups, 2, 64);
    mmoe_layer_config layer = rig_layer(24, 20, 2, 1);
    struct rig_options options = {0};
    struct rig_batch batches[2];
    for (int i = 0; i < 2; i++)
        batches[i] = batch_with_ids(&layer, 1, tokens, ids, 131);
    for (int64_t t = 0; t < 64; t++)
        for (int64_t h = 0; ids[t] == 1 && h < 24; h++)
            batches[1].x[t * 24 + h] ^= 0x8003; /* another sign and another mantissa */
    struct rig_world world = rig_world_for(batches, 2, RIG_THREADS);
    rig_run(&world, batches, 2, &options);
    for (int64_t t = 0; t < 64; t++) {
        const size_t bytes = 24 * sizeof(uint16_t);
        bool same = memcmp(batches[0].y + t * 24, batches[1].y + t * 24, bytes) == 0 &&
                    memcmp(batches[0].dx + t * 24, batches[1].dx + t * 24, bytes) == 0 &&
                    batches[0].dweights[t] == batches[1].dweights[t];
        assert_int_equal(same, ids[t] == 0);
    }
    const size_t matrix = 24 * 20 * sizeof(float);
    assert_memory_equal(batches[0].dgate, batches[1].dgate, matrix);
    assert_memory_equal(batches[0].dup, batches[1].dup, matrix);
    assert_memory_equal(batches[0].ddown, batches[1].ddown, matrix);
    assert_memory_not_equal(batches[0].dgate + 24 * 20, batches[1].dgate + 24 * 20, matrix);
    rig_batch_free(&batches[0]);
    rig_batch_free(&batches[1]);
    free(ids);
}

static void b18_odd_sizes(void **state) {
    (void)state;
    static const int64_t sizes[] = {1, 5, 7, 8, 9, 1025};
    for (int keep = MMOE_KEEP_PLAN; keep <= MMOE_KEEP_ROWS; keep++)
        for (int i = 0; i < COUNT(sizes); i++) {
            struct rig_options options = {.keep = keep};
            mmoe_layer_config wide = rig_layer(sizes[i], 17, 4, 2), deep = rig_layer(17, sizes[i], 4, 2);
            prove_layer(&wide, 2, RIG_THREADS, 40, POSITIVE, &options);
            prove_layer(&deep, 2, RIG_THREADS, 40, POSITIVE, &options);
        }
}

/* The transposed weights of the original fault: 4 x 512 x 1025. */
static void b18_transposed_weights_of_odd_pitch(void **state) {
    (void)state;
    mmoe_layer_config layer = rig_layer(1025, 512, 4, 2);
    const int64_t tokens[1] = {8};
    struct rig_batch batches[2];
    for (int i = 0; i < 2; i++) {
        batches[i] = rig_batch_make(&layer, 1, tokens, RIG_UNIFORM, 141);
        rig_batch_positive(&batches[i]);
    }
    struct rig_options plain = {0}, transposed = {0};
    transposed.layout[RIG_GATE] = transposed.layout[RIG_UP] = transposed.layout[RIG_DOWN] = RIG_TRANSPOSED;
    struct rig_world world = rig_world_for(batches, 1, RIG_THREADS);
    rig_run(&world, &batches[0], 1, &plain);
    rig_run(&world, &batches[1], 1, &transposed);
    rig_compare(&batches[0], &plain, RIG_BOUND);
    rig_same_bits(&batches[0], &batches[1], "transposed weights");
    rig_batch_free(&batches[0]);
    rig_batch_free(&batches[1]);
}

static void b19_hidden_sizes_of_real_models(void **state) {
    (void)state;
    static const int64_t sizes[] = {64, 72, 1536, 2048, 2880, 3072, 6144, 7168};
    int count = rig_scaled("hidden sizes", COUNT(sizes), 3);
    for (int i = 0; i < count; i++) {
        mmoe_layer_config layer = rig_layer(sizes[i], 24, 4, 2);
        struct rig_options options = {0};
        prove_layer(&layer, 1, RIG_THREADS, 6, POSITIVE, &options);
        prove_layer(&layer, 2, i % 2 ? RIG_PROCESSES : RIG_THREADS, 6, POSITIVE, &options);
    }
}

/* Exact data: expert e scales by e + 1, so a row at a wrong expert shows. */
static void b20_groups_that_straddle_blocks(void **state) {
    (void)state;
    static const int64_t groups[][3] = {{128, 130, 65}, {127, 1, 129}, {64, 256, 3}, {0, 257, 128}};
    for (int g = 0; g < COUNT(groups); g++) {
        int64_t rows = sum(groups[g], 3), *ids = ids_of_groups(groups[g], 3, rows);
        for (int world = 1; world <= 3; world += 2) {
            int64_t tokens[3] = {rows, 0, 0};
            if (world == 3)
                memcpy(tokens, (int64_t[3]){rows / 4, rows / 2, rows - rows / 4 - rows / 2}, sizeof tokens);
            struct rig_batch batch = exact_batch(8, 3, 1, world, tokens, RIG_UNIFORM, 151);
            memcpy(batch.ids, ids, (size_t)rows * sizeof *ids);
            struct rig_options options = {0};
            struct rig_world ranks = rig_world_for(&batch, 1, RIG_THREADS);
            rig_run(&ranks, &batch, 1, &options);
            rig_compare(&batch, &options, RIG_EXACT);
            rig_batch_free(&batch);
        }
        free(ids);
    }
}

/* One step of a small batch at sizes H and I, compared with the oracle. */
static void prove_size(int64_t hidden, int64_t intermediate) {
    mmoe_layer_config layer = rig_layer(hidden, intermediate, 4, 2);
    const int64_t tokens[1] = {6};
    struct rig_options options = {0};
    struct rig_batch batch = rig_batch_make(&layer, 1, tokens, RIG_UNIFORM, (uint64_t)(hidden * 2000 + intermediate));
    rig_batch_positive(&batch);
    struct rig_world world = rig_world_for(&batch, 1, RIG_THREADS);
    rig_run(&world, &batch, 1, &options);
    rig_compare(&batch, &options, RIG_BOUND);
    rig_batch_free(&batch);
}

static void b20_sweep_of_sizes(void **state) {
    (void)state;
    int64_t step = rig_scaled("step of the sweep of H and I", 8, 96);
    for (int64_t size = 8; size <= 1024; size += step) {
        prove_size(size, 16);
        prove_size(16, size);
    }
    prove_size(1536, 16);
    prove_size(16, 1536);
    prove_size(768, 1536);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b17_groups_of_any_size),
        cmocka_unit_test(b17_a_group_does_not_see_its_neighbour),
        cmocka_unit_test(b18_odd_sizes),
        cmocka_unit_test(b18_transposed_weights_of_odd_pitch),
        cmocka_unit_test(b19_hidden_sizes_of_real_models),
        cmocka_unit_test(b20_groups_that_straddle_blocks),
        cmocka_unit_test(b20_sweep_of_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
