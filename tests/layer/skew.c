/* Skewed routing, capacity and uneven ranks. */
#include "proof.h"

#include <string.h>

/* ---- B14: every token of every rank to one expert */

struct skew {
    struct rig_batch *batches;
    int count;
};

/* The last expert lives on the last rank, which must count exactly the slots sent. */
static bool check_counts(struct rig_rank *rank, const struct rig_batch *batch, const mmoe_saved *saved,
                         const mmoe_report *report) {
    const mmoe_plan *plan = mmoe_saved_plan(saved);
    int64_t top_k = batch->layer.top_k, due = rank->rank == rank->world - 1 ? batch->total * top_k : 0;
    RIG_TRY(rank, plan, "no plan after a forward");
    RIG_TRY(rank, plan->rows == due && report->rows == due, "%lld rows in the plan, %lld in the report, expected %lld",
            (long long)plan->rows, (long long)report->rows, (long long)due);
    for (int r = 0; r < rank->world; r++) {
        RIG_TRY(rank, plan->tokens[r] == batch->tokens[r], "tokens of rank %d", r);
        for (int e = 0; e < plan->experts; e++)
            RIG_TRY(rank,
                    plan->counts[r * plan->experts + e] == (e == plan->experts - 1 ? batch->tokens[r] * top_k : 0),
                    "counts[%d, %d] is %d", r, e, plan->counts[r * plan->experts + e]);
    }
    return true;
}

static void skew_body(struct rig_rank *rank, void *context) {
    struct skew *skew = context;
    struct rig_options options = {0};
    mmoe_layer *layer;
    mmoe_saved *saved;
    RIG_OK(rank, mmoe_layer_create(rank->group, &skew->batches[0].layer, &layer));
    RIG_OK(rank, mmoe_saved_create(layer, MMOE_KEEP_PLAN, &saved));
    for (int i = 0; i < skew->count; i++) {
        mmoe_report report;
        struct rig_call call = rig_call_make(rank, &skew->batches[i], &options, saved, 0xff);
        call.forward.report = &report;
        RIG_OK(rank, mmoe_forward(layer, &call.forward));
        if (!check_counts(rank, &skew->batches[i], saved, &report) ||
            !rig_call_take_forward(rank, &call, &skew->batches[i]))
            return;
        RIG_OK(rank, mmoe_backward(layer, &call.backward));
        if (!rig_call_take_backward(rank, &call, &skew->batches[i]))
            return;
        rig_call_free(&call);
    }
    mmoe_saved_destroy(&saved);
    mmoe_layer_destroy(&layer);
}

static void b14_counts_are_exact_at_any_skew(void **state) {
    (void)state;
    static const int64_t sizes[] = {1, 2304, 32, 257};
    for (int64_t top_k = 1; top_k <= 4; top_k += 3)
        for (int kind = RIG_THREADS; kind <= RIG_PROCESSES; kind++) {
            mmoe_layer_config layer = rig_layer(8, 6, 4, top_k);
            struct rig_options options = {0};
            struct rig_batch batches[4];
            for (int i = 0; i < 4; i++) {
                const int64_t tokens[2] = {sizes[i], sizes[i]};
                batches[i] = rig_batch_make(&layer, 2, tokens, RIG_ONE_EXPERT, 90 + (uint64_t)i);
                rig_batch_positive(&batches[i]);
            }
            struct skew skew = {batches, 4};
            struct rig_world world = rig_world_for(batches, 4, kind);
            rig_world_run(&world, skew_body, &skew);
            for (int i = 0; i < 4; i++) {
                rig_compare(&batches[i], &options, RIG_BOUND);
                rig_batch_free(&batches[i]);
            }
        }
}

/* ---- B15: capacity. 16 tokens a rank to expert 3 of rank 1, so that rank 1 is due 32 rows. */

#define DEMAND 32
#define CAPACITY 8

struct overflow {
    struct rig_batch over, fits;
};

static void overflow_body(struct rig_rank *rank, void *context) {
    struct overflow *overflow = context;
    struct rig_options options = {0};
    mmoe_layer *layer;
    mmoe_saved *saved;
    RIG_OK(rank, mmoe_layer_create(rank->group, &overflow->over.layer, &layer));
    RIG_OK(rank, mmoe_saved_create(layer, MMOE_KEEP_PLAN, &saved));
    for (int step = 0; step < 3; step++) {
        struct rig_call call = rig_call_make(rank, &overflow->over, &options, saved, step % 2 ? 0x7f : 0xff);
        mmoe_status status = mmoe_forward(layer, &call.forward);
        const char *text = mmoe_last_error();
        RIG_EXPECT(rank, status == MMOE_CAPACITY, "status is %s: %s", mmoe_status_name(status), text);
        RIG_EXPECT(rank, strstr(text, "rank 1") && strstr(text, "32") && strstr(text, "8"),
                   "rank, demand and capacity are not all in the text: %s", text);
        RIG_EXPECT(rank, mmoe_saved_plan(saved) == NULL, "the plan of a failed forward is given out");
        status = mmoe_backward(layer, &call.backward);
        RIG_EXPECT(rank, status == MMOE_INVALID_ARGUMENT && strstr(mmoe_last_error(), "saved holds no forward"),
                   "a backward of a failed forward: %s: %s", mmoe_status_name(status), mmoe_last_error());
        RIG_EXPECT(rank, rig_call_untouched(&call), "a call over capacity wrote");
        rig_call_free(&call);
        if (!rig_step(rank, layer, saved, &overflow->fits, &options, 0xff))
            return;
    }
    mmoe_saved_destroy(&saved);
    mmoe_layer_destroy(&layer);
}

static mmoe_layer_config fixed_layer(int64_t capacity, int drop) {
    mmoe_layer_config layer = rig_layer(8, 6, 4, 1);
    layer.capacity_policy = MMOE_CAPACITY_FIXED;
    layer.capacity = capacity;
    layer.drop = drop;
    return layer;
}

static void b15_overflow_is_an_error_on_every_rank(void **state) {
    (void)state;
    const int64_t tokens[2] = {16, 16}, few[2] = {4, 4};
    mmoe_layer_config layer = fixed_layer(CAPACITY, 0);
    struct rig_options options = {0};
    for (int kind = RIG_THREADS; kind <= RIG_PROCESSES; kind++) {
        struct overflow overflow = {rig_batch_make(&layer, 2, tokens, RIG_ONE_EXPERT, 101),
                                    rig_batch_make(&layer, 2, few, RIG_ONE_EXPERT, 102)};
        struct rig_world world = rig_world_for(&overflow.over, 1, kind);
        rig_world_run(&world, overflow_body, &overflow);
        rig_compare(&overflow.fits, &options, RIG_BOUND);
        rig_batch_free(&overflow.over);
        rig_batch_free(&overflow.fits);
    }
}

static void drop_body(struct rig_rank *rank, void *context) {
    struct rig_batch *batch = context;
    struct rig_options options = {0};
    mmoe_layer *layer;
    mmoe_saved *saved;
    RIG_OK(rank, mmoe_layer_create(rank->group, &batch->layer, &layer));
    RIG_OK(rank, mmoe_saved_create(layer, MMOE_KEEP_PLAN, &saved));
    for (int step = 0; step < 3; step++) {
        if (!rig_step(rank, layer, saved, batch, &options, 0xff))
            return;
        const mmoe_plan *plan = mmoe_saved_plan(saved);
        RIG_EXPECT(rank, plan->demand[0] == 0 && plan->demand[1] == DEMAND, "demand is %lld, %lld",
                   (long long)plan->demand[0], (long long)plan->demand[1]);
        RIG_EXPECT(rank, plan->dropped[0] == 0 && plan->dropped[1] == DEMAND - CAPACITY, "dropped is %lld, %lld",
                   (long long)plan->dropped[0], (long long)plan->dropped[1]);
        RIG_EXPECT(rank, plan->rows == rank->rank * CAPACITY, "%lld rows", (long long)plan->rows);
        RIG_EXPECT(rank, plan->slots_dropped == (rank->rank == 0 ? 8 : 16), "%lld own slots dropped",
                   (long long)plan->slots_dropped);
    }
    mmoe_saved_destroy(&saved);
    mmoe_layer_destroy(&layer);
}

/* What is kept are the first 8 rows in plan order: the first 8 tokens of rank 0. */
static void b15_drops_are_counted_and_behave_as_unused(void **state) {
    (void)state;
    const int64_t tokens[2] = {16, 16};
    mmoe_layer_config layer = fixed_layer(CAPACITY, 1);
    struct rig_options options = {0};
    for (int kind = RIG_THREADS; kind <= RIG_PROCESSES; kind++) {
        struct rig_batch batch = rig_batch_make(&layer, 2, tokens, RIG_ONE_EXPERT, 103);
        struct rig_world world = rig_world_for(&batch, 1, kind);
        rig_world_run(&world, drop_body, &batch);
        for (int t = CAPACITY; t < DEMAND; t++)
            batch.ids[t] = -1; /* as the oracle is to see it */
        rig_compare(&batch, &options, RIG_BOUND);
        rig_batch_free(&batch);
    }
}

static void b15_capacity_of_the_demand_is_enough(void **state) {
    (void)state;
    const int64_t tokens[2] = {16, 16}, ids[DEMAND] = {[0 ... DEMAND - 1] = 3};
    for (int drop = 0; drop < 2; drop++) {
        mmoe_layer_config layer = fixed_layer(DEMAND, drop);
        for (int keep = MMOE_KEEP_PLAN; keep <= MMOE_KEEP_ROWS; keep++) {
            struct rig_options options = {.keep = keep};
            prove_ids(&layer, 2, RIG_THREADS, tokens, ids, &options);
        }
    }
}

/* Demand that grows, shrinks and grows further than before. */
static void growing_capacity_follows_the_demand(void **state) {
    (void)state;
    static const int64_t sizes[] = {1, 40, 5, 300, 0, 301};
    mmoe_layer_config layer = rig_layer(8, 6, 4, 2);
    for (int keep = MMOE_KEEP_PLAN; keep <= MMOE_KEEP_ROWS; keep++) {
        struct rig_options options = {.keep = keep};
        struct rig_batch batches[6];
        for (int i = 0; i < 6; i++) {
            const int64_t tokens[2] = {sizes[i], sizes[5 - i]};
            batches[i] = rig_batch_make(&layer, 2, tokens, RIG_ZIPF, 110 + (uint64_t)i);
            rig_batch_positive(&batches[i]);
        }
        struct rig_world world = rig_world_for(batches, 6, RIG_THREADS);
        rig_prove(&world, batches, 6, &options);
        for (int i = 0; i < 6; i++)
            rig_batch_free(&batches[i]);
    }
}

static void b16_uneven_tokens_under_one_maximum(void **state) {
    (void)state;
    static const int64_t sizes[3][3] = {{0, 1, 16}, {16, 0, 1}, {1, 16, 0}};
    mmoe_layer_config layer = rig_layer(8, 6, 6, 2);
    struct rig_options options = {0};
    for (int kind = RIG_THREADS; kind <= RIG_PROCESSES; kind++) {
        struct rig_batch batches[3];
        for (int i = 0; i < 3; i++) {
            batches[i] = rig_batch_make(&layer, 3, sizes[i], RIG_UNIFORM, 120 + (uint64_t)i);
            rig_batch_positive(&batches[i]);
        }
        struct rig_world world = rig_world_for(batches, 3, kind);
        rig_prove(&world, batches, 3, &options);
        for (int i = 0; i < 3; i++)
            rig_batch_free(&batches[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b14_counts_are_exact_at_any_skew),
        cmocka_unit_test(b15_overflow_is_an_error_on_every_rank),
        cmocka_unit_test(b15_drops_are_counted_and_behave_as_unused),
        cmocka_unit_test(b15_capacity_of_the_demand_is_enough),
        cmocka_unit_test(growing_capacity_follows_the_demand),
        cmocka_unit_test(b16_uneven_tokens_under_one_maximum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
