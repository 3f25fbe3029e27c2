/* Traced backwards: the same gradients; every task, token row, push and sum of the rows, every tile of the gradients of
 * weights and what comes at the end told once and at its own time; what does not fit is counted. MMOE_TEST_BACKEND is
 * "cuda"; the GPUs may be simulated ones. */
#include <string.h>

#include "told.h"

enum { USUAL = 512, WARPS = 12 }; /* records; of a multiprocessor */

/* A forward and a backward that is traced on the ranks of a mask, beside the same without. */
struct comparison {
    struct rig_batch plain, traced;
    struct rig_options options;
    int64_t records;
    unsigned tracing; /* a bit each rank */
    bool is_cut;      /* records are too few */
};

/* ---- What is told ---- */

static bool wants(const struct rig_options *options, int rank, enum rig_operand operand) {
    return (options->omit[rank] >> operand & 1) == 0;
}

static bool check_all(struct rig_rank *rank, const struct told *told, const mmoe_trace_kind *kinds, size_t count,
                      int64_t tiles) {
    for (size_t k = 0; k < count; k++)
        if (!told_tasks(rank, told, kinds[k], tiles))
            return false;
    return true;
}

/* Products over rows; those of nobody's concern are not made. */
static bool check_tasks(struct rig_rank *rank, const struct told *told, const struct rig_options *options) {
    static const mmoe_trace_kind redone[] = {MMOE_TRACE_LOAD_GATE_UP, MMOE_TRACE_STORE, MMOE_TRACE_MULTIPLY_GATE_UP,
                                             MMOE_TRACE_STAGE_GATE_UP};
    static const mmoe_trace_kind inner[] = {MMOE_TRACE_LOAD_DGATE_UP, MMOE_TRACE_STORE_DGATE_UP,
                                            MMOE_TRACE_MULTIPLY_DGATE_UP, MMOE_TRACE_DIFFERENTIATE};
    static const mmoe_trace_kind outer[] = {MMOE_TRACE_LOAD_DX, MMOE_TRACE_PUSH, MMOE_TRACE_MULTIPLY_DX,
                                            MMOE_TRACE_STAGE_DX};
    const int64_t hidden = told_tiles(told->layer->hidden), intermediate = told->layer->intermediate;
    const bool redo = options->keep == MMOE_KEEP_PLAN, dx = wants(options, rank->rank, RIG_DX);
    return check_all(rank, told, redone, 4, redo ? told_tiles(2 * intermediate) : 0) &&
           check_all(rank, told, inner, 4, told_tiles(intermediate)) &&
           check_all(rank, told, outer, 4, dx ? hidden : 0);
}

/* Tiles of 128 rows; of one gradient alone the multiprocessors of a cluster make an even number. */
static int64_t tiles_of_gradients(const struct told *told, const struct rig_options *options, int rank) {
    const int64_t hidden = told->layer->hidden, intermediate = told->layer->intermediate;
    const int64_t rows = (intermediate + 127) / 128;
    const int halves = wants(options, rank, RIG_DGATE) + wants(options, rank, RIG_DUP);
    int64_t tiles = 0;
    if (wants(options, rank, RIG_DDOWN))
        tiles += (hidden + 255) / 256 * 2 * told_tiles(intermediate);
    return tiles + (halves == 2 ? 2 * rows : halves * (rows + 1) / 2 * 2) * told_tiles(hidden);
}

static bool check_gradients(struct rig_rank *rank, const struct told *told, const struct rig_options *options) {
    const int64_t tiles = tiles_of_gradients(told, options, rank->rank);
    const bool skip = options->accumulate; /* experts without rows */
    return told_gradients(rank, told, MMOE_TRACE_LOAD_WGRAD, tiles, skip) &&
           told_gradients(rank, told, MMOE_TRACE_MULTIPLY_WGRAD, tiles, true) &&
           told_gradients(rank, told, MMOE_TRACE_STAGE_WGRAD, tiles, skip);
}

static bool check_pushes(struct rig_rank *rank, const struct told *told, const struct rig_options *options) {
    int64_t to_peers = 0;
    if (wants(options, rank->rank, RIG_DX) &&
        !told_pushes(rank, told, MMOE_TRACE_PUSH, 2 * told->layer->hidden, &to_peers))
        return false;
    if (wants(options, rank->rank, RIG_DWEIGHTS) &&
        !told_pushes(rank, told, MMOE_TRACE_PUSH_DW, (int64_t)sizeof(float), &to_peers))
        return false;
    RIG_TRY(rank, to_peers == told->report.bytes_pushed, "%lld bytes pushed, the report says %lld", (long long)to_peers,
            (long long)told->report.bytes_pushed);
    return true;
}

/* All warps of a multiprocessor, on one at least; and nobody tells of what is another's. */
static bool check_end(struct rig_rank *rank, const struct told *told) {
    int64_t awaited = 0, copied = 0;
    for (int64_t i = 0; i < told->trace->count; i++) {
        const mmoe_trace_event *event = &told->trace->events[i];
        const bool finishes = event->role == MMOE_TRACE_FINISHER, sums = event->role == MMOE_TRACE_SUMMER;
        awaited += finishes && event->kind == MMOE_TRACE_AWAIT_RESULTS;
        copied += event->kind == MMOE_TRACE_COPY_DW;
        RIG_TRY(rank,
                event->number >= 0 &&
                    event->number < (finishes ? WARPS
                                     : sums   ? 3
                                              : 8) &&
                    ((event->kind >= MMOE_TRACE_AWAIT_RESULTS) == (finishes || sums)),
                "%s by warp %d of role %d", mmoe_trace_kind_name(event->kind), event->number, event->role);
    }
    RIG_TRY(rank, awaited > 0 && awaited % WARPS == 0 && copied == awaited, "%lld warps at the end, %lld copied dw",
            (long long)awaited, (long long)copied);
    return true;
}

static bool check_whole(struct rig_rank *rank, const struct told *told, const struct rig_options *options) {
    const unsigned roles = 1u << MMOE_TRACE_SUMMER | 1u << MMOE_TRACE_FINISHER;
    RIG_TRY(rank, told->trace->rank == rank->rank && told->trace->world == rank->world && told->trace->lost == 0,
            "the trace of rank %d of %d lost %lld events", told->trace->rank, told->trace->world,
            (long long)told->trace->lost);
    return told_times(rank, told->trace) && check_tasks(rank, told, options) && check_gradients(rank, told, options) &&
           told_fetching(rank, told) && check_pushes(rank, told, options) &&
           (!wants(options, rank->rank, RIG_DX) || told_sums(rank, told, roles)) && check_end(rank, told);
}

/* ---- Backwards ---- */

static bool backward(struct rig_rank *rank, mmoe_layer *layer, struct rig_call *call, const struct comparison *c,
                     struct told *told, bool traced) {
    mmoe_trace *trace = NULL;
    call->backward.report = &told->report;
    mmoe_status status = traced ? mmoe_backward_traced(layer, &call->backward, c->records, &trace)
                                : mmoe_backward(layer, &call->backward);
    RIG_TRY(rank, status == MMOE_OK, "%s: %s", mmoe_status_name(status), mmoe_last_error());
    told->plan = mmoe_saved_plan(call->backward.saved);
    told->trace = trace;
    bool good = true;
    if (traced)
        good = c->is_cut ? told_cut(rank, trace, c->records, 4) : check_whole(rank, told, &c->options);
    mmoe_trace_destroy(&trace);
    return good;
}

static bool step(struct rig_rank *rank, mmoe_layer *layer, struct rig_batch *batch, const struct comparison *c,
                 bool traced) {
    struct told told = {.layer = &batch->layer,
                        .tokens = batch->tokens[rank->rank],
                        .slots = c->options.keep == MMOE_KEEP_PLAN ? 2 : 1};
    mmoe_saved *saved;
    struct rig_placed placed;
    RIG_TRY(rank, mmoe_saved_create(layer, c->options.keep, &saved) == MMOE_OK, "%s", mmoe_last_error());
    struct rig_call call = rig_call_make(rank, batch, &c->options, saved, traced ? 0x7f : 0xff);
    RIG_TRY(rank, rig_call_place(rank, &call, &placed), "not placed");
    RIG_TRY(rank, mmoe_forward(layer, &call.forward) == MMOE_OK, "%s", mmoe_last_error());
    bool good = backward(rank, layer, &call, c, &told, traced) && rig_call_fetch(rank, &call, &placed) &&
                rig_call_take_forward(rank, &call, batch) && rig_call_take_backward(rank, &call, batch);
    rig_placed_free(rank, &placed);
    rig_call_free(&call);
    mmoe_saved_destroy(&saved);
    return good;
}

static void comparison_body(struct rig_rank *rank, void *context) {
    struct comparison *c = context;
    const bool traced = (c->tracing >> rank->rank & 1) != 0;
    mmoe_layer *layer;
    RIG_OK(rank, mmoe_layer_create(rank->group, &c->plain.layer, &layer));
    if (step(rank, layer, &c->plain, c, false) && step(rank, layer, &c->traced, c, traced))
        RIG_EXPECT(rank, rig_rank_same_bits(rank, &c->plain, &c->traced), "gradients differ");
    mmoe_layer_destroy(&layer);
}

static void compare(const mmoe_layer_config *layer, int world, const int64_t *tokens, enum rig_routing routing,
                    struct comparison c) {
    c.plain = rig_batch_make(layer, world, tokens, routing, 6);
    c.traced = rig_batch_make(layer, world, tokens, routing, 6);
    struct rig_world rig = rig_world_for(&c.plain, 1, RIG_THREADS);
    rig_world_run(&rig, comparison_body, &c);
    rig_batch_free(&c.plain);
    rig_batch_free(&c.traced);
}

static void one_rank(void **state) {
    (void)state;
    const int64_t tokens = 60;
    mmoe_layer_config layer = rig_layer(320, 192, 3, 2);
    const struct rig_options redo = {.keep = MMOE_KEEP_PLAN, .narrow_gradients = true};
    const struct rig_options kept = {.keep = MMOE_KEEP_ROWS, .accumulate = true};
    compare(&layer, 1, &tokens, RIG_HOLES, (struct comparison){.tracing = 1, .records = USUAL, .options = redo});
    layer.limit = 0.75f;
    compare(&layer, 1, &tokens, RIG_ONE_EXPERT, (struct comparison){.tracing = 1, .records = USUAL, .options = kept});
}

/* Of H = 320 and I = 192 one gradient has an odd number of tiles. */
static void some_gradients(void **state) {
    (void)state;
    const int64_t tokens = 40;
    const mmoe_layer_config layer = rig_layer(320, 192, 2, 1);
    const struct rig_options options = {.keep = MMOE_KEEP_ROWS, .omit = {1u << RIG_DX | 1u << RIG_DUP}};
    const struct rig_options none = {.keep = MMOE_KEEP_ROWS,
                                     .omit = {1u << RIG_DGATE | 1u << RIG_DUP | 1u << RIG_DDOWN}};
    compare(&layer, 1, &tokens, RIG_UNIFORM, (struct comparison){.tracing = 1, .records = USUAL, .options = options});
    compare(&layer, 1, &tokens, RIG_UNIFORM, (struct comparison){.tracing = 1, .records = USUAL, .options = none});
}

static void two_ranks(void **state) {
    (void)state;
    rig_need_gpus(2);
    const int64_t tokens[][2] = {{30, 45}, {20, 0}};
    const mmoe_layer_config layer = rig_layer(320, 128, 4, 2);
    const struct rig_options redo = {.keep = MMOE_KEEP_PLAN}, kept = {.keep = MMOE_KEEP_ROWS, .narrow_gradients = true};
    compare(&layer, 2, tokens[0], RIG_UNIFORM, (struct comparison){.tracing = 3, .records = USUAL, .options = kept});
    compare(&layer, 2, tokens[0], RIG_ONE_EXPERT, (struct comparison){.tracing = 2, .records = USUAL, .options = kept});
    compare(&layer, 2, tokens[1], RIG_HOLES, (struct comparison){.tracing = 3, .records = USUAL, .options = redo});
}

static void nothing_to_do(void **state) {
    (void)state;
    const int64_t none = 0;
    const mmoe_layer_config layer = rig_layer(64, 64, 2, 1);
    compare(&layer, 1, &none, RIG_UNIFORM, (struct comparison){.tracing = 1, .records = USUAL});
}

static void a_full_trace(void **state) {
    (void)state;
    rig_need_gpus(2);
    const int64_t tokens[] = {20, 30};
    const mmoe_layer_config layer = rig_layer(320, 128, 4, 2);
    compare(&layer, 2, tokens, RIG_UNIFORM, (struct comparison){.tracing = 3, .records = 2, .is_cut = true});
}

/* ---- Refusals ---- */

/* A traced backward that fails on this rank; the group stays whole, and every gradient as it was. */
static bool is_refused(struct rig_rank *rank, mmoe_layer *layer, struct rig_call *call, int64_t records,
                       mmoe_trace **trace, const char *sentence) {
    mmoe_status status = mmoe_backward_traced(layer, &call->backward, records, trace);
    RIG_TRY(rank, status == MMOE_INVALID_ARGUMENT && strstr(mmoe_last_error(), sentence),
            "%s: \"%s\", expected MMOE_INVALID_ARGUMENT: \"%s\"", mmoe_status_name(status), mmoe_last_error(),
            sentence);
    RIG_TRY(rank, trace == NULL || *trace == NULL, "a trace of a backward that failed");
    RIG_TRY(rank, mmoe_group_check(rank->group) == MMOE_OK, "the group broke: %s", mmoe_last_error());
    return true;
}

static void refusal_body(struct rig_rank *rank, void *context) {
    struct comparison *c = context;
    struct rig_placed placed;
    mmoe_layer *layer;
    mmoe_saved *saved;
    mmoe_trace *trace = NULL;
    RIG_EXPECT(rank, mmoe_backward_traced(NULL, NULL, 0, &trace) == MMOE_INVALID_ARGUMENT, "no layer is accepted");
    RIG_OK(rank, mmoe_layer_create(rank->group, &c->plain.layer, &layer));
    RIG_OK(rank, mmoe_saved_create(layer, c->options.keep, &saved));
    struct rig_call call = rig_call_make(rank, &c->plain, &c->options, saved, 0x7f);
    RIG_EXPECT(rank, rig_call_place(rank, &call, &placed), "not placed");
    const bool good = is_refused(rank, layer, &call, 0, NULL, "trace is NULL") &&
                      is_refused(rank, layer, &call, -1, &trace, "records is -1, expected 0 .. 1048576") &&
                      is_refused(rank, layer, &call, 1, &trace, "no forward") && rig_call_fetch(rank, &call, &placed) &&
                      rig_call_untouched(&call);
    RIG_EXPECT(rank, good, "%s", rank->failed ? rank->failure : "an operand was written");
    rig_placed_free(rank, &placed);
    rig_call_free(&call);
    mmoe_saved_destroy(&saved);
    mmoe_layer_destroy(&layer);
}

static void refusals(void **state) {
    (void)state;
    const int64_t tokens = 30;
    const mmoe_layer_config layer = rig_layer(64, 64, 2, 2);
    struct comparison c = {.plain = rig_batch_make(&layer, 1, &tokens, RIG_UNIFORM, 8)};
    struct rig_world rig = rig_world_for(&c.plain, 1, RIG_THREADS);
    rig_world_run(&rig, refusal_body, &c);
    rig_batch_free(&c.plain);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank),      cmocka_unit_test(some_gradients), cmocka_unit_test(two_ranks),
        cmocka_unit_test(nothing_to_do), cmocka_unit_test(a_full_trace),   cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
