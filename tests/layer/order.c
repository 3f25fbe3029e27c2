/* B28: bits that depend neither on the run, nor on the threads, nor on which expert answers first. */
#include "proof.h"

#include <string.h>

#include "base/bf16.h"

/* ---- Sum in slot order */

#define BIG 134217728.0f /* 2^27, exact in bf16; in fp32 BIG + 1 = BIG, so that the order of a sum shows */

/* One token, four experts whose outputs are exactly BIG, 1, -BIG, 1 in every feature but the first. */
static struct rig_batch ordered_batch(int world, const int64_t slots[4]) {
    int64_t tokens[4] = {1, 0, 0, 0};
    struct rig_batch batch = exact_batch(8, 4, 4, world, tokens, RIG_UNIFORM, 201);
    static const float outputs[4] = {BIG, 1, -BIG, 1};
    for (int64_t i = 0; i < rig_batch_stack(&batch); i++)
        if (batch.down[i])
            batch.down[i] = mm_bf16_from_float(outputs[i / (8 * 7)] / 64);
    for (int h = 1; h < 8; h++)
        batch.x[h] = mm_bf16_from_float(1);
    memcpy(batch.ids, slots, 4 * sizeof *slots);
    return batch;
}

/* Runs it once and expects `sum` in every feature but the first. */
static void check_sum(int world, const int64_t slots[4], float sum) {
    struct rig_batch batch = ordered_batch(world, slots);
    struct rig_options options = {0};
    struct rig_world ranks = rig_world_for(&batch, 1, RIG_THREADS);
    rig_run(&ranks, &batch, 1, &options);
    for (int h = 1; h < 8; h++)
        if (mm_bf16_to_float(batch.y[h]) != sum)
            fail_msg("the sum is %g, expected %g", mm_bf16_to_float(batch.y[h]), sum);
    rig_batch_free(&batch);
}

static void b28_slots_are_summed_in_order(void **state) {
    (void)state;
    for (int world = 1; world <= 4; world *= 2) {
        check_sum(world, (int64_t[]){0, 1, 2, 3}, 1);
        check_sum(world, (int64_t[]){1, 3, 0, 2}, 0);
        check_sum(world, (int64_t[]){0, 2, 1, 3}, 2);
    }
}

/* ---- One bit pattern */

struct repeat {
    struct rig_batch *first, *again;
    int runs;
};

static void repeat_body(struct rig_rank *rank, void *context) {
    struct repeat *repeat = context;
    struct rig_options options = {0};
    mmoe_layer *layer;
    mmoe_saved *saved;
    RIG_OK(rank, mmoe_layer_create(rank->group, &repeat->again->layer, &layer));
    RIG_OK(rank, mmoe_saved_create(layer, MMOE_KEEP_PLAN, &saved));
    for (int run = 0; run < repeat->runs; run++) {
        if (!rig_step(rank, layer, saved, repeat->again, &options, 0xff))
            return;
        RIG_EXPECT(rank, rig_rank_same_bits(rank, repeat->first, repeat->again), "other bits in run %d", run);
    }
    mmoe_saved_destroy(&saved);
    mmoe_layer_destroy(&layer);
}

/* Every run at 1 to 16 threads has the bits of the first. `make` gives the same batch each time. */
static void check_one_pattern(struct rig_batch (*make)(void), int runs) {
    struct rig_batch first = make(), again = make();
    struct rig_options options = {0};
    struct rig_world world = rig_world_for(&first, 1, RIG_THREADS);
    world.config.threads = 1;
    rig_run(&world, &first, 1, &options);
    struct repeat repeat = {&first, &again, runs};
    for (int threads = 1; threads <= 16; threads++) {
        world.config.threads = threads;
        rig_batch_reset(&again);
        rig_world_run(&world, repeat_body, &repeat);
    }
    rig_batch_free(&first);
    rig_batch_free(&again);
}

static struct rig_batch four_outputs(void) {
    return ordered_batch(2, (int64_t[]){0, 1, 2, 3});
}

static struct rig_batch several_blocks(void) {
    mmoe_layer_config layer = rig_layer(48, 40, 4, 3);
    const int64_t tokens[2] = {300, 211};
    return rig_batch_make(&layer, 2, tokens, RIG_ZIPF, 203);
}

static void b28_one_bit_pattern_at_any_number_of_threads(void **state) {
    (void)state;
    check_one_pattern(four_outputs, rig_scaled("runs at each number of threads", 100, 5));
    check_one_pattern(several_blocks, rig_scaled("runs of a large batch", 3, 1));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b28_slots_are_summed_in_order),
        cmocka_unit_test(b28_one_bit_pattern_at_any_number_of_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
