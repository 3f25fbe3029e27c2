/* Set-up of groups on fake GPUs with a rank that is late, dies or stops at one of its steps, and set-up again and
 * again. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <unistd.h>

#include "fleet.h"

#include <cmocka.h>

#include "base/clock.h"

/* A rank that is late by 200 ms, or lost, at a step of set-up. */
struct trouble {
    struct crew crew;
    pthread_barrier_t barrier; /* of all ranks */
    struct mm_hook hook;
    enum mm_step step;
    int signal; /* 0: late */
    double happened;
};

static mmoe_status trouble_here(void *context, int rank, enum mm_step step) {
    struct trouble *trouble = context;
    if (rank != 1 || step != trouble->step)
        return MMOE_OK;
    trouble->happened = mm_now();
    if (trouble->signal == 0)
        usleep(200000);
    else
        raise(trouble->signal);
    return MMOE_OK;
}

static struct trouble *trouble_make(enum rig_kind kind, enum mm_step step, int signal) {
    struct trouble *trouble = rig_shared(sizeof *trouble);
    *trouble = (struct trouble){
        .crew = crew_on(RANKS, kind), .hook = {.at = trouble_here, .context = trouble}, .step = step, .signal = signal};
    trouble->crew.hook = &trouble->hook;
    trouble->crew.seconds = 20;
    rig_barrier_make(&trouble->barrier, RANKS);
    return trouble;
}

/* Whoever is through writes at once to everybody, and nobody's zeroing comes after it. */
static void write_at_once(struct rig_rank *rank, void *context) {
    struct trouble *trouble = context;
    mmoe_group *group;
    RIG_OK(rank, crew_join(&trouble->crew, rank->rank, &group));
    for (int owner = 0; owner < rank->world; owner++)
        *place(group, rank->rank, owner) = mark(rank->rank, owner);
    const double ms = (mm_now() - trouble->happened) * 1e3;
    pthread_barrier_wait(&trouble->barrier);
    RIG_EXPECT(rank, ms >= 200, "set-up was over %.1f ms after rank 1 fell asleep before %s", ms,
               mm_step_name(trouble->step));
    for (int owner = 0; owner < rank->world; owner++)
        for (int writer = 0; writer < rank->world; writer++)
            RIG_EXPECT(rank, *place(group, writer, owner) == mark(writer, owner), "%u from rank %d in rank %d's block",
                       *place(group, writer, owner), writer, owner);
    mmoe_group_destroy(&group);
}

static void b34_late_set_ups(void **state) {
    (void)state;
    const int count = rig_scaled("set-ups with a late rank", 6, 3);
    for (int i = 0; i < count; i++) {
        struct trouble *trouble = trouble_make(RIG_PROCESSES, (enum mm_step)(MM_STEP_CONNECT + i % 3), 0);
        crew_run(&trouble->crew, write_at_once, trouble);
        pthread_barrier_destroy(&trouble->barrier);
        rig_shared_free(trouble);
    }
}

#define SHORT_MS 300

/* A rank that ended before it came can't be told from a late one; of one that is stopped only the time limit speaks. */
static void miss_a_rank(struct rig_rank *rank, void *context) {
    struct trouble *trouble = context;
    const int descriptors = open_descriptors();
    mmoe_group *group;
    const mmoe_status status = crew_join(&trouble->crew, rank->rank, &group);
    const double seconds = mm_now() - trouble->happened;
    const bool dead = trouble->signal == SIGKILL && trouble->step != MM_STEP_CONNECT;
    RIG_EXPECT(rank, status == (dead ? MMOE_PEER_LOST : MMOE_TIMEOUT) && says("rank 1 "), "before %s: %s: %s",
               mm_step_name(trouble->step), mmoe_status_name(status), mmoe_last_error());
    RIG_EXPECT(rank, seconds < SHORT_MS * 1e-3 + 2, "it took %.1f s", seconds);
    RIG_EXPECT(rank, group == NULL, "there is a group");
    expect_nothing_left(rank, descriptors);
}

static void b36_a_rank_is_lost_in_set_up(void **state) {
    (void)state;
    static const int signals[] = {SIGKILL, SIGSTOP};
    for (int i = 0; i < 6; i++) {
        struct trouble *trouble = trouble_make(RIG_PROCESSES, (enum mm_step)(MM_STEP_CONNECT + i / 2), signals[i % 2]);
        trouble->crew.expendable = UINT64_C(1) << 1;
        trouble->crew.config.arrive_timeout_ms = trouble->crew.config.progress_timeout_ms = SHORT_MS;
        crew_run(&trouble->crew, miss_a_rank, trouble);
        assert_true(trouble->happened > 0);
        rig_shared_free(trouble);
        run_sharing(RANKS, RIG_PROCESSES);
    }
}

static void b36_cycles(void **state) {
    (void)state;
    const int cycles = rig_scaled("set-ups of each kind", 100, 20);
    for (int cycle = 0; cycle < cycles; cycle++)
        for (int kind = RIG_THREADS; kind <= RIG_PROCESSES; kind++)
            run_sharing(2, (enum rig_kind)kind);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(b34_late_set_ups, use_fleet),
        cmocka_unit_test_setup(b36_a_rank_is_lost_in_set_up, use_fleet),
        cmocka_unit_test_setup(b36_cycles, use_fleet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
