/* Ranks of several GPUs that are late, never come, die or stop: the others name them in time, have nothing that looks
 * like a result, fail at once from then on, and can end their group and make another one. */
#include <signal.h>
#include <unistd.h>

#include "base/clock.h"
#include "loss.h"

/* ---- Late ---- */

#define LATE_MICROSECONDS 300000

/* B34: a wait that is over too early would take less. */
static void late_body(struct rig_rank *rank, void *context) {
    struct loss *loss = context;
    const bool late = rank->rank == victim_of(rank->world);
    struct member member;
    struct rig_call call;
    struct rig_placed placed;
    if (!member_join(rank, loss, &member))
        return;
    good_steps(rank, &member, loss, 1);
    call = rig_call_make(rank, &loss->batch, loss->options, member.saved, 0xff);
    if (rank->failed || !rig_call_place(rank, &call, &placed))
        return;
    pthread_barrier_wait(&loss->met);
    const double begun = mm_now();
    if (late)
        usleep(LATE_MICROSECONDS);
    if (!rig_call_forward(rank, member.layer, &call, &placed, &loss->batch))
        return;
    RIG_EXPECT(rank, mm_now() - begun >= LATE_MICROSECONDS * 1e-6, "over after %.3f s", mm_now() - begun);
    if (late)
        usleep(LATE_MICROSECONDS);
    if (!rig_call_backward(rank, member.layer, &call, &placed, &loss->batch))
        return;
    RIG_EXPECT(rank, mm_now() - begun >= 2 * LATE_MICROSECONDS * 1e-6, "over after %.3f s", mm_now() - begun);
    rig_placed_free(rank, &placed);
    rig_call_free(&call);
    member_leave(&member);
}

static void b34_a_late_rank_is_awaited(void **state) {
    (void)state;
    for
        GPUS_EACH_WORLD(world)
    for (int policy = MMOE_CAPACITY_GROW; policy <= MMOE_CAPACITY_FIXED; policy++) {
        struct loss *loss = loss_make(world, BACKWARD, (mmoe_capacity_policy)policy, LOSS_TOKENS);
        struct rig_world ranks = rig_world_for(&loss->batch, 1, gpus_kind);
        rig_world_run(&ranks, late_body, loss);
        rig_compare(&loss->batch, loss->options, RIG_BOUND);
        loss_free(loss);
    }
}

/* ---- Never comes ---- */

/* The others name it; when it comes after all it has their sentence at once. */
static void absent_body(struct rig_rank *rank, void *context) {
    struct loss *loss = context;
    const bool absent = rank->rank == victim_of(rank->world);
    const bool waits = (loss->kind == FORWARD && loss->policy == MMOE_CAPACITY_GROW) || loss->report;
    struct attempt attempt;
    struct member member;
    if (!member_join(rank, loss, &member))
        return;
    good_steps(rank, &member, loss, 1);
    pthread_barrier_wait(&loss->met);
    if (!absent && !rank->failed && attempt_make(rank, &member, loss, &attempt) &&
        is_first_failure(rank, loss, &attempt, waits, "awaiting ready"))
        is_broken(rank, &member, loss);
    pthread_barrier_wait(&loss->named);
    if (absent && attempt_make(rank, &member, loss, &attempt)) {
        RIG_EXPECT(rank, !took_longer(attempt.seconds, LOSS_AT_ONCE), "an absent rank heard of it after %.1f s",
                   attempt.seconds);
        if (is_first_failure(rank, loss, &attempt, true, "awaiting ready"))
            is_broken(rank, &member, loss);
    }
    if (!rank->failed)
        ends(rank, &member, LOSS_AT_ONCE);
}

static void a_rank_never_comes(void **state) {
    (void)state;
    static const struct {
        enum lost_in kind;
        mmoe_capacity_policy policy;
        bool report;
    } forms[] = {{FORWARD, MMOE_CAPACITY_GROW, false},  {FORWARD, MMOE_CAPACITY_FIXED, true},
                 {FORWARD, MMOE_CAPACITY_FIXED, false}, {BACKWARD, MMOE_CAPACITY_GROW, false},
                 {BACKWARD, MMOE_CAPACITY_FIXED, true}, {BACKWARD, MMOE_CAPACITY_FIXED, false}};
    const int stride = rig_scaled("every n-th form", 1, 2);
    for
        GPUS_EACH_WORLD(world)
    for (int form = 0; form < COUNT(forms); form += stride) {
        struct loss *loss = loss_make(world, forms[form].kind, forms[form].policy, LOSS_TOKENS);
        loss->report = forms[form].report;
        loss_run(loss, absent_body, RIG_THREADS);
        another_group_works(loss);
        loss_free(loss);
    }
}

/* Its group is destroyed while a call waits for a rank that never comes. */
static void destroyed_body(struct rig_rank *rank, void *context) {
    struct loss *loss = context;
    struct attempt attempt;
    struct member member;
    if (!member_join(rank, loss, &member))
        return;
    good_steps(rank, &member, loss, 1);
    pthread_barrier_wait(&loss->met);
    if (rank->rank != victim_of(rank->world) && !attempt_make(rank, &member, loss, &attempt))
        return;
    ends(rank, &member, LOSS_IN_TIME);
}

static void a_group_is_destroyed_while_it_waits(void **state) {
    (void)state;
    for
        GPUS_EACH_WORLD(world)
    for (int kind = rig_small() ? BACKWARD : FORWARD; kind < KINDS; kind++) {
        struct loss *loss = loss_make(world, (enum lost_in)kind, MMOE_CAPACITY_FIXED, LOSS_TOKENS);
        loss_run(loss, destroyed_body, RIG_THREADS);
        another_group_works(loss);
        loss_free(loss);
    }
}

/* ---- Dies, or stops: ranks that are processes ---- */

#define CALLS 200 /* in one of which the loss shows */

/* In a call: with a fixed capacity the host is back while the GPU works. */
static void be_lost(struct rig_rank *rank, const struct member *member, const struct loss *loss) {
    struct attempt attempt;
    for (int i = 0; i < 10 && loss->inside; i++)
        if (!attempt_make(rank, member, loss, &attempt))
            return;
    raise(loss->signal);
    pause();
}

/* A call may end well although the rank was lost in it: then all that was needed of it had come. */
static void miss(struct rig_rank *rank, struct member *member, const struct loss *loss) {
    struct attempt attempt = {.status = MMOE_OK};
    for (int i = 0; i < CALLS && attempt.status == MMOE_OK; i++) {
        if (!attempt_make(rank, member, loss, &attempt))
            return;
        if (attempt.status == MMOE_OK && !attempt_fetch(rank, &attempt))
            return;
        if (attempt.status == MMOE_OK)
            rig_call_free(&attempt.call);
    }
    if (is_first_failure(rank, loss, &attempt, true, "") && is_broken(rank, member, loss))
        ends(rank, member, LOSS_AT_ONCE);
}

/* The rank that is left makes a group of its own. */
static void go_on_alone(struct rig_rank *rank, const struct loss *loss) {
    struct rig_batch alone = loss->batch;
    const int64_t tokens = loss->batch.tokens[rank->rank];
    mmoe_group_config config = rig_world_for(&loss->batch, 1, RIG_THREADS).config;
    struct member member;
    struct rig_rank only = {.rank = 0, .world = 1};
    rig_batch_split(&alone, 1, &tokens);
    RIG_OK(rank, mmoe_group_create_threads(&config, 1, &only.group));
    const bool good =
        member_join(&only, loss, &member) && rig_step(&only, member.layer, member.saved, &alone, loss->options, 0xff);
    RIG_EXPECT(rank, good, "a new group does not work: %s", only.failure);
    member_leave(&member);
    mmoe_group_destroy(&only.group);
}

static void lost_body(struct rig_rank *rank, void *context) {
    struct loss *loss = context, own = *loss;
    struct member member;
    if (!member_join(rank, loss, &member))
        return;
    own.report = rank->rank != victim_of(rank->world);
    good_steps(rank, &member, loss, 2);
    pthread_barrier_wait(&loss->met);
    if (rank->rank == victim_of(rank->world))
        be_lost(rank, &member, &own);
    else
        miss(rank, &member, &own);
    if (!rank->failed)
        go_on_alone(rank, &own);
}

static void lose_process(int signal, bool inside) {
    for
        GPUS_EACH_WORLD(world)
    for (int kind = FORWARD; kind < KINDS; kind++)
        for (int adding = 0; adding <= kind; adding++) {
            struct loss *loss = loss_make(world, (enum lost_in)kind, MMOE_CAPACITY_FIXED, 4000);
            loss->options = adding ? &loss_added : &loss_overwritten;
            loss->signal = signal;
            loss->inside = inside;
            loss_run(loss, lost_body, RIG_PROCESSES);
            loss_free(loss);
        }
}

static void b36_a_rank_dies_between_calls(void **state) {
    (void)state;
    lose_process(SIGKILL, false);
}

static void b36_a_rank_dies_in_a_call(void **state) {
    (void)state;
    lose_process(SIGKILL, true);
}

static void b36_a_rank_stops_between_calls(void **state) {
    (void)state;
    lose_process(SIGSTOP, false);
}

static void b36_a_rank_stops_in_a_call(void **state) {
    (void)state;
    lose_process(SIGSTOP, true);
}

int main(void) {
    const struct CMUnitTest of_processes[] = {
        cmocka_unit_test(b34_a_late_rank_is_awaited), cmocka_unit_test(b36_a_rank_dies_between_calls),
        cmocka_unit_test(b36_a_rank_dies_in_a_call),  cmocka_unit_test(b36_a_rank_stops_between_calls),
        cmocka_unit_test(b36_a_rank_stops_in_a_call),
    };
    const struct CMUnitTest of_threads[] = {
        cmocka_unit_test(b34_a_late_rank_is_awaited),
        cmocka_unit_test(a_rank_never_comes),
        cmocka_unit_test(a_group_is_destroyed_while_it_waits),
    };
    return gpus_main(2, GPUS_TESTS(of_processes), GPUS_TESTS(of_threads));
}
