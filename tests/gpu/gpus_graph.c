/* Captured calls over several GPUs, and over one: replayed with other ids, tokens and gradients, among calls that are
 * not replayed, beside other layers; and replays that fail. */
#include <stdio.h>
#include <string.h>

#include "fixture.h"
#include "gpus.h"

#define HIDDEN 64
#define INNER 64
#define TOP_K 2

static const struct rig_options keep_plan = {.keep = MMOE_KEEP_PLAN};
static const struct rig_options added_rows = {.keep = MMOE_KEEP_ROWS, .accumulate = true};

/* Batches of one shape and one set of weights, in turn. */
#define STEPS 8
struct series {
    struct rig_batch step[STEPS];
    int mixed, steps; /* that are made in turn: the first ones as the test says; all */
};

static struct series series_make(const mmoe_layer_config *layer, int world, const int64_t *tokens) {
    static const enum rig_routing routings[STEPS] = {RIG_UNIFORM, RIG_ONE_EXPERT, RIG_UNUSED, RIG_HOLES,
                                                     RIG_ZIPF,    RIG_DUPLICATES, RIG_UNUSED, RIG_UNIFORM};
    struct series series;
    for (int i = 0; i < STEPS; i++) {
        series.step[i] = rig_batch_make(layer, world, tokens, routings[i], 900 + (uint64_t)i);
        const size_t stack = (size_t)rig_batch_stack(&series.step[i]) * sizeof *series.step[i].gate;
        memcpy(series.step[i].gate, series.step[0].gate, stack);
        memcpy(series.step[i].up, series.step[0].up, stack);
        memcpy(series.step[i].down, series.step[0].down, stack);
    }
    return series;
}

static void series_compare_and_free(struct series *series, const struct rig_options *options, int steps) {
    for (int i = 0; i < STEPS; i++) {
        if (i < steps) /* else it was not made */
            rig_compare(&series->step[i], options, RIG_BOUND);
        rig_batch_free(&series->step[i]);
    }
}

static mmoe_layer_config fixed_layer(int world, int64_t capacity) {
    mmoe_layer_config layer = rig_layer(HIDDEN, INNER, 2 * world, TOP_K);
    layer.capacity_policy = MMOE_CAPACITY_FIXED;
    layer.capacity = capacity;
    return layer;
}

/* T differs from rank to rank; one has none. */
static int64_t some_tokens(int world, int64_t *tokens) {
    int64_t total = 0;
    for (int r = 0; r < world; r++)
        total += tokens[r] = r % 3 == 2 ? 0 : 30 - 7 * (r % 3);
    return total;
}

/* ---- B35: capture once, replay with everything new ---- */

/* Every other call is replayed, on some ranks where it is made on others: that makes no difference to the ranks. Then
 * all are. */
static void replay_body(struct rig_rank *rank, void *context) {
    struct series *series = context;
    struct fixture fixture;
    if (!fixture_make(rank, &series->step[0], &added_rows, &fixture) ||
        !fixture_step(rank, &fixture, &series->step[0], REPLAY_NOTHING, 0xff) || !fixture_capture(rank, &fixture))
        return;
    for (int i = 0; i < series->steps; i++) {
        const unsigned mixed = (unsigned)(i + rank->rank) % 4, all = REPLAY_FORWARD | REPLAY_BACKWARD;
        if (!fixture_step(rank, &fixture, &series->step[i % STEPS], i < series->mixed ? mixed : all,
                          i % 2 ? 0xff : 0x7f))
            return;
    }
    RIG_OK(rank, mmoe_group_check(rank->group));
    fixture_free(rank, &fixture);
}

/* Captured before any call was made, both in one graph: all memory is there. */
static void first_call_body(struct rig_rank *rank, void *context) {
    struct series *series = context;
    struct fixture fixture;
    if (!fixture_make(rank, &series->step[0], &keep_plan, &fixture) || !fixture_capture_both(rank, &fixture))
        return;
    RIG_EXPECT(rank, mmoe_saved_plan(fixture.saved)->padded_rows == 0, "there is a plan before the first replay");
    for (int i = 0; i < series->steps; i++)
        if (!fixture_step(rank, &fixture, &series->step[i], REPLAY_BOTH, i % 2 ? 0xff : 0x7f))
            return;
    fixture_free(rank, &fixture);
}

static void run_series(int world, rig_body body, const struct rig_options *options, int mixed, int steps) {
    int64_t tokens[MMOE_MAX_WORLD];
    const int64_t total = some_tokens(world, tokens);
    const mmoe_layer_config layer = fixed_layer(world, total * TOP_K);
    struct series series = series_make(&layer, world, tokens);
    series.mixed = mixed;
    series.steps = steps;
    struct rig_world ranks = rig_world_for(series.step, STEPS, gpus_kind);
    rig_world_run(&ranks, body, &series);
    series_compare_and_free(&series, options, steps < STEPS ? steps : STEPS);
}

/* One GPU, and several. At reduced size there is one in the first test alone. */
static int next_world(int world) {
    return world == 1 && gpus_most > 1 ? gpus_least() : 2 * world;
}
static int first_world(void) {
    return rig_small() ? gpus_least() : 1;
}
#define EACH_WORLD_FROM(first, world) (int world = first; world <= gpus_most; world = next_world(world))

static void b35_replay_with_everything_new(void **state) {
    (void)state;
    for
        EACH_WORLD_FROM(1, world)
    run_series(world, replay_body, &added_rows, rig_scaled("mixed steps", STEPS, 4), rig_scaled("steps", 2 * STEPS, 6));
}

static void b35_the_first_call_is_captured(void **state) {
    (void)state;
    for
        EACH_WORLD_FROM(first_world(), world)
    run_series(world, first_call_body, &keep_plan, 0, rig_scaled("steps", STEPS, 5));
}

/* ---- Two graphs, and a layer that makes the buffers grow ---- */

struct company {
    struct series first, second;
    struct rig_batch large;
    int steps;
};

static void company_body(struct rig_rank *rank, void *context) {
    struct company *company = context;
    struct fixture first, second;
    mmoe_layer *large;
    mmoe_saved *saved;
    if (!fixture_make(rank, &company->first.step[0], &keep_plan, &first) || !fixture_capture_both(rank, &first) ||
        !fixture_step(rank, &first, &company->first.step[0], REPLAY_BOTH, 0xff) ||
        !fixture_make(rank, &company->second.step[0], &added_rows, &second) || !fixture_capture_both(rank, &second))
        return;
    RIG_OK(rank, mmoe_layer_create(rank->group, &company->large.layer, &large));
    RIG_OK(rank, mmoe_saved_create(large, keep_plan.keep, &saved));
    for (int i = 0; i < company->steps; i++)
        if (!rig_step(rank, large, saved, &company->large, &keep_plan, 0xff) ||
            !fixture_step(rank, &first, &company->first.step[i], REPLAY_BOTH, 0xff) ||
            !fixture_step(rank, &second, &company->second.step[i], REPLAY_BOTH, 0x7f))
            return;
    mmoe_saved_destroy(&saved);
    mmoe_layer_destroy(&large);
    fixture_free(rank, &second);
    fixture_free(rank, &first);
}

static void graphs_outlive_what_outgrows_them(void **state) {
    (void)state;
    for
        EACH_WORLD_FROM(first_world(), world) {
            int64_t tokens[MMOE_MAX_WORLD], many[MMOE_MAX_WORLD];
            const int64_t total = some_tokens(world, tokens);
            const mmoe_layer_config first = fixed_layer(world, total * TOP_K),
                                    large = rig_layer(256, 128, 2 * world, 3);
            mmoe_layer_config second = fixed_layer(world, total * TOP_K);
            second.hidden = 128;
            for (int r = 0; r < world; r++)
                many[r] = 40;
            struct company company = {series_make(&first, world, tokens), series_make(&second, world, tokens),
                                      rig_batch_make(&large, world, many, RIG_ZIPF, 920),
                                      rig_scaled("steps", STEPS, 2)};
            struct rig_world ranks = rig_world_make(world, gpus_kind, 40, 256, 3, 2 * world);
            rig_world_run(&ranks, company_body, &company);
            series_compare_and_free(&company.first, &keep_plan, company.steps);
            series_compare_and_free(&company.second, &added_rows, company.steps);
            rig_compare(&company.large, &keep_plan, RIG_BOUND);
            rig_batch_free(&company.large);
        }
}

/* ---- Replays that fail ---- */

/* A forward and its backward, each of which fails; told in turn. */
static void expect_failure(struct rig_rank *rank, const struct fixture *fixture, const struct rig_batch *batch,
                           const struct gpus_failure failures[2], unsigned first_call) {
    struct rig_call step = rig_call_make(rank, batch, fixture->call.options, NULL, 0x7f);
    RIG_EXPECT(rank,
               fixture_put(rank, fixture, &step) && graph_launch(rank, fixture->forward, fixture->stream) &&
                   stream_await(rank, fixture->stream) && rig_call_fetch(rank, &step, &fixture->placed),
               "not run");
    RIG_EXPECT(rank, rig_operand_is_nan(&step, RIG_Y), "y of a failed replay is not NaN");
    if (!gpus_told(rank, &failures[0], first_call, mmoe_group_check(rank->group)))
        return;
    RIG_EXPECT(rank,
               graph_launch(rank, fixture->backward, fixture->stream) && stream_await(rank, fixture->stream) &&
                   rig_call_fetch(rank, &step, &fixture->placed),
               "not run");
    RIG_EXPECT(rank, gpus_gradients_are_spoilt(&step), "gradients of a failed replay look good");
    if (gpus_told(rank, &failures[1], first_call + 1, mmoe_group_check(rank->group)))
        RIG_OK(rank, mmoe_group_check(rank->group));
    rig_call_free(&step);
}

struct failing {
    struct rig_batch good, over, bad, nan;
    struct rig_options options;
};

static const char over_text[] = "expected at most its capacity",
                  no_forward_text[] = "the forward that backward {call} belongs to failed, expected one that went well";

static const struct gpus_failure too_many[] = {{"too many rows", MMOE_CAPACITY, MMOE_CAPACITY, over_text, over_text},
                                               {"their backward", MMOE_CAPACITY, MMOE_CAPACITY, over_text, over_text}};
static const struct gpus_failure bad_id[] = {
    {"a bad id", MMOE_REFUSED, MMOE_INVALID_ARGUMENT,
     "rank {culprit} refused call {call}: ids at token 1, slot 0 is -5", "ids at token 1, slot 0 is -5"},
    {"its backward", MMOE_REFUSED, MMOE_REFUSED, no_forward_text, no_forward_text}};
static const struct gpus_failure nan_weight[] = {
    {"a router weight that is NaN", MMOE_REFUSED, MMOE_INVALID_ARGUMENT,
     "rank {culprit} refused call {call}: weights at token 1, slot 0 is nan", "weights at token 1, slot 0 is nan"},
    {"its backward", MMOE_REFUSED, MMOE_REFUSED, no_forward_text, no_forward_text}};

static void failing_body(struct rig_rank *rank, void *context) {
    struct failing *failing = context;
    struct fixture fixture;
    if (!fixture_make(rank, &failing->good, &failing->options, &fixture) || !fixture_capture(rank, &fixture))
        return;
    for (unsigned i = 0; i < 2 && !rank->failed; i++) {
        if (!fixture_step(rank, &fixture, &failing->good, REPLAY_FORWARD | REPLAY_BACKWARD, 0xff))
            return;
        expect_failure(rank, &fixture, &failing->over, too_many, 10 * i + 3);
        if (!rank->failed)
            expect_failure(rank, &fixture, &failing->bad, bad_id, 10 * i + 5);
        if (!rank->failed)
            expect_failure(rank, &fixture, &failing->nan, nan_weight, 10 * i + 7);
        if (!rank->failed && !fixture_step(rank, &fixture, &failing->good, REPLAY_NOTHING, 0xff))
            return;
    }
    if (!rank->failed)
        fixture_free(rank, &fixture);
}

static void replays_that_fail_are_told(void **state) {
    (void)state;
    for
        EACH_WORLD_FROM(first_world(), world)
    for (int form = 0; form < 2; form++) {
        int64_t tokens[MMOE_MAX_WORLD];
        for (int r = 0; r < world; r++)
            tokens[r] = 16;
        const mmoe_layer_config layer = fixed_layer(world, 16 * world * TOP_K - 1);
        struct failing failing = {rig_batch_make(&layer, world, tokens, RIG_HOLES, 931),
                                  rig_batch_make(&layer, world, tokens, RIG_ONE_EXPERT, 931),
                                  rig_batch_make(&layer, world, tokens, RIG_HOLES, 931),
                                  rig_batch_make(&layer, world, tokens, RIG_UNIFORM, 931),
                                  {.keep = (mmoe_keep)form, .accumulate = form}};
        const int64_t slot = (rig_batch_first(&failing.bad, world - 1) + 1) * TOP_K;
        failing.bad.ids[slot] = -5;
        failing.nan.weights[slot] = NAN;
        struct rig_world ranks = rig_world_for(&failing.good, 1, gpus_kind);
        rig_world_run(&ranks, failing_body, &failing);
        rig_compare(&failing.good, &failing.options, RIG_BOUND);
        rig_batch_free(&failing.good);
        rig_batch_free(&failing.over);
        rig_batch_free(&failing.bad);
        rig_batch_free(&failing.nan);
    }
}

int main(void) {
    const struct CMUnitTest of_processes[] = {
        cmocka_unit_test(b35_replay_with_everything_new),
    };
    const struct CMUnitTest of_threads[] = {
        cmocka_unit_test(b35_replay_with_everything_new),
        cmocka_unit_test(b35_the_first_call_is_captured),
        cmocka_unit_test(graphs_outlive_what_outgrows_them),
        cmocka_unit_test(replays_that_fail_are_told),
    };
    return gpus_main(1, GPUS_TESTS(of_processes), GPUS_TESTS(of_threads));
}
