/* A rank that works is not given up, however long it takes; one that does nothing is, in time. */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <unistd.h>

/* cmocka needs the headers above first */
#include <cmocka.h>

#include "base/clock.h"
#include "crew.h"
#include "drive.h"

#define FIRST_LIMIT_MS 200
#define LAST_LIMIT_MS 1600
#define LIMITS_OF_WORK 3

/* Rank 1 works for a few time limits on end, rank 0 waits for it. A machine with too little time to give may keep rank
 * 1 from showing itself in time: it notes the longest time between two of its signs. */
struct labour {
    struct crew crew;
    int limit_ms;
    double sign, longest_gap; /* of rank 1 */
    _Atomic bool given_up;
};

static void note_sign(struct labour *labour) {
    const double now = mm_now();
    labour->longest_gap = fmax(labour->longest_gap, labour->sign > 0 ? now - labour->sign : 0);
    labour->sign = now;
}

static double work_seconds(const struct labour *labour) {
    return LIMITS_OF_WORK * labour->limit_ms * 1e-3;
}

static void work(mmoe_group *group, struct labour *labour) {
    const double end = mm_now() + work_seconds(labour);
    while (mm_now() < end && !atomic_load(&labour->given_up)) {
        usleep(10000);
        mm_call_working(group);
        note_sign(labour);
    }
}

/* A rank that shows nothing more is told in time that it was given up. */
static void expect_to_be_given_up(struct rig_rank *rank, mmoe_group *group, const char *sentence) {
    const double limit = mm_now() + 10;
    while (mm_call_check(group) == MMOE_OK && mm_now() < limit) {
        usleep(1000);
    }
    EXPECT_FAILURE(rank, mm_call_check(group), MMOE_TIMEOUT, sentence);
}

/* The status of a wait that began at `start`, for a rank that does not work. */
static void expect_patience(struct rig_rank *rank, const struct labour *labour, mmoe_status status, double start,
                            const char *sentence) {
    const double ms = (mm_now() - start) * 1e3;
    RIG_EXPECT(rank, status == MMOE_TIMEOUT && says(sentence), "%s: %s", mmoe_status_name(status), mmoe_last_error());
    RIG_EXPECT(rank, ms >= labour->limit_ms && ms < 10000, "given up after %.0f ms", ms);
}

static mmoe_status begin_and_post(mmoe_group *group) {
    mmoe_status status = mm_call_begin(group);
    const struct mm_header header = drive_header(group);
    return status == MMOE_OK ? mm_call_post(group, &header) : status;
}

/* Longer limits, as long as the machine kept rank 1 from showing itself; the last attempt counts whatever happens. */
static void prove_patience(rig_body body) {
    for (enum rig_kind kind = RIG_THREADS; kind <= RIG_PROCESSES; kind++) {
        bool proved = false;
        for (int limit_ms = FIRST_LIMIT_MS; limit_ms <= LAST_LIMIT_MS && !proved; limit_ms *= 2) {
            struct labour *labour = rig_shared(sizeof *labour);
            *labour = (struct labour){.crew = crew_of(2, kind), .limit_ms = limit_ms};
            crew_run(&labour->crew, body, labour);
            proved = !atomic_load(&labour->given_up);
            const bool starved = labour->longest_gap * 1e3 > limit_ms / 2 && limit_ms < LAST_LIMIT_MS;
            if (!proved && !starved) {
                fail_msg("rank 1 was given up within %d ms although it worked, %.0f ms between two signs at most",
                         limit_ms, labour->longest_gap * 1e3);
            }
            rig_shared_free(labour);
        }
    }
}

/* ---- In the call that is waited in ---------------------------------------------------------------- */

#define PROGRESS_SENTENCE "rank 1 made no progress for"

static void owe_a_row(struct rig_rank *rank, mmoe_group *group, struct labour *labour) {
    work(group, labour);
    RIG_OK(rank, mm_call_arrived(group, 0, MM_ARRIVAL_ROWS, 1));
    note_sign(labour);
    expect_to_be_given_up(rank, group, PROGRESS_SENTENCE);
}

static void await_a_row(struct rig_rank *rank, mmoe_group *group, struct labour *labour, double start) {
    const int64_t counts[MMOE_MAX_WORLD] = {[1] = 1};
    group->config.progress_timeout_ms = labour->limit_ms;
    if (mm_call_await(group, MM_ARRIVAL_ROWS, counts) != MMOE_OK) {
        RIG_EXPECT(rank, says(PROGRESS_SENTENCE), "%s", mmoe_last_error());
        atomic_store(&labour->given_up, true);
        return;
    }
    RIG_EXPECT(rank, mm_now() - start >= work_seconds(labour), "the wait took %.2f s", mm_now() - start);
    start = mm_now();
    mmoe_status status = mm_call_await(group, MM_ARRIVAL_ROWS, counts);
    expect_patience(rank, labour, status, start, PROGRESS_SENTENCE);
    RIG_EXPECT(rank, says("rank 0 was awaiting arrivals from it in call 1"), "%s", mmoe_last_error());
}

static void work_in_the_same_call(struct rig_rank *rank, void *context) {
    struct labour *labour = context;
    mmoe_group *group;
    RIG_OK(rank, crew_join(&labour->crew, rank->rank, &group));
    const double start = mm_now(); /* before rank 1 begins to work */
    RIG_OK(rank, begin_and_post(group));
    RIG_OK(rank, mm_call_meet(group));
    if (rank->rank == 1) {
        note_sign(labour);
        owe_a_row(rank, group, labour);
    } else {
        await_a_row(rank, group, labour, start);
    }
    mm_call_end(group);
    mm_group_free(group);
}

static void who_works_is_not_given_up(void **state) {
    (void)state;
    prove_patience(work_in_the_same_call);
}

/* ---- In an earlier call -------------------------------------------------------------------------- */

#define ARRIVE_SENTENCE "rank 1 did not come within"

/* Rank 1 is still in call 1, where rank 0 has needed nothing more of it, then comes to call 2 and to no other. */
static void be_busy_with_call_1(struct rig_rank *rank, mmoe_group *group, struct labour *labour) {
    note_sign(labour);
    RIG_OK(rank, mm_call_left(group, 0));
    work(group, labour);
    mm_call_end(group);
    if (begin_and_post(group) == MMOE_OK) {
        note_sign(labour);
        RIG_OK(rank, mm_call_meet(group));
        mm_call_end(group);
    }
    note_sign(labour);
    expect_to_be_given_up(rank, group, ARRIVE_SENTENCE);
}

static void be_early_for_call_2(struct rig_rank *rank, mmoe_group *group, struct labour *labour, double start) {
    mm_call_end(group);
    group->config.arrive_timeout_ms = labour->limit_ms;
    RIG_OK(rank, begin_and_post(group));
    mmoe_status status = mm_call_meet(group);
    mm_call_end(group);
    if (status != MMOE_OK) {
        RIG_EXPECT(rank, says(ARRIVE_SENTENCE), "%s", mmoe_last_error());
        atomic_store(&labour->given_up, true);
        return;
    }
    RIG_EXPECT(rank, mm_now() - start >= work_seconds(labour), "the wait took %.2f s", mm_now() - start);
    RIG_OK(rank, begin_and_post(group));
    start = mm_now();
    status = mm_call_meet(group);
    mm_call_end(group);
    expect_patience(rank, labour, status, start, ARRIVE_SENTENCE);
    RIG_EXPECT(rank, says("rank 0 was awaiting ready from it in call 3"), "%s", mmoe_last_error());
}

static void work_in_an_earlier_call(struct rig_rank *rank, void *context) {
    struct labour *labour = context;
    mmoe_group *group;
    RIG_OK(rank, crew_join(&labour->crew, rank->rank, &group));
    const double start = mm_now();
    RIG_OK(rank, begin_and_post(group));
    RIG_OK(rank, mm_call_meet(group));
    if (rank->rank == 1) {
        be_busy_with_call_1(rank, group, labour);
    } else {
        be_early_for_call_2(rank, group, labour, start);
    }
    mm_group_free(group);
}

static void who_works_in_an_earlier_call_is_not_given_up(void **state) {
    (void)state;
    prove_patience(work_in_an_earlier_call);
}

/* ---- While the waiting rank itself is stopped ---------------------------------------------------- */

#define STOP_LIMIT_MS 2000
#define STOP_MS 2500  /* past the limit */
#define AROUND_MS 200 /* before and after the stop, far from the limit */

struct pause {
    struct crew crew;
    _Atomic pid_t waiting; /* rank 0 */
};

/* Rank 1 shows nothing in all that time: as if both had been stopped. */
static void stop_and_owe(struct rig_rank *rank, mmoe_group *group, struct pause *pause) {
    while (atomic_load(&pause->waiting) == 0) {
        usleep(1000);
    }
    usleep(AROUND_MS * 1000);
    RIG_EXPECT(rank, kill(atomic_load(&pause->waiting), SIGSTOP) == 0, "rank 0 can't be stopped");
    usleep(STOP_MS * 1000);
    RIG_EXPECT(rank, kill(atomic_load(&pause->waiting), SIGCONT) == 0, "rank 0 can't go on");
    usleep(AROUND_MS * 1000);
    RIG_OK(rank, mm_call_arrived(group, 0, MM_ARRIVAL_ROWS, 1));
}

static void wait_while_stopped(struct rig_rank *rank, void *context) {
    struct pause *pause = context;
    mmoe_group *group;
    RIG_OK(rank, crew_join(&pause->crew, rank->rank, &group));
    RIG_OK(rank, begin_and_post(group));
    RIG_OK(rank, mm_call_meet(group));
    if (rank->rank == 1) {
        stop_and_owe(rank, group, pause);
    } else {
        const int64_t counts[MMOE_MAX_WORLD] = {[1] = 1};
        group->config.progress_timeout_ms = STOP_LIMIT_MS;
        atomic_store(&pause->waiting, getpid());
        RIG_OK(rank, mm_call_await(group, MM_ARRIVAL_ROWS, counts));
    }
    mm_call_end(group);
    mm_group_free(group);
}

static void the_time_of_an_own_stop_counts_against_nobody(void **state) {
    (void)state;
    struct pause *pause = rig_shared(sizeof *pause);
    pause->crew = crew_of(2, RIG_PROCESSES);
    crew_run(&pause->crew, wait_while_stopped, pause);
    rig_shared_free(pause);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_works_is_not_given_up),
        cmocka_unit_test(who_works_in_an_earlier_call_is_not_given_up),
        cmocka_unit_test(the_time_of_an_own_stop_counts_against_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
