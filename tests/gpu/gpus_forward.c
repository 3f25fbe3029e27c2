/* The forward over several GPUs against the oracle, the CPU backend and one GPU: shapes, routings, capacities, layouts,
 * what is kept. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "cuda/state.h"
#include "gpus.h"
#include "graphs.h"

#define EACH_WORLD(world) (int world = gpus_least(); world <= gpus_most; world *= 2)

static const struct rig_options keep_plan = {.forward_only = true};
static const struct rig_options keep_rows = {.forward_only = true, .keep = MMOE_KEEP_ROWS};

/* Ends the running test on more than two simulated GPUs, and says so. */
static void on_two_at_small_size(void) {
    if (rig_small() && gpus_most > 2) {
        print_message("not run on %d GPUs at small size\n", gpus_most);
        skip();
    }
}

/* T of each rank: `most`, one less, none at all, one, and so on. */
static void uneven_tokens(int world, int64_t most, int64_t *tokens) {
    for (int r = 0; r < world; r++)
        tokens[r] = r % 4 == 1 ? (most > 0 ? most - 1 : 0) : r % 4 == 2 ? 0 : r % 4 == 3 ? 1 : most;
}

/* ---- Shapes ---- */

static void shapes(void **state) {
    (void)state;
    on_two_at_small_size();
    static const struct {
        int64_t hidden, intermediate, local_experts, top_k, tokens;
    } shapes[] = {{64, 64, 1, 1, 150}, {320, 128, 3, 4, 20}, {64, 448, 2, 2, 35}, {192, 64, 5, 3, 260}};
    const int count = rig_scaled("shapes", COUNT(shapes), 2);
    for
        EACH_WORLD(world)
    for (int i = 0; i < count; i++) {
        mmoe_layer_config layer =
            rig_layer(shapes[i].hidden, shapes[i].intermediate, shapes[i].local_experts * world, shapes[i].top_k);
        layer.limit = i == 0 ? 0.75f : 0;
        prove_layer(&layer, world, gpus_kind, shapes[i].tokens, EITHER_SIGN, i % 2 ? &keep_rows : &keep_plan);
    }
}

/* Layers of real models with fewer experts, against the CPU backend. */
static void layers_of_real_models(void **state) {
    (void)state;
    not_at_small_size("layers of real models");
    static const struct {
        int64_t hidden, intermediate, local_experts, top_k, tokens;
        enum rig_routing routing;
    } layers[] = {
        {2048, 768, 8, 8, 900, RIG_UNIFORM},  {4096, 1536, 2, 3, 700, RIG_ZIPF},  {4096, 1408, 2, 2, 300, RIG_HOLES},
        {7168, 2048, 1, 2, 200, RIG_UNIFORM}, {2880, 2880, 2, 4, 200, RIG_HOLES}, {512, 256, 64, 8, 2000, RIG_ZIPF},
    };
    for
        EACH_WORLD(world)
    for (int i = 0; i < COUNT(layers); i++) {
        int64_t tokens[MMOE_MAX_WORLD];
        const mmoe_layer_config layer =
            rig_layer(layers[i].hidden, layers[i].intermediate, layers[i].local_experts * world, layers[i].top_k);
        uneven_tokens(world, layers[i].tokens, tokens);
        struct rig_batch batch = rig_batch_make(&layer, world, tokens, layers[i].routing, 700 + (uint64_t)i);
        const struct rig_options *options = i % 2 ? &keep_rows : &keep_plan;
        gpus_run(&batch, 1, options);
        compare_with_cpu(&batch, options);
        rig_batch_free(&batch);
    }
}

/* T * K around 2^16 on each rank, and where that is the sum of all. */
static void b12_slots_around_two_to_the_16(void **state) {
    (void)state;
    not_at_small_size("65535 slots and more");
    static const int64_t shapes[][2] = {{65535, 1}, {65536, 1}, {65537, 1}, {21845, 3}, {8191, 8}, {8192, 8}};
    for
        EACH_WORLD(world)
    for (int i = 0; i < 2 * COUNT(shapes); i++) {
        const int64_t *shape = shapes[i / 2];
        int64_t tokens[MMOE_MAX_WORLD];
        for (int r = 0; r < world; r++)
            tokens[r] = i % 2 == 0 ? shape[0] : shape[0] / world + (r == 0 ? shape[0] % world : 0);
        const mmoe_layer_config layer = rig_layer(64, 64, 8 * world, shape[1]);
        struct rig_batch batch = rig_batch_make(&layer, world, tokens, RIG_UNIFORM, 171);
        gpus_run(&batch, 1, &keep_plan);
        compare_with_cpu(&batch, &keep_plan);
        rig_batch_free(&batch);
    }
}

/* ---- Routings ---- */

/* B03, B10, B14: every kind of routing, with T that differs and is 0 somewhere, on one layer. */
static void routings(void **state) {
    (void)state;
    static const enum rig_routing kinds[] = {RIG_ZIPF,    RIG_ONE_EXPERT, RIG_DUPLICATES,
                                             RIG_UNIFORM, RIG_UNUSED,     RIG_HOLES};
    for
        EACH_WORLD(world) {
            struct rig_batch batches[COUNT(kinds)];
            const mmoe_layer_config layer = rig_layer(64, 64, 2 * world, 3);
            for (int i = 0; i < COUNT(kinds); i++) {
                int64_t tokens[MMOE_MAX_WORLD];
                uneven_tokens(world, i % 2 ? 50 : 141, tokens);
                batches[i] = rig_batch_make(&layer, world, tokens, kinds[i], 710 + (uint64_t)i);
            }
            struct rig_world ranks = rig_world_for(batches, COUNT(kinds), gpus_kind);
            rig_prove(&ranks, batches, COUNT(kinds), &keep_plan);
            for (int i = 0; i < COUNT(kinds); i++)
                rig_batch_free(&batches[i]);
        }
}

/* The first rank receives none, sends none, neither, and nobody does anything. */
static void b03_idle_ranks(void **state) {
    (void)state;
    enum { RECEIVES_NONE, SENDS_NONE, NEITHER, ALL_IDLE, ARMS };
    for
        EACH_WORLD(world) {
            struct rig_batch batches[ARMS];
            const mmoe_layer_config layer = rig_layer(64, 64, 2 * world, 2);
            for (int arm = 0; arm < ARMS; arm++) {
                int64_t tokens[MMOE_MAX_WORLD];
                for (int r = 0; r < world; r++)
                    tokens[r] = arm == ALL_IDLE || (r == 0 && arm != RECEIVES_NONE) ? 0 : 9 + r;
                batches[arm] = rig_batch_make(&layer, world, tokens, RIG_UNIFORM, 720 + (uint64_t)arm);
                rig_batch_positive(&batches[arm]);
                for (int64_t s = 0; s < rig_batch_slots(&batches[arm]); s++)
                    if (arm == RECEIVES_NONE || arm == NEITHER)
                        batches[arm].ids[s] = 2 + batches[arm].ids[s] % (2 * world - 2);
            }
            assert_int_equal(gpus_demand(&batches[RECEIVES_NONE], 0), 0);
            assert_true(gpus_demand(&batches[SENDS_NONE], 0) > 0);
            struct rig_world ranks = rig_world_for(batches, ARMS, gpus_kind);
            rig_prove(&ranks, batches, ARMS, &keep_rows);
            for (int arm = 0; arm < ARMS; arm++)
                rig_batch_free(&batches[arm]);
        }
}

/* ---- Capacity ---- */

/* Each call needs more room than there was, or less. */
static void growing_capacity_follows_the_demand(void **state) {
    (void)state;
    on_two_at_small_size();
    static const int64_t full[] = {1, 200, 5, 700, 0, 701}, small[] = {1, 40, 3, 70, 0, 71};
    const int64_t *sizes = rig_small() ? small : full;
    for
        EACH_WORLD(world)
    for (int keep = MMOE_KEEP_PLAN; keep <= MMOE_KEEP_ROWS; keep++) {
        struct rig_batch batches[COUNT(full)];
        const mmoe_layer_config layer = rig_layer(64, 64, world, 2);
        for (int i = 0; i < COUNT(full); i++) {
            int64_t tokens[MMOE_MAX_WORLD];
            for (int r = 0; r < world; r++)
                tokens[r] = sizes[r % 2 == 0 ? i : COUNT(full) - 1 - i];
            batches[i] = rig_batch_make(&layer, world, tokens, RIG_ZIPF, 730 + (uint64_t)i);
            rig_batch_positive(&batches[i]);
        }
        struct rig_world ranks = rig_world_for(batches, COUNT(full), gpus_kind);
        rig_prove(&ranks, batches, COUNT(full), keep == MMOE_KEEP_ROWS ? &keep_rows : &keep_plan);
        for (int i = 0; i < COUNT(full); i++)
            rig_batch_free(&batches[i]);
    }
}

/* A rank keeps its first rows in the order of expert, token and slot; the others count as not used. */
static void drop(struct rig_batch *batch) {
    const int64_t local = batch->layer.experts / batch->world;
    int64_t kept = 0;
    for (int64_t e = 0; e < batch->layer.experts; e++) {
        kept = e % local == 0 ? 0 : kept;
        for (int64_t s = 0; s < rig_batch_slots(batch); s++)
            if (batch->ids[s] == e && kept++ >= batch->layer.capacity)
                batch->ids[s] = -1;
    }
}

/* B15: room for the demand and no more, and with drop for less than it. */
static void fixed_capacity(void **state) {
    (void)state;
    for
        EACH_WORLD(world)
    for (int dropping = 0; dropping < 2; dropping++) {
        struct rig_batch batches[3];
        mmoe_layer_config layer = rig_layer(64, 64, 2 * world, 2);
        layer.capacity_policy = MMOE_CAPACITY_FIXED;
        layer.drop = dropping;
        for (int i = 0; i < 3; i++) {
            int64_t tokens[MMOE_MAX_WORLD];
            uneven_tokens(world, i == 0 ? 90 : 60 + i, tokens);
            batches[i] = rig_batch_make(&layer, world, tokens, i == 1 ? RIG_ONE_EXPERT : RIG_ZIPF, 740);
            rig_batch_positive(&batches[i]);
            const int64_t most = gpus_most_demand(&batches[i]);
            layer.capacity = most > layer.capacity ? most : layer.capacity;
        }
        for (int i = 0; i < 3; i++)
            batches[i].layer.capacity = dropping ? layer.capacity * 2 / 3 : layer.capacity;
        gpus_run(batches, 3, dropping ? &keep_plan : &keep_rows);
        for (int i = 0; i < 3; i++) {
            if (dropping)
                drop(&batches[i]);
            rig_compare(&batches[i], &keep_plan, RIG_BOUND);
            rig_batch_free(&batches[i]);
        }
    }
}

/* ---- What is kept ---- */

static bool is_zero(const uint16_t *values, int64_t n) {
    int64_t zeros = 0;
    while (zeros < n && (values[zeros] & 0x7fff) == 0)
        zeros++;
    return zeros == n;
}

/* One row of a product with a weight [rows, cols]. */
static bool is_product(const uint16_t *found, const uint16_t *weight, const uint16_t *x, int64_t rows, int64_t cols) {
    for (int64_t i = 0; i < rows; i++) {
        double sum = 0;
        for (int64_t h = 0; h < cols; h++)
            sum += (double)mm_bf16_to_float(weight[i * cols + h]) * (double)mm_bf16_to_float(x[h]);
        if (!(fabs(mm_bf16_to_float(found[i]) - sum) <= fabs(sum) / 128 + 1e-3))
            return false;
    }
    return true;
}

/* Row for row: x is its token's, gate and up are those of its expert, and pads are zeros. */
static void expect_kept(struct rig_rank *rank, const struct rig_batch *batch, const mmoe_plan *plan, const uint16_t *x,
                        const uint16_t *gate_up) {
    const int64_t hidden = batch->layer.hidden, inner = batch->layer.intermediate;
    int64_t expert = 0;
    for (int64_t row = 0; row < plan->padded_rows; row++) {
        while (row >= plan->expert_offset[expert + 1])
            expert++;
        const uint16_t *kept = x + row * hidden, *products = gate_up + row * 2 * inner;
        if (plan->row_source[row] < 0) {
            RIG_EXPECT(rank, is_zero(kept, hidden) && is_zero(products, 2 * inner), "pad %lld is not zero",
                       (long long)row);
            continue;
        }
        const int64_t token = rig_batch_first(batch, plan->row_source[row]) + plan->row_token[row];
        const int64_t weight = (rank->rank * plan->local_experts + expert) * inner * hidden;
        RIG_EXPECT(rank, memcmp(kept, batch->x + token * hidden, (size_t)hidden * sizeof *kept) == 0,
                   "row %lld is not its token", (long long)row);
        RIG_EXPECT(rank,
                   is_product(products, batch->gate + weight, kept, inner, hidden) &&
                       is_product(products + inner, batch->up + weight, kept, inner, hidden),
                   "gate or up of row %lld is wrong", (long long)row);
    }
}

static void kept_body(struct rig_rank *rank, void *context) {
    struct rig_batch *batch = context;
    mmoe_layer *layer;
    mmoe_saved *saved;
    RIG_OK(rank, mmoe_layer_create(rank->group, &batch->layer, &layer));
    RIG_OK(rank, mmoe_saved_create(layer, MMOE_KEEP_ROWS, &saved));
    for (int step = 0; step < 2; step++) {
        if (!rig_step(rank, layer, saved, batch, &keep_rows, 0xff) ||
            !rig_plan_is_right(rank, mmoe_saved_plan(saved), batch))
            return;
        const struct mm_cuda_saved *kept = saved->backend_state;
        const mmoe_plan *plan = mmoe_saved_plan(saved);
        const size_t x_bytes = (size_t)(plan->padded_rows * batch->layer.hidden) * sizeof(uint16_t);
        const size_t products_bytes = (size_t)(plan->padded_rows * 2 * batch->layer.intermediate) * sizeof(uint16_t);
        uint16_t *x = malloc(x_bytes + 1), *gate_up = malloc(products_bytes + 1);
        RIG_OK(rank, mmoe_device_read(rank->group, x, mm_at(kept->x.address), x_bytes));
        RIG_OK(rank, mmoe_device_read(rank->group, gate_up, mm_at(kept->gate_up.address), products_bytes));
        expect_kept(rank, batch, plan, x, gate_up);
        free(x);
        free(gate_up);
    }
    mmoe_saved_destroy(&saved);
    mmoe_layer_destroy(&layer);
}

static void kept_rows_and_plan_are_right(void **state) {
    (void)state;
    on_two_at_small_size();
    for
        EACH_WORLD(world)
    for (int fixed = 0; fixed < 2; fixed++) {
        int64_t tokens[MMOE_MAX_WORLD];
        mmoe_layer_config layer = rig_layer(128, 64, 2 * world, 3);
        layer.capacity_policy = fixed ? MMOE_CAPACITY_FIXED : MMOE_CAPACITY_GROW;
        layer.capacity = fixed ? 200 * world : 0;
        uneven_tokens(world, 60, tokens);
        struct rig_batch batch = rig_batch_make(&layer, world, tokens, fixed ? RIG_HOLES : RIG_ZIPF, 745);
        struct rig_world ranks = rig_world_for(&batch, 1, gpus_kind);
        rig_world_run(&ranks, kept_body, &batch);
        rig_batch_free(&batch);
    }
}

/* ---- Layouts ---- */

static struct rig_batch layout_batch(int world) {
    int64_t tokens[MMOE_MAX_WORLD];
    const mmoe_layer_config layer = rig_layer(64, 64, 2 * world, 2);
    uneven_tokens(world, 21, tokens);
    return rig_batch_make(&layer, world, tokens, RIG_HOLES, 750);
}

static void expect_same(struct rig_batch *plain, struct rig_batch *other, const struct rig_options *options,
                        const char *what) {
    gpus_run(other, 1, options);
    rig_same_bits(plain, other, what);
}

/* B18: tensors of tokens in any layout, weights as halves of one tensor and by a pointer an expert, either width of
 * ids: the bits are those of contiguous ones. */
static void layouts(void **state) {
    (void)state;
    on_two_at_small_size();
    static const enum rig_layout layouts[] = {RIG_OFFSET, RIG_TRANSPOSED, RIG_SLICED, RIG_SPREAD, RIG_NEGATIVE};
    const int count = rig_scaled("layouts of tokens", COUNT(layouts), 2);
    for
        EACH_WORLD(world) {
            struct rig_batch plain = layout_batch(world), other = layout_batch(world);
            gpus_run(&plain, 1, &keep_plan);
            rig_compare(&plain, &keep_plan, RIG_BOUND);
            for (int i = 0; i < count; i++) {
                struct rig_options options = {.forward_only = true, .wide_ids = i % 2};
                options.layout[RIG_X] = options.layout[RIG_Y] = layouts[i];
                options.layout[RIG_IDS] = options.layout[RIG_WEIGHTS] = layouts[(i + 1) % COUNT(layouts)];
                expect_same(&plain, &other, &options, "tokens in another layout");
            }
            struct rig_options options = {.forward_only = true, .halves = true, .wide_ids = true};
            expect_same(&plain, &other, &options, "gate and up as halves");
            options.halves = false;
            options.layout[RIG_GATE] = options.layout[RIG_UP] = options.layout[RIG_DOWN] = RIG_SCATTERED;
            expect_same(&plain, &other, &options, "a pointer an expert");
            rig_batch_free(&plain);
            rig_batch_free(&other);
        }
}

/* ---- Bits ---- */

struct repeat {
    struct rig_batch *first, *again;
    int runs;
};

/* With another number of multiprocessors left to others in each run, and on each rank. */
static void repeat_body(struct rig_rank *rank, void *context) {
    struct repeat *repeat = context;
    const int multiprocessors = gpu_of(rank)->device.multiprocessors;
    mmoe_layer *layer;
    mmoe_saved *saved;
    RIG_OK(rank, mmoe_layer_create(rank->group, &repeat->again->layer, &layer));
    RIG_OK(rank, mmoe_saved_create(layer, MMOE_KEEP_ROWS, &saved));
    for (int run = 0; run < repeat->runs; run++) {
        rank->group->config.spare_multiprocessors = (13 * run + 5 * rank->rank) % multiprocessors;
        if (!rig_step(rank, layer, saved, repeat->again, &keep_rows, run % 2 ? 0x7f : 0xff))
            return;
        RIG_EXPECT(rank, rig_rank_same_bits(rank, repeat->first, repeat->again), "other bits in run %d", run);
    }
    mmoe_saved_destroy(&saved);
    mmoe_layer_destroy(&layer);
}

/* B28: in every run, with any budget, and on one GPU. */
static void b28_one_bit_pattern(void **state) {
    (void)state;
    static const enum rig_routing kinds[] = {RIG_ZIPF, RIG_DUPLICATES, RIG_HOLES};
    const int count = rig_scaled("kinds of routing", COUNT(kinds), 1);
    for
        EACH_WORLD(world)
    for (int i = 0; i < count; i++) {
        int64_t tokens[MMOE_MAX_WORLD];
        const mmoe_layer_config layer = rig_layer(128, 192, 3 * world, 3);
        uneven_tokens(world, rig_scaled("tokens of a batch", 700, 60), tokens);
        struct rig_batch first = rig_batch_make(&layer, world, tokens, kinds[i], 760);
        struct rig_batch again = rig_batch_make(&layer, world, tokens, kinds[i], 760);
        struct repeat repeat = {&first, &again, rig_scaled("runs of one batch", 100, 3)};
        gpus_run(&first, 1, &keep_plan);
        struct rig_world ranks = rig_world_for(&again, 1, gpus_kind);
        rig_world_run(&ranks, repeat_body, &repeat);
        gpus_same_on_one(&first, &keep_plan);
        rig_batch_free(&first);
        rig_batch_free(&again);
    }
}

/* ---- Two layers of one group, in turn ---- */

struct turns {
    struct rig_batch *batches[2]; /* of each layer */
    int steps;
};

static void turns_body(struct rig_rank *rank, void *context) {
    struct turns *turns = context;
    mmoe_layer *layers[2];
    for (int i = 0; i < 2; i++)
        RIG_OK(rank, mmoe_layer_create(rank->group, &turns->batches[i]->layer, &layers[i]));
    for (int step = 0; step < turns->steps; step++)
        for (int i = 0; i < 2; i++)
            if (!rig_step(rank, layers[i], NULL, &turns->batches[i][step], &keep_plan, step % 2 ? 0x7f : 0xff))
                return;
    for (int i = 0; i < 2; i++)
        mmoe_layer_destroy(&layers[i]);
}

static void two_layers_in_turn(void **state) {
    (void)state;
    on_two_at_small_size();
    enum { STEPS = 4 };
    for
        EACH_WORLD(world) {
            struct rig_batch batches[2][STEPS];
            mmoe_layer_config layers[2] = {rig_layer(64, 128, 2 * world, 2), rig_layer(192, 64, world, 1)};
            layers[1].capacity_policy = MMOE_CAPACITY_FIXED;
            layers[1].capacity = 40 * world;
            for (int i = 0; i < 2; i++)
                for (int step = 0; step < STEPS; step++) {
                    int64_t tokens[MMOE_MAX_WORLD];
                    uneven_tokens(world, 40 - step - i, tokens);
                    batches[i][step] = rig_batch_make(&layers[i], world, tokens, (enum rig_routing)step, 770);
                }
            struct turns turns = {{batches[0], batches[1]}, STEPS};
            struct rig_world ranks = rig_world_make(world, gpus_kind, 40, 192, 2, 2 * world);
            rig_world_run(&ranks, turns_body, &turns);
            for (int i = 0; i < 2; i++)
                for (int step = 0; step < STEPS; step++) {
                    rig_compare(&batches[i][step], &keep_plan, RIG_BOUND);
                    rig_batch_free(&batches[i][step]);
                }
        }
}

int main(void) {
    const struct CMUnitTest of_processes[] = {
        cmocka_unit_test(shapes),
        cmocka_unit_test(routings),
        cmocka_unit_test(growing_capacity_follows_the_demand),
        cmocka_unit_test(b28_one_bit_pattern),
    };
    const struct CMUnitTest of_threads[] = {
        cmocka_unit_test(shapes),
        cmocka_unit_test(layers_of_real_models),
        cmocka_unit_test(b12_slots_around_two_to_the_16),
        cmocka_unit_test(routings),
        cmocka_unit_test(b03_idle_ranks),
        cmocka_unit_test(growing_capacity_follows_the_demand),
        cmocka_unit_test(fixed_capacity),
        cmocka_unit_test(kept_rows_and_plan_are_right),
        cmocka_unit_test(layouts),
        cmocka_unit_test(b28_one_bit_pattern),
        cmocka_unit_test(two_layers_in_turn),
    };
    return gpus_main(2, GPUS_TESTS(of_processes), GPUS_TESTS(of_threads));
}
