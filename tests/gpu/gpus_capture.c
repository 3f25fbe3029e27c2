/* Calls over several GPUs, and over one, that can't be captured: each is refused, without a peer that waits, what was
 * captured does nothing, and the call works when it is made. */
#include <string.h>

#include "fixture.h"
#include "gpus.h"

#define HIDDEN 64
#define TOKENS 13
#define TOP_K 2

struct refused {
    struct rig_batch batch;
    struct rig_options options;
    void (*forward)(mmoe_forward_args *args);   /* makes it what can't be captured; */
    void (*backward)(mmoe_backward_args *args); /* or this one of the two */
    mmoe_status status;
    const char *sentence;
};

static mmoe_status refuse(const struct refused *refused, const struct fixture *fixture) {
    mmoe_forward_args forward = fixture->call.forward;
    mmoe_backward_args backward = fixture->call.backward;
    if (refused->forward != NULL) {
        refused->forward(&forward);
        return mmoe_forward(fixture->layer, &forward);
    }
    refused->backward(&backward);
    return mmoe_backward(fixture->layer, &backward);
}

/* The forward of a backward that is refused is made before. */
static void refused_body(struct rig_rank *rank, void *context) {
    struct refused *refused = context;
    struct fixture fixture;
    if (!fixture_make(rank, &refused->batch, &refused->options, &fixture))
        return;
    if (refused->backward != NULL) {
        RIG_OK(rank, mmoe_forward(fixture.layer, &fixture.call.forward));
        if (!stream_await(rank, fixture.stream) || !fixture_put(rank, &fixture, &fixture.call))
            return;
    }
    if (!capture_begin(rank, fixture.stream))
        return;
    const mmoe_status status = refuse(refused, &fixture);
    RIG_EXPECT(rank, status == refused->status && strstr(mmoe_last_error(), refused->sentence), "%s: %s",
               mmoe_status_name(status), mmoe_last_error());
    if (!capture_end(rank, fixture.stream, &fixture.both) || !graph_launch(rank, fixture.both, fixture.stream) ||
        !stream_await(rank, fixture.stream))
        return;
    RIG_EXPECT(rank, rig_call_fetch(rank, &fixture.call, &fixture.placed) && rig_call_untouched(&fixture.call),
               "what was refused wrote");
    if (!fixture_step(rank, &fixture, &refused->batch, REPLAY_NOTHING, 0xff))
        return;
    fixture_free(rank, &fixture);
}

/* ---- What is refused ---- */

static mmoe_report report;

static void as_it_is(mmoe_forward_args *args) {
    (void)args;
}

static void want_report(mmoe_forward_args *args) {
    args->report = &report;
}

static void odd_rows(mmoe_forward_args *args) {
    args->up.stride[1] = HIDDEN + 1;
}

static void no_tokens(mmoe_forward_args *args) {
    args->x.dims = 3;
}

static void backward_as_it_is(mmoe_backward_args *args) {
    (void)args;
}

static void want_report_of_backward(mmoe_backward_args *args) {
    args->report = &report;
}

static void odd_rows_in_backward(mmoe_backward_args *args) {
    args->up.stride[1] = HIDDEN + 1;
}

static void no_gradient(mmoe_backward_args *args) {
    args->dy.dims = 3;
}

/* Of weights, or of gradients of weights. */
enum pointers { NO_POINTERS, WEIGHT_POINTERS, GRADIENT_POINTERS };

static const struct {
    bool grows;
    enum pointers pointers;
    void (*forward)(mmoe_forward_args *args);
    void (*backward)(mmoe_backward_args *args);
    mmoe_status status;
    const char *sentence;
} all[] = {
    {true, NO_POINTERS, as_it_is, NULL, MMOE_UNSUPPORTED, "expected one that runs, or a layer of fixed"},
    {true, NO_POINTERS, NULL, backward_as_it_is, MMOE_UNSUPPORTED, "expected one that runs, or a layer of fixed"},
    {false, NO_POINTERS, want_report, NULL, MMOE_INVALID_ARGUMENT, "report is wanted of a call that is captured"},
    {false, NO_POINTERS, NULL, want_report_of_backward, MMOE_INVALID_ARGUMENT,
     "report is wanted of a call that is captured"},
    {false, WEIGHT_POINTERS, as_it_is, NULL, MMOE_UNSUPPORTED,
     "gate is given by a pointer an expert in a stream that is being capture"},
    {false, GRADIENT_POINTERS, NULL, backward_as_it_is, MMOE_UNSUPPORTED,
     "dgate is given by a pointer an expert in a stream that is being capture"},
    {false, NO_POINTERS, odd_rows, NULL, MMOE_UNSUPPORTED, "up has stride[1] 65"},
    {false, NO_POINTERS, NULL, odd_rows_in_backward, MMOE_UNSUPPORTED, "up has stride[1] 65"},
    {false, NO_POINTERS, no_tokens, NULL, MMOE_INVALID_ARGUMENT, "x has dims 3"},
    {false, NO_POINTERS, NULL, no_gradient, MMOE_INVALID_ARGUMENT, "dy has dims 3"},
};

static struct refused refused_make(int which, int world) {
    int64_t tokens[MMOE_MAX_WORLD];
    mmoe_layer_config layer = rig_layer(HIDDEN, HIDDEN, 2 * world, TOP_K);
    layer.capacity_policy = all[which].grows ? MMOE_CAPACITY_GROW : MMOE_CAPACITY_FIXED;
    layer.capacity = all[which].grows ? 0 : world * TOKENS * TOP_K;
    gpus_uneven_tokens(world, TOKENS, tokens);
    struct refused refused = {rig_batch_make(&layer, world, tokens, RIG_UNIFORM, 941),
                              {.keep = (mmoe_keep)(which / 2 % 2)},
                              all[which].forward,
                              all[which].backward,
                              all[which].status,
                              all[which].sentence};
    const int first = all[which].pointers == WEIGHT_POINTERS ? RIG_GATE : RIG_DGATE;
    for (int operand = first; operand < first + 3 && all[which].pointers != NO_POINTERS; operand++)
        refused.options.layout[operand] = RIG_SCATTERED;
    return refused;
}

/* At reduced size on one GPU and on several in turn. */
static void what_cannot_be_captured_is_refused(void **state) {
    (void)state;
    const int stride = rig_scaled("every n-th refusal", 1, 2);
    for (int world = 1; world <= gpus_most; world = world == 1 && gpus_most > 1 ? gpus_least() : 2 * world)
        for (int i = 0; i < COUNT(all); i++) {
            if ((i + i / 2 + world) % stride != 0)
                continue;
            struct refused refused = refused_make(i, world);
            struct rig_world ranks = rig_world_for(&refused.batch, 1, gpus_kind);
            rig_world_run(&ranks, refused_body, &refused);
            rig_compare(&refused.batch, &refused.options, RIG_BOUND);
            rig_batch_free(&refused.batch);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_cannot_be_captured_is_refused)};
    return gpus_main(1, GPUS_TESTS(tests), GPUS_TESTS(tests));
}
