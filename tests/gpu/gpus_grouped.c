/* Forwards with a grouped combine over several GPUs: the bits of their definition in every run, with gradients that are
 * those of an exact combine; and the CPU backend's results. */
#include "gpus.h"
#include "rig/grouped.h"

static const struct rig_options keep_plan = {.keep = MMOE_KEEP_PLAN};
static const struct rig_options keep_rows = {.keep = MMOE_KEEP_ROWS};

/* ---- The definition ---- */

static void the_definition(void **state) {
    (void)state;
    static const struct {
        int64_t hidden, intermediate, local_experts, top_k, tokens;
        enum rig_routing routing;
    } layers[] = {{64, 64, 2, 4, 40, RIG_DUPLICATES},
                  {320, 64, 2, 3, 30, RIG_HOLES},
                  {2112, 64, 4, 8, 200, RIG_UNIFORM},
                  {192, 128, 16, 64, 100, RIG_ZIPF}};
    const int count = rig_scaled("layers", COUNT(layers), gpus_most > 2 ? 1 : 2);
    for
        GPUS_EACH_WORLD(world)
    for (int i = 0; i < count; i++) {
        int64_t tokens[MMOE_MAX_WORLD];
        const mmoe_layer_config layer =
            rig_layer(layers[i].hidden, layers[i].intermediate, layers[i].local_experts * world, layers[i].top_k);
        gpus_uneven_tokens(world, rig_small() ? 12 : layers[i].tokens, tokens);
        rig_prove_grouped(&layer, world, tokens, layers[i].routing, 980 + (uint64_t)i, gpus_kind,
                          i % 2 ? &keep_rows : &keep_plan);
    }
}

/* Dropped slots are no part of a sum. */
static void fixed_capacity_that_drops(void **state) {
    (void)state;
    gpus_two_at_small_size();
    for
        GPUS_EACH_WORLD(world) {
            int64_t tokens[MMOE_MAX_WORLD];
            mmoe_layer_config layer = rig_layer(64, 64, 4 * world, 4);
            layer.capacity_policy = MMOE_CAPACITY_FIXED;
            layer.capacity = 20 * world;
            layer.drop = 1;
            gpus_uneven_tokens(world, 20, tokens);
            rig_prove_grouped(&layer, world, tokens, RIG_ZIPF, 984, gpus_kind, &keep_plan);
        }
}

/* ---- Against the CPU backend ---- */

static void layers_of_real_models(void **state) {
    (void)state;
    gpus_two_at_small_size();
    static const struct {
        int64_t hidden, intermediate, local_experts, top_k, tokens;
    } layers[] = {{64, 64, 4, 4, 20}, {2048, 768, 8, 8, 900}, {4096, 1536, 2, 3, 700}};
    const int count = rig_scaled("layers", COUNT(layers), 1);
    for
        GPUS_EACH_WORLD(world)
    for (int i = 0; i < count; i++) {
        int64_t tokens[MMOE_MAX_WORLD];
        mmoe_layer_config layer =
            rig_layer(layers[i].hidden, layers[i].intermediate, layers[i].local_experts * world, layers[i].top_k);
        layer.combine = MMOE_COMBINE_GROUPED;
        gpus_uneven_tokens(world, layers[i].tokens, tokens);
        struct rig_batch batch = rig_batch_make(&layer, world, tokens, RIG_UNIFORM, 985);
        gpus_run(&batch, 1, &keep_plan);
        compare_with_cpu(&batch, &keep_plan);
        rig_batch_free(&batch);
    }
}

/* ---- Run to run ---- */

static void the_same_bits_in_every_run(void **state) {
    (void)state;
    gpus_two_at_small_size();
    const struct rig_options forward = {.forward_only = true};
    const int runs = rig_scaled("runs", 20, 1);
    for
        GPUS_EACH_WORLD(world) {
            int64_t tokens[MMOE_MAX_WORLD];
            mmoe_layer_config layer = rig_layer(256, 128, 4 * world, 4);
            layer.combine = MMOE_COMBINE_GROUPED;
            gpus_uneven_tokens(world, rig_small() ? 10 : 500, tokens);
            struct rig_batch first = rig_batch_make(&layer, world, tokens, RIG_DUPLICATES, 986);
            struct rig_batch again = rig_batch_make(&layer, world, tokens, RIG_DUPLICATES, 986);
            gpus_run(&first, 1, &forward);
            for (int run = 0; run < runs; run++) {
                gpus_run(&again, 1, &forward);
                assert_memory_equal(again.y, first.y, (size_t)rig_batch_values(&first) * sizeof *first.y);
            }
            rig_batch_free(&first);
            rig_batch_free(&again);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_definition),
        cmocka_unit_test(fixed_capacity_that_drops),
        cmocka_unit_test(layers_of_real_models),
        cmocka_unit_test(the_same_bits_in_every_run),
    };
    const struct CMUnitTest in_processes[] = {cmocka_unit_test(the_definition)};
    return gpus_main(2, GPUS_TESTS(in_processes), GPUS_TESTS(tests));
}
