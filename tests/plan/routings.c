/* Plans against their definition, over random routings of all kinds. */
#include <stdlib.h>
#include <string.h>

#include "naive.h"
#include "rig/rig.h"

static struct routing routing_make(struct rig_random *random, enum rig_routing kind, int world, int local_experts,
                                   int top_k, int most_tokens) {
    struct routing routing = {
        .world = world, .experts = world * local_experts, .top_k = top_k, .capacity = MM_NO_CAPACITY};
    for (int r = 0; r < world; r++) {
        int64_t tokens = rig_below(random, 4) == 0 ? 0 : rig_below(random, most_tokens + 1), slots = tokens * top_k;
        int64_t *wide = calloc((size_t)slots + 1, sizeof *wide);
        routing.tokens[r] = (int32_t)tokens;
        routing.ids[r] = calloc((size_t)slots + 1, sizeof(int32_t));
        routing.weights[r] = calloc((size_t)slots + 1, sizeof(float));
        assert_true(wide && routing.ids[r] && routing.weights[r]);
        rig_route(kind, random, tokens, top_k, routing.experts, wide);
        for (int64_t slot = 0; slot < slots; slot++) {
            routing.ids[r][slot] = (int32_t)wide[slot];
            routing.weights[r][slot] = (float)(1 + slot); /* never the 0 of a pad */
        }
        free(wide);
    }
    return routing;
}

static void routing_free(struct routing *routing) {
    for (int r = 0; r < routing->world; r++) {
        free(routing->ids[r]);
        free(routing->weights[r]);
    }
}

static struct mm_plan_shape shape_of(const struct routing *routing, int rank) {
    return (struct mm_plan_shape){.rank = rank,
                                  .world = routing->world,
                                  .experts = routing->experts,
                                  .top_k = routing->top_k,
                                  .capacity = routing->capacity,
                                  .drop = routing->drop};
}

static mmoe_status plan_make(struct mm_plan *plan, const struct routing *routing, int rank) {
    struct mm_plan_shape shape = shape_of(routing, rank);
    const int32_t *const *ids = (const int32_t *const *)routing->ids;
    const float *const *weights = (const float *const *)routing->weights;
    assert_int_equal(mm_plan_count(plan, &shape, routing->tokens, ids), MMOE_OK);
    mmoe_status status = mm_plan_verdict(plan);
    if (status == MMOE_OK)
        assert_int_equal(mm_plan_fill(plan, routing->tokens, ids, weights), MMOE_OK);
    return status;
}

static int64_t most_demand(const struct naive *naive, int world) {
    int64_t most = 0;
    for (int r = 0; r < world; r++)
        most = naive->demand[r] > most ? naive->demand[r] : most;
    return most;
}

/* A plan that is filled again and again, as in training, for each rank. */
static void compare_all_ranks(struct mm_plan *plans, const struct routing *routing) {
    struct naive naive = naive_make(routing);
    for (int rank = 0; rank < routing->world; rank++) {
        assert_int_equal(plan_make(&plans[rank], routing, rank), MMOE_OK);
        naive_compare(&naive, routing, &plans[rank]);
    }
    naive_free(&naive);
}

/* Also the case B10: RIG_DUPLICATES makes tokens that name an expert twice, and every such slot has a row. */
static void any_routing_equals_the_definition(void **state) {
    (void)state;
    struct mm_plan plans[8] = {0};
    for (uint64_t seed = 0; seed < 600; seed++) {
        struct rig_random random = rig_seed(seed);
        enum rig_routing kind = (enum rig_routing)(seed % (RIG_HOLES + 1));
        int world = 1 + (int)rig_below(&random, 8), local_experts = 1 + (int)rig_below(&random, 5);
        int top_k = 1 + (int)rig_below(&random, 6), tokens = rig_below(&random, 8) == 0 ? 300 : 20;
        struct routing routing = routing_make(&random, kind, world, local_experts, top_k, tokens);
        compare_all_ranks(plans, &routing);

        /* again with rows dropped, from every one to none */
        struct naive whole = naive_make(&routing);
        routing.drop = 1;
        routing.capacity = rig_below(&random, most_demand(&whole, world) + 2);
        naive_free(&whole);
        compare_all_ranks(plans, &routing);
        routing_free(&routing);
    }
    for (int r = 0; r < 8; r++)
        mm_plan_free(&plans[r]);
}

/* The largest top-k, and a rank's largest number of experts, where the tables are largest. */
static void the_largest_shape_equals_the_definition(void **state) {
    (void)state;
    struct mm_plan plans[2] = {0};
    struct rig_random random = rig_seed(1);
    struct routing routing = routing_make(&random, RIG_DUPLICATES, 2, MMOE_MAX_EXPERTS / 2, MMOE_MAX_TOP_K, 40);
    compare_all_ranks(plans, &routing);
    routing_free(&routing);
    mm_plan_free(&plans[0]);
    mm_plan_free(&plans[1]);
}

/* B10: duplicates are rows of their own, next to one another, fetched once. */
static void b10_duplicates_have_a_row_each(void **state) {
    (void)state;
    int32_t ids[] = {1, 1, 2, 3, 3, 3};
    float weights[] = {1, 2, 3, 4, 5, 6};
    struct routing routing = {.world = 1, .experts = 4, .top_k = 3, .capacity = MM_NO_CAPACITY, .tokens = {2}};
    routing.ids[0] = ids;
    routing.weights[0] = weights;
    struct mm_plan plan = {0};
    assert_int_equal(plan_make(&plan, &routing, 0), MMOE_OK);
    const int32_t rows[] = {0, 1, 128, 256, 257, 258};
    assert_memory_equal(plan.view.slot_row, rows, sizeof rows);
    assert_int_equal(plan.view.rows, 6);
    assert_int_equal(plan.view.row_primary[1], 0);
    assert_int_equal(plan.view.row_primary[128], 0);
    assert_int_equal(plan.view.row_primary[258], 256);
    assert_true(plan.view.row_weight[257] == 5);
    mm_plan_free(&plan);
}

/* B15: 32 tokens to expert 3 with room for 8. */
static void b15_every_rank_reaches_the_same_verdict(void **state) {
    (void)state;
    int32_t ids[16];
    for (int i = 0; i < 16; i++)
        ids[i] = 3;
    float weights[16] = {0};
    struct routing routing = {.world = 2, .experts = 4, .top_k = 1, .capacity = 8, .tokens = {16, 16}};
    for (int r = 0; r < 2; r++) {
        routing.ids[r] = ids;
        routing.weights[r] = weights;
    }
    struct mm_plan plan = {0};
    char text[MM_ERROR_BYTES];
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(plan_make(&plan, &routing, rank), MMOE_CAPACITY);
        assert_int_equal(plan.view.demand[1], 32);
        assert_string_equal(mmoe_last_error(), "rank 1 was routed 32 rows, expected at most its capacity of 8");
        assert_true(rank == 0 || strcmp(mmoe_last_error(), text) == 0);
        strcpy(text, mmoe_last_error());
    }
    routing.drop = 1;
    assert_int_equal(plan_make(&plan, &routing, 1), MMOE_OK);
    assert_int_equal(plan.view.dropped[1], 24);
    assert_int_equal(plan.view.slots_dropped, 16);
    assert_int_equal(plan_make(&plan, &routing, 0), MMOE_OK);
    assert_int_equal(plan.view.slots_dropped, 8);
    routing.drop = 0;
    routing.capacity = 32;
    assert_int_equal(plan_make(&plan, &routing, 0), MMOE_OK);
    mm_plan_free(&plan);
}

/* With room reserved for a fixed capacity, the blocks stay where they are whatever is routed. */
static void a_reserved_plan_allocates_nothing(void **state) {
    (void)state;
    enum { WORLD = 2, LOCAL_EXPERTS = 3, TOP_K = 2, TOKENS = 200, CAPACITY = 300 };
    struct routing routing = {.world = WORLD, .experts = WORLD * LOCAL_EXPERTS, .top_k = TOP_K, .capacity = CAPACITY};
    struct mm_plan_shape shape = shape_of(&routing, 1);
    struct mm_plan plan = {0};
    int64_t padded_rows = mm_padded_rows_bound(CAPACITY, LOCAL_EXPERTS);
    assert_int_equal(mm_plan_reserve(&plan, &shape, TOKENS, padded_rows), MMOE_OK);
    assert_int_equal(plan.tables.bytes + plan.rows.bytes + plan.slots.bytes,
                     mm_plan_bytes(&shape, TOKENS, padded_rows));
    void *tables = plan.tables.data, *rows = plan.rows.data, *slots = plan.slots.data;
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct rig_random random = rig_seed(seed);
        routing =
            routing_make(&random, (enum rig_routing)(seed % (RIG_HOLES + 1)), WORLD, LOCAL_EXPERTS, TOP_K, TOKENS);
        routing.capacity = CAPACITY;
        routing.drop = 1;
        assert_int_equal(plan_make(&plan, &routing, 1), MMOE_OK);
        assert_ptr_equal(plan.tables.data, tables);
        assert_ptr_equal(plan.rows.data, rows);
        assert_ptr_equal(plan.slots.data, slots);
        routing_free(&routing);
    }
    mm_plan_free(&plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_routing_equals_the_definition), cmocka_unit_test(the_largest_shape_equals_the_definition),
        cmocka_unit_test(b10_duplicates_have_a_row_each),    cmocka_unit_test(b15_every_rank_reaches_the_same_verdict),
        cmocka_unit_test(a_reserved_plan_allocates_nothing),
    };
    rig_poison_allocations(0xff);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
