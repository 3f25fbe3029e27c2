/* The grouped combine on the CPU: its definition bit for bit, on any number of ranks, and what it sends. */
#include "rig/grouped.h"

#include <string.h>

#include "rig/rig.h"

#define HIDDEN 72
#define INNER 40

static void prove(mmoe_layer_config layer, int world, enum rig_routing routing, enum rig_kind kind) {
    int64_t tokens[MMOE_MAX_WORLD];
    for (int r = 0; r < world; r++)
        tokens[r] = r % 3 == 1 ? 0 : 30 + 7 * r;
    const struct rig_options options = {.keep = world % 2 ? MMOE_KEEP_ROWS : MMOE_KEEP_PLAN};
    rig_prove_grouped(&layer, world, tokens, routing, 500 + (uint64_t)world, kind, &options);
}

static void any_number_of_ranks(void **state) {
    (void)state;
    static const enum rig_routing kinds[] = {RIG_UNIFORM, RIG_DUPLICATES, RIG_HOLES, RIG_ONE_EXPERT, RIG_UNUSED};
    const int count = rig_scaled("kinds of routing", (int)(sizeof kinds / sizeof kinds[0]), 2);
    for (int world = 1; world <= 8; world *= 2)
        for (int i = 0; i < count; i++)
            prove(rig_layer(HIDDEN, INNER, 16, 6), world, kinds[i], RIG_THREADS);
    prove(rig_layer(HIDDEN, INNER, 16, 6), 4, RIG_DUPLICATES, RIG_PROCESSES);
}

/* The most slots of a token, and a router weight on the input. */
static void the_most_slots(void **state) {
    (void)state;
    mmoe_layer_config layer = rig_layer(24, 8, rig_scaled("experts", 128, 64), MMOE_MAX_TOP_K);
    prove(layer, 2, RIG_UNIFORM, RIG_THREADS);
    layer.weight_on = MMOE_WEIGHT_ON_INPUT;
    prove(layer, 4, RIG_DUPLICATES, RIG_THREADS);
}

/* Dropped slots are no part of a sum. */
static void fixed_capacity_that_drops(void **state) {
    (void)state;
    mmoe_layer_config layer = rig_layer(HIDDEN, INNER, 8, 4);
    layer.capacity_policy = MMOE_CAPACITY_FIXED;
    layer.capacity = 50;
    layer.drop = 1;
    prove(layer, 4, RIG_ZIPF, RIG_THREADS);
}

/* ---- What is sent ---- */

struct sending {
    struct rig_batch *batch;
    int64_t pushed[2][2]; /* by rank, and exact or grouped */
};

static int64_t pushed_by(struct rig_rank *rank, struct rig_batch *batch, mmoe_combine combine) {
    mmoe_layer_config config = batch->layer;
    config.combine = combine;
    const struct rig_options options = {.forward_only = true};
    mmoe_layer *layer = NULL;
    mmoe_report report = {0};
    if (mmoe_layer_create(rank->group, &config, &layer) != MMOE_OK)
        return -1;
    struct rig_call call = rig_call_make(rank, batch, &options, NULL, 0xff);
    call.forward.report = &report;
    const mmoe_status status = mmoe_forward(layer, &call.forward);
    rig_call_free(&call);
    mmoe_layer_destroy(&layer);
    return status == MMOE_OK ? report.bytes_pushed : -1;
}

static void sending_body(struct rig_rank *rank, void *context) {
    struct sending *sending = context;
    for (int combine = MMOE_COMBINE_EXACT; combine <= MMOE_COMBINE_GROUPED; combine++) {
        sending->pushed[rank->rank][combine] = pushed_by(rank, sending->batch, (mmoe_combine)combine);
        RIG_EXPECT(rank, sending->pushed[rank->rank][combine] > 0, "%s", mmoe_last_error());
    }
}

/* Every token names all four experts, two on each rank: two rows of a peer's token become one sum. */
static void a_row_for_each_token(void **state) {
    (void)state;
    const int64_t tokens[2] = {40, 23};
    mmoe_layer_config layer = rig_layer(HIDDEN, INNER, 4, 4);
    struct rig_batch batch = rig_batch_make(&layer, 2, tokens, RIG_UNIFORM, 511);
    struct sending sending = {.batch = &batch};
    struct rig_world world = rig_world_for(&batch, 1, RIG_THREADS);
    rig_world_run(&world, sending_body, &sending);
    for (int rank = 0; rank < 2; rank++) {
        const int64_t row = HIDDEN * (int64_t)sizeof(uint16_t), theirs = tokens[1 - rank];
        assert_int_equal(sending.pushed[rank][MMOE_COMBINE_EXACT] - sending.pushed[rank][MMOE_COMBINE_GROUPED],
                         theirs * row);
    }
    rig_batch_free(&batch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_ranks),
        cmocka_unit_test(the_most_slots),
        cmocka_unit_test(fixed_capacity_that_drops),
        cmocka_unit_test(a_row_for_each_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
