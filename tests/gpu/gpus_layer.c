/* Forwards and backwards over several GPUs against the oracle and the CPU backend: shapes, routings, idle ranks,
 * capacities, layers in turn. */
#include "gpus.h"

static const struct rig_options keep_plan = {.keep = MMOE_KEEP_PLAN};
static const struct rig_options keep_rows = {.keep = MMOE_KEEP_ROWS};
static const struct rig_options narrow = {.keep = MMOE_KEEP_PLAN, .narrow_gradients = true};
static const struct rig_options added = {.keep = MMOE_KEEP_ROWS, .accumulate = true};
static const struct rig_options added_narrow = {.keep = MMOE_KEEP_PLAN, .accumulate = true, .narrow_gradients = true};

/* ---- Shapes ---- */

static void shapes(void **state) {
    (void)state;
    gpus_two_at_small_size();
    static const struct {
        int64_t hidden, intermediate, local_experts, top_k, tokens;
    } shapes[] = {{64, 64, 1, 1, 150}, {320, 128, 3, 4, 20}, {64, 448, 2, 2, 35}, {192, 64, 5, 3, 260}};
    const int count = rig_scaled("shapes", COUNT(shapes), 2);
    for
        GPUS_EACH_WORLD(world)
    for (int i = 0; i < count; i++) {
        mmoe_layer_config layer =
            rig_layer(shapes[i].hidden, shapes[i].intermediate, shapes[i].local_experts * world, shapes[i].top_k);
        layer.limit = i == 0 ? 0.75f : 0;
        prove_layer(&layer, world, gpus_kind, shapes[i].tokens, EITHER_SIGN, i % 2 ? &added : &narrow);
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
        GPUS_EACH_WORLD(world)
    for (int i = 0; i < COUNT(layers); i++) {
        int64_t tokens[MMOE_MAX_WORLD];
        const mmoe_layer_config layer =
            rig_layer(layers[i].hidden, layers[i].intermediate, layers[i].local_experts * world, layers[i].top_k);
        gpus_uneven_tokens(world, layers[i].tokens, tokens);
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
        GPUS_EACH_WORLD(world)
    for (int i = 0; i < 2 * COUNT(shapes); i++) {
        const int64_t *shape = shapes[i / 2];
        int64_t tokens[MMOE_MAX_WORLD];
        for (int r = 0; r < world; r++)
            tokens[r] = i % 2 == 0 ? shape[0] : shape[0] / world + (r == 0 ? shape[0] % world : 0);
        const mmoe_layer_config layer = rig_layer(64, 64, 8 * world, shape[1]);
        struct rig_batch batch = rig_batch_make(&layer, world, tokens, RIG_UNIFORM, 171);
        const struct rig_options *options = i % 2 ? &keep_rows : &keep_plan;
        gpus_run(&batch, 1, options);
        compare_with_cpu(&batch, options);
        rig_batch_free(&batch);
    }
}

/* ---- Routings ---- */

/* B03, B10, B14: every kind of routing, with T that differs, on one layer; experts without rows with
 * gradients that are overwritten, and that are added to. */
static void routings(void **state) {
    (void)state;
    enum { KINDS = 4, FORMS = 2 };
    static const enum rig_routing kinds[FORMS][KINDS] = {{RIG_HOLES, RIG_ONE_EXPERT, RIG_UNUSED, RIG_UNIFORM},
                                                         {RIG_ZIPF, RIG_ONE_EXPERT, RIG_UNUSED, RIG_DUPLICATES}};
    const int forms = rig_scaled("forms of gradients", FORMS, gpus_most > 2 ? 1 : FORMS);
    for
        GPUS_EACH_WORLD(world)
    for (int form = 0; form < forms; form++) {
        struct rig_batch batches[KINDS];
        const mmoe_layer_config layer = rig_layer(64, 64, 2 * world, 3);
        for (int i = 0; i < KINDS; i++) {
            int64_t tokens[MMOE_MAX_WORLD];
            gpus_uneven_tokens(world, i % 2 ? 50 : 141, tokens);
            batches[i] = rig_batch_make(&layer, world, tokens, kinds[form][i], 710 + (uint64_t)i);
        }
        struct rig_world ranks = rig_world_for(batches, KINDS, gpus_kind);
        rig_prove(&ranks, batches, KINDS, form == 0 ? &added_narrow : &keep_rows);
        for (int i = 0; i < KINDS; i++)
            rig_batch_free(&batches[i]);
    }
}

/* The first rank receives none, sends none, neither, and nobody does anything. */
static void b03_idle_ranks(void **state) {
    (void)state;
    enum { RECEIVES_NONE, SENDS_NONE, NEITHER, ALL_IDLE, ARMS };
    for
        GPUS_EACH_WORLD(world) {
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
            rig_prove(&ranks, batches, ARMS, &added);
            for (int arm = 0; arm < ARMS; arm++)
                rig_batch_free(&batches[arm]);
        }
}

/* ---- Capacity ---- */

/* Each call needs more room than there was, or less. */
static void growing_capacity_follows_the_demand(void **state) {
    (void)state;
    gpus_two_at_small_size();
    static const int64_t full[] = {1, 200, 5, 700, 0, 701}, small[] = {1, 40, 0, 71};
    const int64_t *sizes = rig_small() ? small : full;
    const int count = rig_scaled("sizes", COUNT(full), COUNT(small));
    for
        GPUS_EACH_WORLD(world)
    for (int keep = MMOE_KEEP_PLAN; keep <= MMOE_KEEP_ROWS; keep++) {
        struct rig_batch batches[COUNT(full)];
        const mmoe_layer_config layer = rig_layer(64, 64, world, 2);
        for (int i = 0; i < count; i++) {
            int64_t tokens[MMOE_MAX_WORLD];
            for (int r = 0; r < world; r++)
                tokens[r] = sizes[r % 2 == 0 ? i : count - 1 - i];
            batches[i] = rig_batch_make(&layer, world, tokens, RIG_ZIPF, 730 + (uint64_t)i);
            rig_batch_positive(&batches[i]);
        }
        struct rig_world ranks = rig_world_for(batches, count, gpus_kind);
        rig_prove(&ranks, batches, count, keep == MMOE_KEEP_ROWS ? &keep_rows : &keep_plan);
        for (int i = 0; i < count; i++)
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
    gpus_two_at_small_size();
    for
        GPUS_EACH_WORLD(world)
    for (int dropping = 0; dropping < 2; dropping++) {
        struct rig_batch batches[3];
        mmoe_layer_config layer = rig_layer(64, 64, 2 * world, 2);
        layer.capacity_policy = MMOE_CAPACITY_FIXED;
        layer.drop = dropping;
        for (int i = 0; i < 3; i++) {
            int64_t tokens[MMOE_MAX_WORLD];
            gpus_uneven_tokens(world, i == 0 ? 90 : 60 + i, tokens);
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

/* ---- Two layers of one group, in turn ---- */

struct turns {
    struct rig_batch *batches[2]; /* of each layer */
    int steps;
};

/* A layer of a rank, and its forward whose backward is still to come. */
struct one_layer {
    mmoe_layer *layer;
    mmoe_saved *saved;
    struct rig_call call;
    struct rig_placed placed;
};

static bool forward_of(struct rig_rank *rank, struct one_layer *one, struct rig_batch *batch, int poison) {
    one->call = rig_call_make(rank, batch, &keep_plan, one->saved, poison);
    return rig_call_place(rank, &one->call, &one->placed) && rig_poison_scratch(rank, poison) &&
           rig_call_forward(rank, one->layer, &one->call, &one->placed, batch);
}

static bool backward_of(struct rig_rank *rank, struct one_layer *one, struct rig_batch *batch, int poison) {
    const bool good =
        rig_poison_scratch(rank, poison) && rig_call_backward(rank, one->layer, &one->call, &one->placed, batch);
    rig_placed_free(rank, &one->placed);
    rig_call_free(&one->call);
    return good;
}

/* As in training: what a backward needs of its forward outlives the calls of the other layer. */
static void turns_body(struct rig_rank *rank, void *context) {
    struct turns *turns = context;
    struct one_layer layers[2];
    for (int i = 0; i < 2; i++) {
        RIG_OK(rank, mmoe_layer_create(rank->group, &turns->batches[i]->layer, &layers[i].layer));
        RIG_OK(rank, mmoe_saved_create(layers[i].layer, keep_plan.keep, &layers[i].saved));
    }
    for (int step = 0; step < turns->steps; step++) {
        struct rig_batch *first = &turns->batches[0][step], *second = &turns->batches[1][step];
        const int poison = step % 2 ? 0x7f : 0xff;
        if (!forward_of(rank, &layers[0], first, poison) || !forward_of(rank, &layers[1], second, poison) ||
            !backward_of(rank, &layers[1], second, poison) || !backward_of(rank, &layers[0], first, poison))
            return;
    }
    for (int i = 0; i < 2; i++) {
        mmoe_saved_destroy(&layers[i].saved);
        mmoe_layer_destroy(&layers[i].layer);
    }
}

static void two_layers_in_turn(void **state) {
    (void)state;
    gpus_two_at_small_size();
    enum { STEPS = 4 };
    const int steps = rig_scaled("steps", STEPS, 2);
    for
        GPUS_EACH_WORLD(world) {
            struct rig_batch batches[2][STEPS];
            mmoe_layer_config layers[2] = {rig_layer(64, 128, 2 * world, 2), rig_layer(192, 64, world, 1)};
            layers[1].capacity_policy = MMOE_CAPACITY_FIXED;
            layers[1].capacity = 40 * world;
            for (int i = 0; i < 2; i++)
                for (int step = 0; step < steps; step++) {
                    int64_t tokens[MMOE_MAX_WORLD];
                    gpus_uneven_tokens(world, 40 - step - i, tokens);
                    batches[i][step] = rig_batch_make(&layers[i], world, tokens, (enum rig_routing)step, 770);
                }
            struct turns turns = {{batches[0], batches[1]}, steps};
            struct rig_world ranks = rig_world_make(world, gpus_kind, 40, 192, 2, 2 * world);
            rig_world_run(&ranks, turns_body, &turns);
            for (int i = 0; i < 2; i++)
                for (int step = 0; step < steps; step++) {
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
    };
    const struct CMUnitTest of_threads[] = {
        cmocka_unit_test(shapes),
        cmocka_unit_test(layers_of_real_models),
        cmocka_unit_test(b12_slots_around_two_to_the_16),
        cmocka_unit_test(routings),
        cmocka_unit_test(b03_idle_ranks),
        cmocka_unit_test(growing_capacity_follows_the_demand),
        cmocka_unit_test(fixed_capacity),
        cmocka_unit_test(two_layers_in_turn),
    };
    return gpus_main(2, GPUS_TESTS(of_processes), GPUS_TESTS(of_threads));
}
