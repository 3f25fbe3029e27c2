/* Calls over several GPUs that are queued behind one that fails before any host has heard of that: they are not taken
 * for the one that failed, and what failed first is told first. */
#include <pthread.h>
#include <string.h>

#include "cuda/state.h"
#include "gpus.h"
#include "group/call.h"

#define HIDDEN 64
#define INNER 64
#define TOP_K 2
#define TOKENS 9

static const struct rig_options keep_plan = {.keep = MMOE_KEEP_PLAN};

static const struct gpus_failure bad_forward = {
    "a bad id", MMOE_REFUSED, MMOE_INVALID_ARGUMENT,
    "rank {culprit} refused call {call}: ids at token 3, slot 1 is 1000, expected -1 or 0 ..",
    "ids at token 3, slot 1 is 1000, expected -1 or 0 .."};

struct queued {
    struct rig_batch bad, good;
};

/* Of one rank: a layer with a fixed capacity, whose first call fails on the device, and what it makes it with. */
struct own {
    mmoe_layer *layer;
    mmoe_saved *saved;
    struct rig_call bad;
    struct rig_placed placed;
};

static bool fail_first(struct rig_rank *rank, struct queued *queued, struct own *own) {
    RIG_TRY(rank, mmoe_layer_create(rank->group, &queued->bad.layer, &own->layer) == MMOE_OK, "%s", mmoe_last_error());
    RIG_TRY(rank, mmoe_saved_create(own->layer, keep_plan.keep, &own->saved) == MMOE_OK, "%s", mmoe_last_error());
    own->bad = rig_call_make(rank, &queued->bad, &keep_plan, own->saved, 0x7f);
    if (!rig_call_place(rank, &own->bad, &own->placed))
        return false;
    RIG_TRY(rank, mmoe_forward(own->layer, &own->bad.forward) == MMOE_OK, "told too early: %s", mmoe_last_error());
    return true;
}

static void own_free(struct rig_rank *rank, struct own *own) {
    rig_placed_free(rank, &own->placed);
    rig_call_free(&own->bad);
    mmoe_saved_destroy(&own->saved);
    mmoe_layer_destroy(&own->layer);
}

/* By the call with this status, when the host has heard of the failure by then, or when asked. */
static bool told_by_or_after(struct rig_rank *rank, mmoe_status status) {
    if (status == MMOE_OK)
        status = mmoe_group_check(rank->group);
    return gpus_told(rank, &bad_forward, 1, status);
}

static struct queued queued_make(int world, int64_t tokens, enum rig_routing routing, bool fixed) {
    mmoe_layer_config layer = rig_layer(HIDDEN, INNER, 2 * world, TOP_K), other = layer;
    int64_t all[MMOE_MAX_WORLD], few[MMOE_MAX_WORLD];
    for (int r = 0; r < world; r++) {
        few[r] = TOKENS;
        all[r] = tokens - r;
    }
    layer.capacity_policy = MMOE_CAPACITY_FIXED;
    layer.capacity = world * TOKENS * TOP_K;
    struct queued queued = {rig_batch_make(&layer, world, few, RIG_UNIFORM, 881),
                            rig_batch_make(fixed ? &layer : &other, world, all, routing, 882)};
    rig_batch_positive(&queued.good);
    queued.bad.ids[(rig_batch_first(&queued.bad, world - 1) + 3) * TOP_K + 1] = 1000;
    return queued;
}

static void run(struct queued *queued, rig_body body) {
    struct rig_world ranks = rig_world_for(&queued->good, 1, gpus_kind);
    rig_world_run(&ranks, body, queued);
    rig_compare(&queued->good, &keep_plan, RIG_BOUND);
    rig_batch_free(&queued->bad);
    rig_batch_free(&queued->good);
}

/* ---- A call of another layer, whose host waits for its plan ---- */

/* It has not the room that it needs, which it finds out when it hears of the failure before it. */
static void growing_body(struct rig_rank *rank, void *context) {
    struct queued *queued = context;
    struct own own;
    mmoe_layer *grows;
    mmoe_saved *saved;
    struct rig_placed placed;
    RIG_OK(rank, mmoe_layer_create(rank->group, &queued->good.layer, &grows));
    RIG_OK(rank, mmoe_saved_create(grows, keep_plan.keep, &saved));
    struct rig_call call = rig_call_make(rank, &queued->good, &keep_plan, saved, 0xff);
    if (!rig_call_place(rank, &call, &placed) || !fail_first(rank, queued, &own) ||
        !told_by_or_after(rank, mmoe_forward(grows, &call.forward)))
        return;
    RIG_EXPECT(rank, rig_call_fetch(rank, &call, &placed) && rig_call_take_forward(rank, &call, &queued->good),
               "not taken");
    RIG_OK(rank, mmoe_group_check(rank->group));
    RIG_EXPECT(rank, rig_call_backward(rank, grows, &call, &placed, &queued->good), "no backward");
    rig_placed_free(rank, &placed);
    rig_call_free(&call);
    own_free(rank, &own);
    mmoe_saved_destroy(&saved);
    mmoe_layer_destroy(&grows);
}

static void a_growing_call_behind_a_failure(void **state) {
    (void)state;
    for
        GPUS_EACH_WORLD(world) {
            struct queued queued = queued_make(world, rig_scaled("tokens", 700, 200), RIG_ONE_EXPERT, false);
            run(&queued, growing_body);
        }
}

/* ---- A call that fails of the first one ---- */

static const struct gpus_failure no_forward = {
    "the backward of a refused forward", MMOE_REFUSED, MMOE_REFUSED,
    "the forward that backward {call} belongs to failed, expected one that went well",
    "the forward that backward {call} belongs to failed, expected one that went well"};

static void backward_body(struct rig_rank *rank, void *context) {
    struct queued *queued = context;
    struct own own;
    if (!fail_first(rank, queued, &own))
        return;
    const mmoe_status status = mmoe_backward(own.layer, &own.bad.backward);
    RIG_EXPECT(rank, rig_call_fetch(rank, &own.bad, &own.placed) && gpus_gradients_are_spoilt(&own.bad),
               "gradients look good");
    if (status != MMOE_OK)
        RIG_EXPECT(rank,
                   gpus_told(rank, &bad_forward, 1, status) &&
                       gpus_told(rank, &no_forward, 2, mmoe_group_check(rank->group)),
                   "not told");
    else if (!told_by_or_after(rank, status) ||
             (rig_simulated() && !strstr(mmoe_last_error(), "; calls that failed after it: 1")))
        RIG_EXPECT(rank, false, "\"%s\"", mmoe_last_error());
    RIG_OK(rank, mmoe_group_check(rank->group)); /* once is enough */
    RIG_EXPECT(rank, rig_step(rank, own.layer, own.saved, &queued->good, &keep_plan, 0xff), "no good calls");
    own_free(rank, &own);
}

static void the_backward_of_a_failure(void **state) {
    (void)state;
    for
        GPUS_EACH_WORLD(world) {
            struct queued queued = queued_make(world, TOKENS, RIG_UNIFORM, true);
            run(&queued, backward_body);
        }
}

/* ---- A call that this rank refuses, with a failure still to be told ---- */

static void refusing_body(struct rig_rank *rank, void *context) {
    struct queued *queued = context;
    struct own own;
    if (!fail_first(rank, queued, &own))
        return;
    RIG_EXPECT(rank, rig_call_fetch(rank, &own.bad, &own.placed), "not fetched");
    mmoe_forward_args args = own.bad.forward;
    args.gate.stride[1] = HIDDEN + 1;
    const struct gpus_failure both = {
        "a refusal, and a failure before it", MMOE_UNSUPPORTED, MMOE_UNSUPPORTED,
        "multiple of 8 on a GPU; before it: rank {culprit} refused call 1: ids at token 3",
        "multiple of 8 on a GPU; before it: ids at token 3, slot 1 is 1000"};
    RIG_EXPECT(rank, gpus_told(rank, &both, 2, mmoe_forward(own.layer, &args)), "not told");
    RIG_OK(rank, mmoe_group_check(rank->group));
    RIG_EXPECT(rank, rig_step(rank, own.layer, own.saved, &queued->good, &keep_plan, 0xff), "no good calls");
    own_free(rank, &own);
}

static void a_refusal_behind_a_failure(void **state) {
    (void)state;
    for
        GPUS_EACH_WORLD(world) {
            struct queued queued = queued_make(world, TOKENS, RIG_UNIFORM, true);
            run(&queued, refusing_body);
        }
}

/* ---- A call that hears that a peer gives up, while gradients are added to ---- */

/* What the others know of their gradients then. */
enum sums { NOT_ADDED, MAY_BE_SPOILT, ARE_SPOILT, SUMS };

struct giving_up {
    struct queued queued;
    pthread_barrier_t barrier;
    enum sums sums;
};

static struct call_told *told_of(const struct rig_rank *rank) {
    return ((const struct mm_cuda_group *)rank->group->backend_state)->told;
}

/* As if the device had given up in the middle of adding, before the host hears of the peer. */
static void tell_spoilt(const struct rig_rank *rank) {
    struct call_told *told = told_of(rank);
    told->spoilt = 1;
    __atomic_store_n(&told->stopped.outcome, CALL_STOPPED, __ATOMIC_RELEASE);
}

static bool hears(struct rig_rank *rank, enum sums sums, mmoe_status status) {
    static const char *const texts[SUMS] = {"", "; dgate, dup and ddown may be spoilt",
                                            "; dgate, dup and ddown are spoilt"};
    RIG_TRY(rank, (status == MMOE_PEER_LOST || status == MMOE_BROKEN) && strstr(mmoe_last_error(), "no more calls"),
            "%s: %s", mmoe_status_name(status), mmoe_last_error());
    RIG_TRY(rank, strstr(mmoe_last_error(), texts[sums]) && (sums != NOT_ADDED || !strstr(mmoe_last_error(), "spoilt")),
            "\"%s\", expected \"%s\"", mmoe_last_error(), texts[sums]);
    return true;
}

static bool hears_twice(struct rig_rank *rank, enum sums sums, mmoe_layer *layer, const mmoe_forward_args *args) {
    if (sums == ARE_SPOILT)
        tell_spoilt(rank);
    else if (told_of(rank)->stopped.outcome == CALL_STOPPED)
        sums = NOT_ADDED; /* it has passed all the same: the device gave up, and knows that nothing was added */
    return hears(rank, sums, mmoe_forward(layer, args)) && hears(rank, sums, mmoe_forward(layer, args));
}

/* The culprit does not come to the backward, which the others have queued. */
static void giving_up_body(struct rig_rank *rank, void *context) {
    struct giving_up *giving_up = context;
    const struct rig_options options = {.keep = MMOE_KEEP_PLAN, .accumulate = giving_up->sums != NOT_ADDED};
    struct rig_batch *batch = &giving_up->queued.good;
    mmoe_layer *layer;
    mmoe_saved *saved;
    struct rig_placed placed;
    RIG_OK(rank, mmoe_layer_create(rank->group, &batch->layer, &layer));
    RIG_OK(rank, mmoe_saved_create(layer, options.keep, &saved));
    struct rig_call call = rig_call_make(rank, batch, &options, saved, 0xff);
    if (!rig_call_place(rank, &call, &placed) || !rig_call_forward(rank, layer, &call, &placed, batch))
        return;
    const mmoe_status status = gpus_is_culprit(rank) ? MMOE_OK : mmoe_backward(layer, &call.backward);
    pthread_barrier_wait(&giving_up->barrier);
    if (gpus_is_culprit(rank))
        mm_call_abort(rank->group, mm_fail(MMOE_SYSTEM, "no more calls"));
    pthread_barrier_wait(&giving_up->barrier);
    const bool heard = gpus_is_culprit(rank) || hears_twice(rank, giving_up->sums, layer, &call.forward);
    pthread_barrier_wait(&giving_up->barrier); /* simulated time passes fast when all ranks wait for GPUs */
    RIG_EXPECT(rank, status == MMOE_OK && heard, "the backward, or the forwards behind it: %s", mmoe_last_error());
    RIG_EXPECT(rank, rig_call_fetch(rank, &call, &placed), "not fetched");
    rig_placed_free(rank, &placed);
    rig_call_free(&call);
    mmoe_saved_destroy(&saved);
    mmoe_layer_destroy(&layer);
    mmoe_group_destroy(&rank->group);
}

static void a_peer_gives_up(void **state) {
    (void)state;
    for
        GPUS_EACH_WORLD(world)
    for (int sums = 0; sums < SUMS; sums++) {
        struct giving_up *giving_up = rig_shared(sizeof *giving_up);
        rig_barrier_make(&giving_up->barrier, world);
        giving_up->queued = queued_make(world, TOKENS, RIG_UNIFORM, true);
        giving_up->sums = (enum sums)sums;
        struct rig_world ranks = rig_world_for(&giving_up->queued.good, 1, gpus_kind);
        rig_world_run(&ranks, giving_up_body, giving_up);
        rig_batch_free(&giving_up->queued.bad);
        rig_batch_free(&giving_up->queued.good);
        pthread_barrier_destroy(&giving_up->barrier);
        rig_shared_free(giving_up);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_growing_call_behind_a_failure),
        cmocka_unit_test(the_backward_of_a_failure),
        cmocka_unit_test(a_refusal_behind_a_failure),
        cmocka_unit_test(a_peer_gives_up),
    };
    return gpus_main(2, GPUS_TESTS(tests), GPUS_TESTS(tests));
}
