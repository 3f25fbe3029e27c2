/* Ranks of several GPUs that are late, never come, give up, die or stop: the others name them in time, have nothing
 * that looks like a result, fail at once from then on, and can end their group and make another one. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "gpus.h"

#define LIMIT_MS 1500
#define IN_TIME (LIMIT_MS * 1e-3 + 2) /* seconds in which a lost rank is to be named */
#define AT_ONCE 1.0                   /* seconds, for what waits for nobody; of a machine that may be busy */
#define HIDDEN 512
#define TOP_K 2
#define TOKENS 20

/* Simulated time has nothing to do with that of the clock. */
static bool took_longer(double seconds, double than) {
    return seconds > than && !rig_simulated();
}

static const struct rig_options forward_only = {.forward_only = true};

/* The last rank is the one that is lost. */
static int victim_of(int world) {
    return world - 1;
}

/* What the ranks, which may be processes, share. */
struct loss {
    pthread_barrier_t met, named;
    struct rig_batch batch;
    mmoe_capacity_policy policy;
    bool report; /* calls are given one: they wait for their end */
    int signal;  /* what becomes of the victim, */
    bool inside; /* in a call or between two */
};

static void make_barrier(pthread_barrier_t *barrier, int world) {
    pthread_barrierattr_t attributes;
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(barrier, &attributes, (unsigned)world);
    pthread_barrierattr_destroy(&attributes);
}

static struct loss *loss_make(int world, mmoe_capacity_policy policy, int64_t most) {
    struct loss *loss = rig_shared(sizeof *loss);
    int64_t tokens[MMOE_MAX_WORLD];
    mmoe_layer_config layer = rig_layer(HIDDEN, 64, 2 * world, TOP_K);
    layer.capacity_policy = policy;
    layer.capacity = policy == MMOE_CAPACITY_FIXED ? world * most * TOP_K : 0;
    for (int r = 0; r < world; r++)
        tokens[r] = most;
    loss->batch = rig_batch_make(&layer, world, tokens, RIG_UNIFORM, 811);
    loss->policy = policy;
    make_barrier(&loss->met, world);
    make_barrier(&loss->named, world);
    return loss;
}

static void loss_free(struct loss *loss) {
    pthread_barrier_destroy(&loss->met);
    pthread_barrier_destroy(&loss->named);
    rig_batch_free(&loss->batch);
    rig_shared_free(loss);
}

static void run(struct loss *loss, rig_body body, enum rig_kind kind) {
    struct rig_world world = rig_world_for(&loss->batch, 1, kind);
    world.config.arrive_timeout_ms = world.config.progress_timeout_ms = LIMIT_MS;
    world.seconds = 100;
    if (kind == RIG_PROCESSES)
        world.victim = victim_of(world.world);
    rig_world_run(&world, body, loss);
}

/* ---- One call, and what it must be ---- */

struct attempt {
    struct rig_call call;
    struct rig_placed placed;
    mmoe_report report;
    mmoe_status status;
    double seconds;
};

static bool attempt_place(struct rig_rank *rank, const struct loss *loss, struct attempt *attempt) {
    attempt->call = rig_call_make(rank, &loss->batch, &forward_only, NULL, 0x7f);
    attempt->call.forward.report = loss->report ? &attempt->report : NULL;
    return rig_call_place(rank, &attempt->call, &attempt->placed);
}

static void attempt_begin(mmoe_layer *layer, struct attempt *attempt) {
    const double begun = mm_now();
    attempt->status = mmoe_forward(layer, &attempt->call.forward);
    attempt->seconds = mm_now() - begun;
}

static bool attempt_make(struct rig_rank *rank, mmoe_layer *layer, const struct loss *loss, struct attempt *attempt) {
    if (!attempt_place(rank, loss, attempt))
        return false;
    attempt_begin(layer, attempt);
    return true;
}

/* After it the call's memory is gone. */
static bool attempt_fetch(struct rig_rank *rank, struct attempt *attempt) {
    const bool fetched = rig_call_fetch(rank, &attempt->call, &attempt->placed);
    rig_placed_free(rank, &attempt->placed);
    return fetched;
}

static bool names_victim(struct rig_rank *rank, mmoe_status status, const char *step) {
    const char *text = mmoe_last_error();
    char name[32];
    snprintf(name, sizeof name, "rank %d", victim_of(rank->world));
    RIG_TRY(rank, status == MMOE_TIMEOUT || status == MMOE_PEER_LOST, "%s: %s", mmoe_status_name(status), text);
    RIG_TRY(rank, strstr(text, name) && strstr(text, step), "\"%s\" does not name %s and \"%s\"", text, name, step);
    return true;
}

/* The first failure: told in time, by the call or, when it doesn't wait, by whoever asks after it; y is NaN. */
static bool is_first_failure(struct rig_rank *rank, struct attempt *attempt, bool waits, const char *step) {
    const double begun = mm_now();
    RIG_TRY(rank, waits || attempt->status == MMOE_OK, "%s", mmoe_last_error());
    if (waits && !names_victim(rank, attempt->status, step))
        return false;
    if (!attempt_fetch(rank, attempt))
        return false;
    const double seconds = attempt->seconds + mm_now() - begun;
    RIG_TRY(rank, !took_longer(seconds, IN_TIME), "told after %.1f s", seconds);
    RIG_TRY(rank, rig_operand_is_nan(&attempt->call, RIG_Y), "y of a failed call is not NaN");
    if (!names_victim(rank, mmoe_group_check(rank->group), step))
        return false;
    rig_call_free(&attempt->call);
    return true;
}

/* Every call after that fails at once with the same sentence and writes nothing. */
static bool is_broken(struct rig_rank *rank, mmoe_layer *layer, const struct loss *loss) {
    struct attempt attempt;
    char text[600];
    snprintf(text, sizeof text, "%s", mmoe_last_error());
    if (!attempt_make(rank, layer, loss, &attempt))
        return false;
    RIG_TRY(rank, attempt.status == MMOE_BROKEN && strcmp(mmoe_last_error(), text) == 0, "%s: \"%s\", expected \"%s\"",
            mmoe_status_name(attempt.status), mmoe_last_error(), text);
    RIG_TRY(rank, !took_longer(attempt.seconds, AT_ONCE), "a call of a broken group took %.1f s", attempt.seconds);
    RIG_TRY(rank, attempt_fetch(rank, &attempt) && rig_call_untouched(&attempt.call), "a broken group's call wrote");
    rig_call_free(&attempt.call);
    return true;
}

static bool ends(struct rig_rank *rank, mmoe_layer **layer, double seconds) {
    const double begun = mm_now();
    mmoe_layer_destroy(layer);
    mmoe_group_destroy(&rank->group);
    RIG_TRY(rank, !took_longer(mm_now() - begun, seconds), "destroying the group took %.1f s", mm_now() - begun);
    return true;
}

static void good_calls(struct rig_rank *rank, mmoe_layer *layer, struct loss *loss, int calls) {
    for (int i = 0; i < calls && !rank->failed; i++)
        rig_step(rank, layer, NULL, &loss->batch, &forward_only, 0xff);
}

/* The machine and its GPUs are as good as before. */
static void another_group_works(const struct loss *before) {
    struct loss *loss = loss_make(before->batch.world, before->policy, TOKENS);
    struct rig_world world = rig_world_for(&loss->batch, 1, gpus_kind);
    rig_run(&world, &loss->batch, 1, &forward_only);
    rig_compare(&loss->batch, &forward_only, RIG_BOUND);
    loss_free(loss);
}

/* ---- Late ---- */

#define LATE_MICROSECONDS 300000

/* B34: a wait that is over too early would take less. */
static void late_body(struct rig_rank *rank, void *context) {
    struct loss *loss = context;
    mmoe_layer *layer;
    RIG_OK(rank, mmoe_layer_create(rank->group, &loss->batch.layer, &layer));
    good_calls(rank, layer, loss, 1);
    pthread_barrier_wait(&loss->met);
    const double begun = mm_now();
    if (rank->rank == victim_of(rank->world))
        usleep(LATE_MICROSECONDS);
    good_calls(rank, layer, loss, 1);
    RIG_EXPECT(rank, mm_now() - begun >= LATE_MICROSECONDS * 1e-6, "over after %.3f s", mm_now() - begun);
    good_calls(rank, layer, loss, 1);
    mmoe_layer_destroy(&layer);
}

static void b34_a_late_rank_is_awaited(void **state) {
    (void)state;
    for (int world = gpus_least(); world <= gpus_most; world *= 2)
        for (int policy = MMOE_CAPACITY_GROW; policy <= MMOE_CAPACITY_FIXED; policy++) {
            struct loss *loss = loss_make(world, (mmoe_capacity_policy)policy, TOKENS);
            struct rig_world ranks = rig_world_for(&loss->batch, 1, gpus_kind);
            rig_world_run(&ranks, late_body, loss);
            rig_compare(&loss->batch, &forward_only, RIG_BOUND);
            loss_free(loss);
        }
}

/* ---- Never comes ---- */

/* The others name it; when it comes after all it has their sentence at once. */
static void absent_body(struct rig_rank *rank, void *context) {
    struct loss *loss = context;
    const bool absent = rank->rank == victim_of(rank->world);
    const bool waits = loss->policy == MMOE_CAPACITY_GROW || loss->report;
    struct attempt attempt;
    mmoe_layer *layer;
    RIG_OK(rank, mmoe_layer_create(rank->group, &loss->batch.layer, &layer));
    good_calls(rank, layer, loss, 2);
    pthread_barrier_wait(&loss->met);
    if (!absent && !rank->failed && attempt_make(rank, layer, loss, &attempt) &&
        is_first_failure(rank, &attempt, waits, "awaiting ready"))
        is_broken(rank, layer, loss);
    pthread_barrier_wait(&loss->named);
    if (absent && attempt_make(rank, layer, loss, &attempt)) {
        RIG_EXPECT(rank, !took_longer(attempt.seconds, AT_ONCE), "an absent rank heard of it after %.1f s",
                   attempt.seconds);
        if (is_first_failure(rank, &attempt, true, "awaiting ready"))
            is_broken(rank, layer, loss);
    }
    if (!rank->failed)
        ends(rank, &layer, AT_ONCE);
}

static void a_rank_never_comes(void **state) {
    (void)state;
    for (int world = gpus_least(); world <= gpus_most; world *= 2)
        for (int form = 0; form < 3; form++) {
            struct loss *loss = loss_make(world, form == 0 ? MMOE_CAPACITY_GROW : MMOE_CAPACITY_FIXED, TOKENS);
            loss->report = form == 1;
            run(loss, absent_body, RIG_THREADS);
            another_group_works(loss);
            loss_free(loss);
        }
}

/* Its group is destroyed while a call waits for a rank that never comes. */
static void destroyed_body(struct rig_rank *rank, void *context) {
    struct loss *loss = context;
    struct attempt attempt;
    mmoe_layer *layer;
    RIG_OK(rank, mmoe_layer_create(rank->group, &loss->batch.layer, &layer));
    good_calls(rank, layer, loss, 1);
    pthread_barrier_wait(&loss->met);
    if (rank->rank != victim_of(rank->world) && !attempt_make(rank, layer, loss, &attempt))
        return;
    ends(rank, &layer, IN_TIME);
}

static void a_group_is_destroyed_while_it_waits(void **state) {
    (void)state;
    for (int world = gpus_least(); world <= gpus_most; world *= 2) {
        struct loss *loss = loss_make(world, MMOE_CAPACITY_FIXED, TOKENS);
        run(loss, destroyed_body, RIG_THREADS);
        another_group_works(loss);
        loss_free(loss);
    }
}

/* ---- Gives up ---- */

#define GREEDY 64

/* What goes to the victim from all ranks together. A driver has taken some memory for its streams from the device, 32
 * MiB at a time, and a call finds room in what is left of that: the rows, 1 KiB each, need several times as much. */
static int64_t tokens_for_victim(void) {
    return rig_simulated() ? 200 : 60000;
}

static void send_to_victim(struct rig_batch *batch) {
    for (int64_t s = 0; s < rig_batch_slots(batch); s++)
        batch->ids[s] = batch->layer.experts - 1;
}

/* The victim has no memory for its rows; it tells so, and nobody waits for a time limit. */
static void giving_up_body(struct rig_rank *rank, void *context) {
    struct loss *loss = context;
    const bool gives_up = rank->rank == victim_of(rank->world);
    void *taken[GREEDY] = {NULL};
    struct attempt attempt;
    mmoe_layer *layer;
    RIG_OK(rank, mmoe_layer_create(rank->group, &loss->batch.layer, &layer));
    RIG_EXPECT(rank, attempt_place(rank, loss, &attempt), "not placed");
    for (size_t bytes = (size_t)1 << 42, i = 0; gives_up && bytes > (size_t)1 << 17 && i < GREEDY; bytes /= 2)
        while (i < GREEDY && mmoe_device_alloc(rank->group, bytes, &taken[i]) == MMOE_OK)
            i++;
    pthread_barrier_wait(&loss->met);
    attempt_begin(layer, &attempt);
    RIG_EXPECT(rank, attempt.status == (gives_up ? MMOE_OUT_OF_MEMORY : MMOE_PEER_LOST), "%s: %s",
               mmoe_status_name(attempt.status), mmoe_last_error());
    RIG_EXPECT(rank,
               strstr(mmoe_last_error(), "bytes asked") &&
                   (gives_up || names_victim(rank, attempt.status, "gave up call 1: no memory")),
               "\"%s\"", mmoe_last_error());
    RIG_EXPECT(rank, !took_longer(attempt.seconds, AT_ONCE), "told after %.1f s", attempt.seconds);
    RIG_EXPECT(rank, attempt_fetch(rank, &attempt) && rig_operand_is_nan(&attempt.call, RIG_Y), "y is not NaN");
    rig_call_free(&attempt.call);
    for (int i = 0; i < GREEDY; i++)
        mmoe_device_free(rank->group, &taken[i]);
    RIG_EXPECT(rank, mmoe_group_check(rank->group) != MMOE_OK, "the group is whole");
    if (is_broken(rank, layer, loss))
        ends(rank, &layer, AT_ONCE);
}

static void a_rank_gives_up(void **state) {
    (void)state;
    for (int world = gpus_least(); world <= gpus_most; world *= 2) {
        struct loss *loss = loss_make(world, MMOE_CAPACITY_GROW, tokens_for_victim() / world);
        send_to_victim(&loss->batch);
        loss->report = true;
        run(loss, giving_up_body, RIG_THREADS);
        another_group_works(loss);
        loss_free(loss);
    }
}

/* ---- Dies, or stops: ranks that are processes ---- */

#define CALLS 200 /* in one of which the loss shows */

/* In a call: with a fixed capacity the host is back while the GPU works. */
static void be_lost(struct rig_rank *rank, mmoe_layer *layer, const struct loss *loss) {
    struct attempt attempt;
    for (int i = 0; i < 10 && loss->inside; i++)
        if (!attempt_make(rank, layer, loss, &attempt))
            return;
    raise(loss->signal);
    pause();
}

/* A call may end well although the rank was lost in it: then all that was needed of it had come. */
static void miss(struct rig_rank *rank, mmoe_layer *layer, const struct loss *loss) {
    struct attempt attempt = {.status = MMOE_OK};
    for (int i = 0; i < CALLS && attempt.status == MMOE_OK; i++) {
        if (!attempt_make(rank, layer, loss, &attempt))
            return;
        if (attempt.status == MMOE_OK && !attempt_fetch(rank, &attempt))
            return;
        if (attempt.status == MMOE_OK)
            rig_call_free(&attempt.call);
    }
    if (is_first_failure(rank, &attempt, true, "") && is_broken(rank, layer, loss))
        ends(rank, &layer, AT_ONCE);
}

/* The rank that is left makes a group of its own. */
static void go_on_alone(struct rig_rank *rank, const struct loss *loss) {
    struct rig_batch alone = loss->batch;
    const int64_t tokens = loss->batch.tokens[rank->rank];
    mmoe_group_config config = rig_world_for(&loss->batch, 1, RIG_THREADS).config;
    mmoe_layer *layer;
    struct rig_rank only = {.rank = 0, .world = 1};
    rig_batch_split(&alone, 1, &tokens);
    RIG_OK(rank, mmoe_group_create_threads(&config, 1, &only.group));
    RIG_OK(rank, mmoe_layer_create(only.group, &alone.layer, &layer));
    const bool good = rig_step(&only, layer, NULL, &alone, &forward_only, 0xff);
    mmoe_layer_destroy(&layer);
    mmoe_group_destroy(&only.group);
    RIG_EXPECT(rank, good, "a new group does not work: %s", only.failure);
}

static void lost_body(struct rig_rank *rank, void *context) {
    struct loss *loss = context, own = *loss;
    mmoe_layer *layer;
    RIG_OK(rank, mmoe_layer_create(rank->group, &loss->batch.layer, &layer));
    own.report = rank->rank != victim_of(rank->world);
    good_calls(rank, layer, loss, 2);
    pthread_barrier_wait(&loss->met);
    if (rank->rank == victim_of(rank->world))
        be_lost(rank, layer, &own);
    else
        miss(rank, layer, &own);
    if (!rank->failed)
        go_on_alone(rank, &own);
}

static void lose_process(int signal, bool inside) {
    for (int world = gpus_least(); world <= gpus_most; world *= 2) {
        struct loss *loss = loss_make(world, MMOE_CAPACITY_FIXED, 4000);
        loss->signal = signal;
        loss->inside = inside;
        run(loss, lost_body, RIG_PROCESSES);
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
        cmocka_unit_test(a_rank_gives_up),
    };
    return gpus_main(2, GPUS_TESTS(of_processes), GPUS_TESTS(of_threads));
}
