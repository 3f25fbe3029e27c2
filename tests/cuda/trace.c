/* Traced forwards: the same results; every task, token row and sum told once and at its own time; what does not fit is
 * counted; nothing is allocated for forwards that are not traced. MMOE_TEST_BACKEND is "cuda"; the GPUs may be
 * simulated ones. */
#include <string.h>

#include "told.h"

/* One forward that is traced on the ranks of a mask, beside the same without. */
struct comparison {
    struct rig_batch plain, traced;
    mmoe_keep keep;
    int64_t records;
    unsigned tracing; /* a bit each rank */
};

/* ---- Forwards ---- */

static bool check_tasks(struct rig_rank *rank, const struct told *told) {
    static const mmoe_trace_kind gate_up[] = {MMOE_TRACE_LOAD_GATE_UP, MMOE_TRACE_STORE, MMOE_TRACE_MULTIPLY_GATE_UP,
                                              MMOE_TRACE_STAGE_GATE_UP};
    static const mmoe_trace_kind down[] = {MMOE_TRACE_LOAD_DOWN, MMOE_TRACE_PUSH, MMOE_TRACE_MULTIPLY_DOWN,
                                           MMOE_TRACE_STAGE_DOWN};
    for (size_t k = 0; k < sizeof gate_up / sizeof gate_up[0]; k++)
        if (!told_tasks(rank, told, gate_up[k], told_tiles(2 * told->layer->intermediate)))
            return false;
    for (size_t k = 0; k < sizeof down / sizeof down[0]; k++)
        if (!told_tasks(rank, told, down[k], told_tiles(told->layer->hidden)))
            return false;
    return true;
}

static bool check_whole(struct rig_rank *rank, const struct told *told) {
    const int64_t ids = (rank->world - 1) * told->tokens * told->layer->top_k * 8;
    int64_t to_peers = 0;
    RIG_TRY(rank, told->trace->rank == rank->rank && told->trace->world == rank->world && told->trace->lost == 0,
            "the trace of rank %d of %d lost %lld events", told->trace->rank, told->trace->world,
            (long long)told->trace->lost);
    if (!told_times(rank, told->trace) || !check_tasks(rank, told) || !told_fetching(rank, told) ||
        !told_pushes(rank, told, MMOE_TRACE_PUSH, 2 * told->layer->hidden, &to_peers) ||
        !told_sums(rank, told, 1u << MMOE_TRACE_CONSUMER))
        return false;
    RIG_TRY(rank, to_peers + ids == told->report.bytes_pushed, "%lld bytes pushed, the report says %lld",
            (long long)(to_peers + ids), (long long)told->report.bytes_pushed);
    return true;
}

static bool forward(struct rig_rank *rank, mmoe_layer *layer, struct rig_batch *batch, const struct comparison *c,
                    bool traced) {
    const struct rig_options options = {.keep = c->keep};
    struct told told = {.layer = &batch->layer, .tokens = batch->tokens[rank->rank], .slots = 1};
    mmoe_trace *trace = NULL;
    mmoe_saved *saved;
    struct rig_placed placed;
    RIG_TRY(rank, mmoe_saved_create(layer, c->keep, &saved) == MMOE_OK, "%s", mmoe_last_error());
    struct rig_call call = rig_call_make(rank, batch, &options, saved, traced ? 0x7f : 0xff);
    RIG_TRY(rank, rig_call_place(rank, &call, &placed), "not placed");
    call.forward.report = &told.report;
    mmoe_status status =
        traced ? mmoe_forward_traced(layer, &call.forward, c->records, &trace) : mmoe_forward(layer, &call.forward);
    RIG_TRY(rank, status == MMOE_OK, "%s: %s", mmoe_status_name(status), mmoe_last_error());
    bool good = rig_call_fetch(rank, &call, &placed) && rig_call_take_forward(rank, &call, batch);
    told.plan = mmoe_saved_plan(saved);
    told.trace = trace;
    if (good && traced)
        good = c->records == 0 ? check_whole(rank, &told) : told_cut(rank, trace, c->records, 1);
    mmoe_trace_destroy(&trace);
    rig_placed_free(rank, &placed);
    rig_call_free(&call);
    mmoe_saved_destroy(&saved);
    RIG_TRY(rank, trace == NULL && good, "a forward failed");
    return true;
}

static void comparison_body(struct rig_rank *rank, void *context) {
    struct comparison *c = context;
    const bool traced = (c->tracing >> rank->rank & 1) != 0;
    mmoe_layer *layer;
    RIG_OK(rank, mmoe_layer_create(rank->group, &c->plain.layer, &layer));
    if (forward(rank, layer, &c->plain, c, false) && forward(rank, layer, &c->traced, c, traced))
        RIG_EXPECT(rank, rig_rank_same_bits(rank, &c->plain, &c->traced), "y differs");
    mmoe_layer_destroy(&layer);
}

static void compare(const mmoe_layer_config *layer, int world, const int64_t *tokens, enum rig_routing routing,
                    struct comparison c) {
    c.plain = rig_batch_make(layer, world, tokens, routing, 5);
    c.traced = rig_batch_make(layer, world, tokens, routing, 5);
    struct rig_world rig = rig_world_for(&c.plain, 1, RIG_THREADS);
    rig_world_run(&rig, comparison_body, &c);
    rig_batch_free(&c.plain);
    rig_batch_free(&c.traced);
}

static void one_rank(void **state) {
    (void)state;
    const int64_t tokens = 120;
    mmoe_layer_config layer = rig_layer(320, 192, 3, 2);
    compare(&layer, 1, &tokens, RIG_HOLES, (struct comparison){.tracing = 1});
    layer.limit = 0.75f;
    compare(&layer, 1, &tokens, RIG_DUPLICATES, (struct comparison){.tracing = 1, .keep = MMOE_KEEP_ROWS});
}

static void tokens_in_pieces(void **state) {
    (void)state;
    const int64_t tokens = 5;
    mmoe_layer_config layer = rig_layer(2112, 64, 1, 1);
    compare(&layer, 1, &tokens, RIG_UNIFORM, (struct comparison){.tracing = 1});
}

static void two_ranks(void **state) {
    (void)state;
    rig_need_gpus(2);
    const int64_t tokens[][2] = {{60, 90}, {40, 0}};
    mmoe_layer_config layer = rig_layer(320, 128, 4, 2);
    compare(&layer, 2, tokens[0], RIG_UNIFORM, (struct comparison){.tracing = 3});
    compare(&layer, 2, tokens[0], RIG_ONE_EXPERT, (struct comparison){.tracing = 2});
    compare(&layer, 2, tokens[1], RIG_HOLES, (struct comparison){.tracing = 3});
    layer.combine = MMOE_COMBINE_GROUPED;
    compare(&layer, 2, tokens[0], RIG_DUPLICATES, (struct comparison){.tracing = 3});
}

static void nothing_to_do(void **state) {
    (void)state;
    const int64_t tokens = 20, none = 0;
    mmoe_layer_config layer = rig_layer(64, 64, 2, 1);
    compare(&layer, 1, &tokens, RIG_UNUSED, (struct comparison){.tracing = 1});
    compare(&layer, 1, &none, RIG_UNIFORM, (struct comparison){.tracing = 1});
}

static void a_full_trace(void **state) {
    (void)state;
    rig_need_gpus(2);
    const int64_t tokens[] = {60, 90};
    mmoe_layer_config layer = rig_layer(320, 128, 4, 2);
    compare(&layer, 2, tokens, RIG_UNIFORM, (struct comparison){.tracing = 3, .records = 1});
    compare(&layer, 2, tokens, RIG_UNIFORM, (struct comparison){.tracing = 3, .records = 3});
}

/* ---- Refusals and memory ---- */

/* A traced forward that fails on this rank; the group stays whole, and every y as it was. */
static bool is_refused(struct rig_rank *rank, mmoe_layer *layer, const struct rig_batch *batch, int64_t records,
                       mmoe_trace **trace, mmoe_status expected, const char *sentence) {
    const struct rig_options options = {.keep = MMOE_KEEP_PLAN};
    struct rig_call call = rig_call_make(rank, batch, &options, NULL, 0x7f);
    struct rig_placed placed;
    RIG_TRY(rank, rig_call_place(rank, &call, &placed), "not placed");
    mmoe_status status = mmoe_forward_traced(layer, &call.forward, records, trace);
    RIG_TRY(rank, status == expected && strstr(mmoe_last_error(), sentence), "%s: \"%s\", expected %s: \"%s\"",
            mmoe_status_name(status), mmoe_last_error(), mmoe_status_name(expected), sentence);
    RIG_TRY(rank, trace == NULL || *trace == NULL, "a trace of a forward that failed");
    RIG_TRY(rank, rig_call_fetch(rank, &call, &placed) && rig_call_untouched(&call), "an operand was written");
    RIG_TRY(rank, mmoe_group_check(rank->group) == MMOE_OK, "the group broke: %s", mmoe_last_error());
    rig_placed_free(rank, &placed);
    rig_call_free(&call);
    return true;
}

static void refusal_body(struct rig_rank *rank, void *context) {
    struct comparison *c = context;
    mmoe_layer *layer;
    mmoe_trace *trace = NULL;
    RIG_EXPECT(rank, mmoe_forward_traced(NULL, NULL, 0, &trace) == MMOE_INVALID_ARGUMENT, "no layer is accepted");
    RIG_OK(rank, mmoe_layer_create(rank->group, &c->plain.layer, &layer));
    bool good =
        is_refused(rank, layer, &c->plain, 0, NULL, MMOE_INVALID_ARGUMENT, "trace is NULL") &&
        is_refused(rank, layer, &c->plain, -1, &trace, MMOE_INVALID_ARGUMENT, "records is -1, expected 0 .. 1048576") &&
        is_refused(rank, layer, &c->plain, (1 << 20) + 1, &trace, MMOE_INVALID_ARGUMENT, "records is 1048577");
    RIG_EXPECT(rank, good && forward(rank, layer, &c->plain, c, true), "%s", rank->failure);
    mmoe_layer_destroy(&layer);
}

/* Most of the device's memory is taken once a forward has made its buffers: what is left is enough for a call's
 * operands, and not for a trace. */
static void memory_body(struct rig_rank *rank, void *context) {
    enum { TAKEN = 64, LEFT = 1 << 23, LEAST = 1 << 12 };
    struct comparison *c = context;
    void *taken[TAKEN], *left = NULL;
    int count = 0;
    mmoe_layer *layer;
    mmoe_trace *trace = NULL;
    RIG_OK(rank, mmoe_layer_create(rank->group, &c->plain.layer, &layer));
    RIG_EXPECT(rank, forward(rank, layer, &c->plain, c, true), "%s", rank->failure);
    RIG_OK(rank, mmoe_device_alloc(rank->group, LEFT, &left));
    for (size_t bytes = (size_t)1 << 40; bytes >= LEAST && count < TAKEN;) {
        if (mmoe_device_alloc(rank->group, bytes, &taken[count]) == MMOE_OK)
            count++;
        else
            bytes /= 2;
    }
    mmoe_device_free(rank->group, &left);
    bool good = is_refused(rank, layer, &c->plain, 0, &trace, MMOE_OUT_OF_MEMORY, "for the trace of a forward") &&
                forward(rank, layer, &c->plain, c, false);
    while (count > 0)
        mmoe_device_free(rank->group, &taken[--count]);
    RIG_EXPECT(rank, good && forward(rank, layer, &c->plain, c, true), "%s", rank->failure);
    mmoe_layer_destroy(&layer);
}

static void run_alone(rig_body body) {
    const int64_t tokens = 30;
    mmoe_layer_config layer = rig_layer(64, 64, 2, 2);
    struct comparison c = {.plain = rig_batch_make(&layer, 1, &tokens, RIG_UNIFORM, 8)};
    struct rig_world rig = rig_world_for(&c.plain, 1, RIG_THREADS);
    rig_world_run(&rig, body, &c);
    rig_batch_free(&c.plain);
}

static void refusals(void **state) {
    (void)state;
    run_alone(refusal_body);
}

static void no_memory_without_a_trace(void **state) {
    (void)state;
    run_alone(memory_body);
}

static void names(void **state) {
    (void)state;
    for (int kind = MMOE_TRACE_AWAIT_ROWS; kind <= MMOE_TRACE_SUM; kind++)
        for (int other = MMOE_TRACE_AWAIT_ROWS; other < kind; other++)
            assert_string_not_equal(mmoe_trace_kind_name((mmoe_trace_kind)kind),
                                    mmoe_trace_kind_name((mmoe_trace_kind)other));
    assert_string_equal(mmoe_trace_kind_name((mmoe_trace_kind)0), "unknown kind");
    assert_string_equal(mmoe_trace_kind_name((mmoe_trace_kind)(MMOE_TRACE_SUM + 1)), "unknown kind");
    mmoe_trace_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank),
        cmocka_unit_test(tokens_in_pieces),
        cmocka_unit_test(two_ranks),
        cmocka_unit_test(nothing_to_do),
        cmocka_unit_test(a_full_trace),
        cmocka_unit_test(refusals),
        cmocka_unit_test(no_memory_without_a_trace),
        cmocka_unit_test(names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
