/* B36: a rank killed or stopped at each step of a forward and of a backward. The others return an error that names it,
 * in time, with nothing in their outputs that looks good; the next run works. */
#include "proof.h"

#include <signal.h>
#include <string.h>

#include "base/clock.h"

#define WORLD 3
#define VICTIM 1
#define EXPERTS 6
#define TOP_K 3
#define TOKENS 4
#define LIMIT_MS 1000

/* Calls of the group: a forward and a backward that work, then the pair in which the rank is lost. */
enum target { FORWARD_CALL = 3, BACKWARD_CALL = 4 };

struct loss {
    enum mm_step step;
    enum target target;
    int signal;
    bool spared; /* nobody awaits anything of the lost rank, so that it is missed at the begin of the next call */
    int begun;   /* calls that this process has begun */
    struct rig_batch *batch;
};

static mmoe_status lose(void *context, int rank, enum mm_step step) {
    struct loss *loss = context;
    loss->begun += step == MM_STEP_BEGIN;
    if (rank == VICTIM && step == loss->step && loss->begun == (int)loss->target)
        raise(loss->signal);
    return MMOE_OK;
}

/* Whether the others can complete the call in which the rank is lost: all they need of it has arrived. */
static bool lost_after_arrivals(const struct loss *loss) {
    return loss->spared || loss->step == MM_STEP_AWAIT || loss->step == MM_STEP_END;
}

static bool names_victim(struct rig_rank *rank, const struct loss *loss, mmoe_status status) {
    RIG_TRY(rank, status == MMOE_PEER_LOST || (status == MMOE_TIMEOUT && loss->signal == SIGSTOP), "status is %s: %s",
            mmoe_status_name(status), mmoe_last_error());
    RIG_TRY(rank, strstr(mmoe_last_error(), "rank 1"), "the lost rank is not named: %s", mmoe_last_error());
    RIG_TRY(rank, !loss->spared || strstr(mmoe_last_error(), "awaiting left"), "lost elsewhere: %s", mmoe_last_error());
    RIG_TRY(rank, mmoe_group_check(rank->group) == status, "the group is not broken by the first cause");
    return true;
}

static bool intact(const struct rig_call *call, enum rig_operand operand) {
    return rig_tensor_intact(&call->tensor[operand]);
}

/* What the failed call writes is NaN; what it adds to is as it was. */
static bool outputs_are_spoilt(struct rig_rank *rank, const struct rig_call *call, bool forward) {
    for (int operand = RIG_X; operand < RIG_OPERANDS; operand++) {
        bool written = forward ? operand == RIG_Y
                               : operand == RIG_DX || operand == RIG_DWEIGHTS ||
                                     (operand >= RIG_DGATE && !call->options->accumulate);
        if (written)
            RIG_TRY(rank, rig_operand_is_nan(call, operand), "operand %d of a failed call is not NaN", operand);
        else if (operand != RIG_Y || forward)
            RIG_TRY(rank, intact(call, operand), "operand %d changed in a failed call", operand);
    }
    return true;
}

/* Later calls fail at once with the first cause and write nothing. */
static bool later_call_is_refused(struct rig_rank *rank, mmoe_layer *layer, const struct rig_batch *batch,
                                  const struct rig_options *options) {
    struct rig_call call = rig_call_make(rank, batch, options, NULL, 0xff);
    double started = mm_now();
    mmoe_status status = mmoe_forward(layer, &call.forward);
    RIG_TRY(rank, status == MMOE_BROKEN && strstr(mmoe_last_error(), "rank 1"), "a later call: %s: %s",
            mmoe_status_name(status), mmoe_last_error());
    RIG_TRY(rank, mm_now() - started < 0.5, "a later call took %.1f s", mm_now() - started);
    RIG_TRY(rank, rig_call_untouched(&call), "a later call wrote");
    rig_call_free(&call);
    return true;
}

/* One call in which the rank is, or has been, lost. `fails`: whether it has to fail here. */
static bool call_with_loss(struct rig_rank *rank, struct loss *loss, mmoe_layer *layer, struct rig_call *call,
                           bool forward, bool fails, bool *failed) {
    double started = mm_now();
    mmoe_status status = forward ? mmoe_forward(layer, &call->forward) : mmoe_backward(layer, &call->backward);
    double seconds = mm_now() - started;
    *failed = status != MMOE_OK;
    RIG_TRY(rank, *failed || !fails, "the call succeeded without a rank that it needs");
    if (!*failed)
        return forward ? rig_call_take_forward(rank, call, loss->batch)
                       : rig_call_take_backward(rank, call, loss->batch);
    RIG_TRY(rank, seconds < LIMIT_MS / 1e3 + 2, "the failure took %.1f s", seconds);
    return names_victim(rank, loss, status) && outputs_are_spoilt(rank, call, forward);
}

static void loss_body(struct rig_rank *rank, void *context) {
    struct loss *loss = context;
    struct rig_options options = {.accumulate = loss->signal == SIGKILL};
    mmoe_layer *layer;
    mmoe_saved *saved;
    RIG_OK(rank, mmoe_layer_create(rank->group, &loss->batch->layer, &layer));
    RIG_OK(rank, mmoe_saved_create(layer, MMOE_KEEP_PLAN, &saved));
    if (!rig_step(rank, layer, saved, loss->batch, &options, 0xff))
        return;
    struct rig_call call = rig_call_make(rank, loss->batch, &options, saved, 0x7f);
    bool failed = false;
    for (int n = FORWARD_CALL; n <= BACKWARD_CALL + 1 && !failed; n++) {
        bool forward = n != BACKWARD_CALL;
        bool fails = n > (int)loss->target || (n == (int)loss->target && !lost_after_arrivals(loss));
        if (n > BACKWARD_CALL) { /* a further forward, into a fresh y */
            rig_call_free(&call);
            call = rig_call_make(rank, loss->batch, &options, saved, 0x7f);
        }
        if (!call_with_loss(rank, loss, layer, &call, forward, fails, &failed))
            return;
        RIG_EXPECT(rank, !failed || n >= (int)loss->target, "call %d failed before the rank was lost", n);
    }
    if (!later_call_is_refused(rank, layer, loss->batch, &options))
        return;
    rig_call_free(&call);
    mmoe_saved_destroy(&saved);
    mmoe_layer_destroy(&layer);
}

/* Every token goes to an expert of each rank, so that all wait for all; or to any but the victim's. */
static struct rig_batch batch_for(bool spared) {
    static const int64_t others[] = {0, 1, 4, 5};
    mmoe_layer_config layer = rig_layer(8, 6, EXPERTS, TOP_K);
    const int64_t tokens[WORLD] = {TOKENS, TOKENS, TOKENS};
    int64_t ids[WORLD * TOKENS * TOP_K];
    for (int64_t s = 0; s < WORLD * TOKENS * TOP_K; s++)
        ids[s] = spared ? others[s % 4] : 2 * (s % TOP_K) + s / TOP_K % 2;
    return batch_with_ids(&layer, WORLD, tokens, ids, 701);
}

static void lose_rank(enum mm_step step, enum target target, int signal, bool spared) {
    struct rig_batch batch = batch_for(spared);
    struct rig_options options = {0};
    struct loss loss = {.step = step, .target = target, .signal = signal, .spared = spared, .batch = &batch};
    struct rig_world world = rig_world_for(&batch, 1, RIG_PROCESSES);
    print_message("%s at: %s, in a %s\n", signal == SIGKILL ? "killed" : "stopped", mm_step_name(step),
                  target == FORWARD_CALL ? "forward" : "backward");
    struct rig_world losing = world;
    losing.config.arrive_timeout_ms = losing.config.progress_timeout_ms = LIMIT_MS;
    losing.hook = (struct mm_hook){lose, &loss};
    losing.victim = VICTIM;
    rig_world_run(&losing, loss_body, &loss);
    rig_run(&world, &batch, 1, &options);
    rig_compare(&batch, &options, RIG_BOUND);
    rig_batch_free(&batch);
}

static void lose_rank_at_each_step(enum target target, int signal) {
    int stride = rig_scaled("every n-th step at which a rank is lost", 1, 4);
    for (int step = MM_STEP_BEGIN; step <= MM_STEP_END; step += stride)
        lose_rank((enum mm_step)step, target, signal, false);
}

static void b36_rank_killed_in_forward(void **state) {
    (void)state;
    lose_rank_at_each_step(FORWARD_CALL, SIGKILL);
}

static void b36_rank_killed_in_backward(void **state) {
    (void)state;
    lose_rank_at_each_step(BACKWARD_CALL, SIGKILL);
}

static void b36_rank_stopped_in_forward(void **state) {
    (void)state;
    lose_rank_at_each_step(FORWARD_CALL, SIGSTOP);
}

static void b36_rank_stopped_in_backward(void **state) {
    (void)state;
    lose_rank_at_each_step(BACKWARD_CALL, SIGSTOP);
}

/* Before it has left its peers' memory: they end that call well and then find no way to begin the next one. */
static void rank_missed_at_the_next_begin(void **state) {
    (void)state;
    const int signals[] = {SIGKILL, SIGSTOP};
    for (int i = 0; i < 2; i++) {
        lose_rank(MM_STEP_LEFT, FORWARD_CALL, signals[i], true);
        lose_rank(MM_STEP_LEFT, BACKWARD_CALL, signals[i], true);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b36_rank_killed_in_forward),    cmocka_unit_test(b36_rank_killed_in_backward),
        cmocka_unit_test(b36_rank_stopped_in_forward),   cmocka_unit_test(b36_rank_stopped_in_backward),
        cmocka_unit_test(rank_missed_at_the_next_begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
