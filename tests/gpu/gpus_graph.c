/* Captured forwards over several GPUs, and over one: replayed with other ids and tokens, among calls that are not
 * replayed, beside other layers; and what can't be captured. */
#include <stdio.h>
#include <string.h>

#include "gpus.h"
#include "graphs.h"

#define HIDDEN 64
#define INNER 64
#define TOP_K 2

static const struct rig_options keep_rows = {.forward_only = true, .keep = MMOE_KEEP_ROWS};
static const struct rig_options keep_plan = {.forward_only = true};

/* Batches of one shape and one set of weights, in turn. */
#define STEPS 8
struct series {
    struct rig_batch step[STEPS];
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

static void series_compare_and_free(struct series *series) {
    for (int i = 0; i < STEPS; i++) {
        rig_compare(&series->step[i], &keep_plan, RIG_BOUND);
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

/* ---- A call whose operands stay where they are ---- */

struct fixture {
    mmoe_layer *layer;
    mmoe_saved *saved;
    mm_cu_stream stream;
    struct rig_call call;
    struct rig_placed placed;
    void *graph;
};

static bool fixture_make(struct rig_rank *rank, const struct rig_batch *batch, const struct rig_options *options,
                         struct fixture *fixture) {
    *fixture = (struct fixture){.graph = NULL};
    RIG_TRY(rank, mmoe_layer_create(rank->group, &batch->layer, &fixture->layer) == MMOE_OK, "%s", mmoe_last_error());
    RIG_TRY(rank, mmoe_saved_create(fixture->layer, options->keep, &fixture->saved) == MMOE_OK, "%s",
            mmoe_last_error());
    fixture->call = rig_call_make(rank, batch, options, fixture->saved, 0x7f);
    if (!stream_make(rank, &fixture->stream) || !rig_call_place(rank, &fixture->call, &fixture->placed))
        return false;
    fixture->call.forward.stream = fixture->stream;
    return true;
}

static void fixture_free(struct rig_rank *rank, struct fixture *fixture) {
    if (fixture->graph != NULL)
        graph_free(rank, fixture->graph);
    stream_free(rank, fixture->stream);
    rig_placed_free(rank, &fixture->placed);
    rig_call_free(&fixture->call);
    mmoe_saved_destroy(&fixture->saved);
    mmoe_layer_destroy(&fixture->layer);
}

static bool fixture_capture(struct rig_rank *rank, struct fixture *fixture) {
    if (!capture_begin(rank, fixture->stream))
        return false;
    const mmoe_status status = mmoe_forward(fixture->layer, &fixture->call.forward);
    RIG_TRY(rank, status == MMOE_OK, "%s: %s", mmoe_status_name(status), mmoe_last_error());
    return capture_end(rank, fixture->stream, &fixture->graph);
}

/* Operands that a step changes. */
static bool put_step(struct rig_rank *rank, const struct fixture *fixture, const struct rig_call *step) {
    static const enum rig_operand changing[] = {RIG_X, RIG_IDS, RIG_WEIGHTS, RIG_Y};
    for (int i = 0; i < COUNT(changing); i++) {
        const struct rig_tensor *tensor = &step->tensor[changing[i]];
        RIG_TRY(rank,
                mmoe_device_write(rank->group, fixture->placed.memory[changing[i]], tensor->memory, tensor->bytes) ==
                    MMOE_OK,
                "%s", mmoe_last_error());
    }
    return true;
}

/* One call, replayed or not, that has ended. */
static bool run_step(struct rig_rank *rank, const struct fixture *fixture, bool replay) {
    if (replay)
        return graph_launch(rank, fixture->graph, fixture->stream) && stream_await(rank, fixture->stream);
    const mmoe_status status = mmoe_forward(fixture->layer, &fixture->call.forward);
    RIG_TRY(rank, status == MMOE_OK, "%s: %s", mmoe_status_name(status), mmoe_last_error());
    return stream_await(rank, fixture->stream);
}

static bool make_step(struct rig_rank *rank, const struct fixture *fixture, struct rig_batch *batch, bool replay,
                      int poison) {
    struct rig_call step = rig_call_make(rank, batch, fixture->call.options, NULL, poison);
    const bool good = put_step(rank, fixture, &step) && run_step(rank, fixture, replay) &&
                      rig_call_fetch(rank, &step, &fixture->placed) && rig_call_take_forward(rank, &step, batch) &&
                      rig_plan_is_right(rank, mmoe_saved_plan(fixture->saved), batch);
    rig_call_free(&step);
    return good;
}

/* ---- B35: capture once, replay with everything new ---- */

/* Every other step is replayed, on some ranks the even ones and on others the odd ones: that makes no difference to
 * the ranks. Then all are. */
static void replay_body(struct rig_rank *rank, void *context) {
    struct series *series = context;
    struct fixture fixture;
    if (!fixture_make(rank, &series->step[0], &keep_rows, &fixture) ||
        !make_step(rank, &fixture, &series->step[0], false, 0xff) || !fixture_capture(rank, &fixture))
        return;
    for (int i = 0; i < 2 * STEPS; i++)
        if (!make_step(rank, &fixture, &series->step[i % STEPS], i >= STEPS || (i + rank->rank) % 2 == 0,
                       i % 2 ? 0xff : 0x7f))
            return;
    RIG_OK(rank, mmoe_group_check(rank->group));
    fixture_free(rank, &fixture);
}

/* Captured before any call was made: all memory is there. */
static void first_call_body(struct rig_rank *rank, void *context) {
    struct series *series = context;
    struct fixture fixture;
    if (!fixture_make(rank, &series->step[0], &keep_plan, &fixture) || !fixture_capture(rank, &fixture))
        return;
    RIG_EXPECT(rank, mmoe_saved_plan(fixture.saved)->padded_rows == 0, "there is a plan before the first replay");
    for (int i = 0; i < STEPS; i++)
        if (!make_step(rank, &fixture, &series->step[i], true, i % 2 ? 0xff : 0x7f))
            return;
    fixture_free(rank, &fixture);
}

static void run_series(int world, rig_body body) {
    int64_t tokens[MMOE_MAX_WORLD];
    const int64_t total = some_tokens(world, tokens);
    const mmoe_layer_config layer = fixed_layer(world, total * TOP_K);
    struct series series = series_make(&layer, world, tokens);
    struct rig_world ranks = rig_world_for(series.step, STEPS, gpus_kind);
    rig_world_run(&ranks, body, &series);
    series_compare_and_free(&series);
}

/* One GPU, and several. */
static int next_world(int world) {
    return world == 1 && gpus_most > 1 ? gpus_least() : 2 * world;
}
#define EACH_WORLD(world) (int world = 1; world <= gpus_most; world = next_world(world))

static void b35_replay_with_everything_new(void **state) {
    (void)state;
    for
        EACH_WORLD(world)
    run_series(world, replay_body);
}

static void b35_the_first_call_is_captured(void **state) {
    (void)state;
    for
        EACH_WORLD(world)
    run_series(world, first_call_body);
}

/* ---- Two graphs, and a layer that makes the buffers grow ---- */

struct company {
    struct series first, second;
    struct rig_batch large;
};

static void company_body(struct rig_rank *rank, void *context) {
    struct company *company = context;
    struct fixture first, second;
    mmoe_layer *large;
    if (!fixture_make(rank, &company->first.step[0], &keep_plan, &first) || !fixture_capture(rank, &first) ||
        !make_step(rank, &first, &company->first.step[0], true, 0xff) ||
        !fixture_make(rank, &company->second.step[0], &keep_rows, &second) || !fixture_capture(rank, &second))
        return;
    RIG_OK(rank, mmoe_layer_create(rank->group, &company->large.layer, &large));
    for (int i = 0; i < STEPS; i++)
        if (!rig_step(rank, large, NULL, &company->large, &keep_plan, 0xff) ||
            !make_step(rank, &first, &company->first.step[i], true, 0xff) ||
            !make_step(rank, &second, &company->second.step[i], true, 0x7f))
            return;
    mmoe_layer_destroy(&large);
    fixture_free(rank, &second);
    fixture_free(rank, &first);
}

static void graphs_outlive_what_outgrows_them(void **state) {
    (void)state;
    for
        EACH_WORLD(world) {
            int64_t tokens[MMOE_MAX_WORLD], many[MMOE_MAX_WORLD];
            const int64_t total = some_tokens(world, tokens);
            const mmoe_layer_config first = fixed_layer(world, total * TOP_K),
                                    large = rig_layer(256, 192, 8 * world, 3);
            mmoe_layer_config second = fixed_layer(world, total * TOP_K);
            second.hidden = 128;
            for (int r = 0; r < world; r++)
                many[r] = 40;
            struct company company = {series_make(&first, world, tokens), series_make(&second, world, tokens),
                                      rig_batch_make(&large, world, many, RIG_ZIPF, 920)};
            struct rig_world ranks = rig_world_make(world, gpus_kind, 40, 256, 3, 8 * world);
            rig_world_run(&ranks, company_body, &company);
            series_compare_and_free(&company.first);
            series_compare_and_free(&company.second);
            rig_compare(&company.large, &keep_plan, RIG_BOUND);
            rig_batch_free(&company.large);
        }
}

/* ---- Replays that fail ---- */

static void expect_failure(struct rig_rank *rank, const struct fixture *fixture, const struct rig_batch *batch,
                           mmoe_status expected, const char *text) {
    struct rig_call step = rig_call_make(rank, batch, fixture->call.options, NULL, 0x7f);
    RIG_EXPECT(rank,
               put_step(rank, fixture, &step) && run_step(rank, fixture, true) &&
                   rig_call_fetch(rank, &step, &fixture->placed),
               "not run");
    RIG_EXPECT(rank, rig_operand_is_nan(&step, RIG_Y), "y of a failed replay is not NaN");
    const mmoe_status status = mmoe_group_check(rank->group);
    RIG_EXPECT(rank, status == expected && strstr(mmoe_last_error(), text), "%s: %s", mmoe_status_name(status),
               mmoe_last_error());
    RIG_OK(rank, mmoe_group_check(rank->group));
    rig_call_free(&step);
}

struct failing {
    struct rig_batch good, over, bad;
};

static void failing_body(struct rig_rank *rank, void *context) {
    struct failing *failing = context;
    const int culprit = rank->world - 1;
    struct fixture fixture;
    char refused[100];
    if (!fixture_make(rank, &failing->good, &keep_plan, &fixture) || !fixture_capture(rank, &fixture))
        return;
    for (int i = 0; i < 2 && !rank->failed; i++) {
        snprintf(refused, sizeof refused,
                 rank->rank == culprit ? "ids at token 1, slot 0 is -5"
                                       : "rank %d refused call %d: ids at token 1, slot 0 is -5",
                 culprit, 4 * i + 3);
        if (!make_step(rank, &fixture, &failing->good, true, 0xff))
            return;
        expect_failure(rank, &fixture, &failing->over, MMOE_CAPACITY, "expected at most its capacity");
        expect_failure(rank, &fixture, &failing->bad, rank->rank == culprit ? MMOE_INVALID_ARGUMENT : MMOE_REFUSED,
                       refused);
        if (!rank->failed && !make_step(rank, &fixture, &failing->good, false, 0xff))
            return;
    }
    if (!rank->failed)
        fixture_free(rank, &fixture);
}

static void replays_that_fail_are_told(void **state) {
    (void)state;
    for
        EACH_WORLD(world) {
            int64_t tokens[MMOE_MAX_WORLD];
            for (int r = 0; r < world; r++)
                tokens[r] = 16;
            const mmoe_layer_config layer = fixed_layer(world, 16 * world * TOP_K - 1);
            struct failing failing = {rig_batch_make(&layer, world, tokens, RIG_HOLES, 931),
                                      rig_batch_make(&layer, world, tokens, RIG_ONE_EXPERT, 931),
                                      rig_batch_make(&layer, world, tokens, RIG_HOLES, 931)};
            failing.bad.ids[(rig_batch_first(&failing.bad, world - 1) + 1) * TOP_K] = -5;
            struct rig_world ranks = rig_world_for(&failing.good, 1, gpus_kind);
            rig_world_run(&ranks, failing_body, &failing);
            rig_compare(&failing.good, &keep_plan, RIG_BOUND);
            rig_batch_free(&failing.good);
            rig_batch_free(&failing.over);
            rig_batch_free(&failing.bad);
        }
}

/* ---- What can't be captured ---- */

struct refused {
    struct rig_batch batch;
    struct rig_options options;
    void (*spoil)(mmoe_forward_args *args);
    mmoe_status status;
    const char *sentence;
};

static void refused_body(struct rig_rank *rank, void *context) {
    struct refused *refused = context;
    struct fixture fixture;
    if (!fixture_make(rank, &refused->batch, &refused->options, &fixture) || !capture_begin(rank, fixture.stream))
        return;
    mmoe_forward_args args = fixture.call.forward;
    refused->spoil(&args);
    const mmoe_status status = mmoe_forward(fixture.layer, &args);
    RIG_EXPECT(rank, status == refused->status && strstr(mmoe_last_error(), refused->sentence), "%s: %s",
               mmoe_status_name(status), mmoe_last_error());
    if (!capture_end(rank, fixture.stream, &fixture.graph) || !graph_launch(rank, fixture.graph, fixture.stream) ||
        !stream_await(rank, fixture.stream))
        return;
    RIG_EXPECT(rank, rig_call_fetch(rank, &fixture.call, &fixture.placed) && rig_call_untouched(&fixture.call),
               "what was refused wrote");
    if (!make_step(rank, &fixture, &refused->batch, false, 0xff))
        return;
    fixture_free(rank, &fixture);
}

static void leave(mmoe_forward_args *args) {
    (void)args;
}

static void want_report(mmoe_forward_args *args) {
    static mmoe_report report;
    args->report = &report;
}

static void odd_rows(mmoe_forward_args *args) {
    args->up.stride[1] = HIDDEN + 1;
}

static void no_tokens(mmoe_forward_args *args) {
    args->x.dims = 3;
}

static void what_cannot_be_captured_is_refused(void **state) {
    (void)state;
    static const struct {
        bool grows, pointers;
        void (*spoil)(mmoe_forward_args *args);
        mmoe_status status;
        const char *sentence;
    } all[] = {
        {true, false, leave, MMOE_UNSUPPORTED, "stream is being captured, expected one that runs, or a layer of fixed"},
        {false, false, want_report, MMOE_INVALID_ARGUMENT, "report is wanted of a call that is captured"},
        {false, true, leave, MMOE_UNSUPPORTED,
         "gate is given by a pointer an expert in a stream that is being capture"},
        {false, false, odd_rows, MMOE_UNSUPPORTED, "up has stride[1] 65"},
        {false, false, no_tokens, MMOE_INVALID_ARGUMENT, "x has dims 3"},
    };
    for
        EACH_WORLD(world)
    for (int i = 0; i < COUNT(all); i++) {
        int64_t tokens[MMOE_MAX_WORLD];
        const int64_t total = some_tokens(world, tokens);
        mmoe_layer_config layer = fixed_layer(world, all[i].grows ? 0 : total * TOP_K);
        layer.capacity_policy = all[i].grows ? MMOE_CAPACITY_GROW : MMOE_CAPACITY_FIXED;
        struct refused refused = {rig_batch_make(&layer, world, tokens, RIG_UNIFORM, 941), keep_plan, all[i].spoil,
                                  all[i].status, all[i].sentence};
        for (int operand = RIG_GATE; operand <= RIG_DOWN && all[i].pointers; operand++)
            refused.options.layout[operand] = RIG_SCATTERED;
        struct rig_world ranks = rig_world_for(&refused.batch, 1, gpus_kind);
        rig_world_run(&ranks, refused_body, &refused);
        rig_compare(&refused.batch, &keep_plan, RIG_BOUND);
        rig_batch_free(&refused.batch);
    }
}

int main(void) {
    const struct CMUnitTest of_processes[] = {
        cmocka_unit_test(b35_replay_with_everything_new),
        cmocka_unit_test(what_cannot_be_captured_is_refused),
    };
    const struct CMUnitTest of_threads[] = {
        cmocka_unit_test(b35_replay_with_everything_new),     cmocka_unit_test(b35_the_first_call_is_captured),
        cmocka_unit_test(graphs_outlive_what_outgrows_them),  cmocka_unit_test(replays_that_fail_are_told),
        cmocka_unit_test(what_cannot_be_captured_is_refused),
    };
    return gpus_main(1, GPUS_TESTS(of_processes), GPUS_TESTS(of_threads));
}
