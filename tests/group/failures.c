/* One rank is killed or stopped at every step of set-up and of a call (case B36).
 *
 * The others must return in time with an error that names it, find the group broken, and leave nothing behind, which
 * crew_run checks; the next run, at the same meeting place, must pass. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* cmocka needs the headers above first */
#include <cmocka.h>

#include "base/clock.h"
#include "crew.h"
#include "drive.h"

#define SHORT_MS 300
#define FATAL_CALL 3

/* At a path unless said otherwise. */
enum manner {
    AT_A_PATH,
    BY_NAME,   /* the ranks meet at an abstract name */
    WITH_CHILD /* the victim has forked a child, which lives on */
};

struct end {
    struct crew crew;
    struct mm_hook hook;
    int victim, signal;
    enum mm_step step;
    int fatal_call; /* 0: set-up */
    int occurrence; /* of the step in the fatal call, from 1 */
    enum manner manner;
    double limit;      /* seconds from the end of the victim until all others must have returned */
    int calls, seen;   /* the victim's count of calls, and of the step in the current one */
    double happened;   /* written by the victim before it ends */
    _Atomic bool over; /* the child may go */
};

/* It keeps every descriptor that the victim had. */
static void leave_child(struct end *end) {
    const double limit = mm_now() + 30;
    const pid_t child = fork();
    if (child < 0) {
        abort();
    }
    if (child == 0) {
        while (!atomic_load(&end->over) && mm_now() < limit) {
            usleep(1000);
        }
        _exit(0);
    }
}

static mmoe_status end_here(void *context, int rank, enum mm_step step) {
    struct end *end = context;
    if (rank != end->victim) {
        return MMOE_OK;
    }
    if (step == MM_STEP_BEGIN) {
        end->calls++;
        end->seen = 0;
    }
    end->seen += step == end->step;
    if (step == end->step && end->calls == end->fatal_call && end->seen == end->occurrence) {
        if (end->manner == WITH_CHILD) {
            leave_child(end);
        }
        end->happened = mm_now();
        raise(end->signal);
    }
    return MMOE_OK;
}

static bool in_set_up(enum mm_step step) {
    return step <= MM_STEP_MAPPED;
}

/* Told apart from what other programs on the machine do. */
static void name_of_run(char *rendezvous, size_t bytes, pid_t program) {
    snprintf(rendezvous, bytes, "name:failures %d", (int)program);
}

static mmoe_status join(const struct end *end, int rank, mmoe_group **group) {
    if (end->manner != BY_NAME) {
        return crew_join(&end->crew, rank, group);
    }
    char rendezvous[64];
    name_of_run(rendezvous, sizeof rendezvous, getppid());
    return mm_group_make_processes(&end->crew.config, rendezvous, rank, end->crew.world, &crew_backend, end->crew.hook,
                                   group);
}

/* A rank that ended before it came can't be told from a late one; one that ended later is seen to be dead, but for a
 * stopped one only the time limit speaks. */
static mmoe_status expected_status(const struct end *end) {
    return end->signal == SIGKILL && end->step != MM_STEP_CONNECT ? MMOE_PEER_LOST : MMOE_TIMEOUT;
}

static void expect_failure(struct rig_rank *rank, const struct end *end, mmoe_status status) {
    const double took = mm_now() - end->happened;
    char victim[16];
    snprintf(victim, sizeof victim, "rank %d ", end->victim);
    RIG_EXPECT(rank, status == expected_status(end) && strncmp(mmoe_last_error(), victim, strlen(victim)) == 0,
               "%s: \"%s\" does not begin with \"%s\"", mmoe_status_name(status),
               status == MMOE_OK ? "" : mmoe_last_error(), victim);
    RIG_EXPECT(rank, took < end->limit, "rank %d returned %.2f s after the end of rank %d", rank->rank, took,
               end->victim);
}

static void expect_broken(struct rig_rank *rank, mmoe_group *group) {
    char first[MM_ERROR_BYTES];
    snprintf(first, sizeof first, "%s", mmoe_last_error());
    const double start = mm_now();
    mmoe_status status = drive_call(rank, group);
    RIG_EXPECT(rank, status == MMOE_BROKEN && strcmp(mmoe_last_error(), first) == 0, "%s: %s", mmoe_status_name(status),
               mmoe_last_error());
    RIG_EXPECT(rank, mm_now() - start < 0.2, "a call of a broken group took %.2f s", mm_now() - start);
}

static void survive(struct rig_rank *rank, void *context) {
    struct end *end = context;
    mmoe_group *group = NULL;
    mmoe_status status = join(end, rank->rank, &group);
    if (in_set_up(end->step)) {
        expect_failure(rank, end, status);
        RIG_EXPECT(rank, group == NULL, "a handle came with a failure");
        return;
    }
    RIG_OK(rank, status);
    RIG_OK(rank, drive_calls(rank, group, FATAL_CALL - 1));
    expect_failure(rank, end, drive_calls(rank, group, 2));
    expect_broken(rank, group);
    mm_group_free(group);
}

static void pass(struct rig_rank *rank, void *context) {
    mmoe_group *group;
    RIG_OK(rank, join(context, rank->rank, &group));
    RIG_OK(rank, drive_calls(rank, group, 2));
    mm_group_free(group);
}

static bool has_socket(void) {
    char rendezvous[64];
    name_of_run(rendezvous, sizeof rendezvous, getpid());
    return crew_has_socket(rendezvous);
}

/* The second peer's turn when there are two, so that one of them was served and the other was not. A push is two steps
 * a peer here. */
static int occurrence_of(enum mm_step step, int world) {
    if (world == 2) {
        return 1;
    }
    return step == MM_STEP_PULL || step == MM_STEP_LEFT ? 2 : step == MM_STEP_PUSH ? 3 : 1;
}

static void end_one(int world, int victim, int signal, enum mm_step step, enum manner manner) {
    static const char *const manners[] = {"", ", by name", ", with a child"};
    print_message("%s rank %d of %d before %s%s\n", signal == SIGKILL ? "kill" : "stop", victim, world,
                  mm_step_name(step), manners[manner]);
    struct end *end = rig_shared(sizeof *end);
    *end = (struct end){.crew = crew_of(world, RIG_PROCESSES),
                        .hook = {.at = end_here, .context = end},
                        .victim = victim,
                        .signal = signal,
                        .step = step,
                        .fatal_call = in_set_up(step) ? 0 : FATAL_CALL,
                        .occurrence = occurrence_of(step, world),
                        .manner = manner,
                        .limit = 2};
    end->crew.hook = &end->hook;
    end->crew.expendable = UINT64_C(1) << victim;
    end->crew.seconds = 20;
    if (expected_status(end) == MMOE_TIMEOUT) {
        end->crew.config.arrive_timeout_ms = end->crew.config.progress_timeout_ms = SHORT_MS;
        end->limit += SHORT_MS * 1e-3;
    }
    crew_run(&end->crew, survive, end);
    atomic_store(&end->over, true);
    assert_true(end->happened > 0);
    assert_false(has_socket());
    end->victim = -1;
    end->crew.expendable = 0;
    end->crew.config = crew_of(world, RIG_PROCESSES).config;
    crew_run(&end->crew, pass, end);
    rig_shared_free(end);
}

/* The first and the last rank: the host of the meeting, and a guest. */
static void end_at_each_step(int world, int signal) {
    for (enum mm_step step = MM_STEP_CONNECT; step < MM_STEP_COUNT; step++) {
        end_one(world, world - 1, signal, step, AT_A_PATH);
        end_one(world, 0, signal, step, AT_A_PATH);
        if (in_set_up(step)) {
            end_one(world, world - 1, signal, step, BY_NAME);
            end_one(world, 0, signal, step, BY_NAME);
        }
    }
}

static void b36_kill_one_of_two(void **state) {
    (void)state;
    end_at_each_step(2, SIGKILL);
}

static void b36_kill_one_of_three(void **state) {
    (void)state;
    end_at_each_step(3, SIGKILL);
}

static void b36_stop_one_of_two(void **state) {
    (void)state;
    end_at_each_step(2, SIGSTOP);
}

static void b36_stop_one_of_three(void **state) {
    (void)state;
    end_at_each_step(3, SIGSTOP);
}

/* A data loader, say, that outlives the rank that forked it. */
static void a_child_does_not_hide_a_death(void **state) {
    (void)state;
    for (int victim = 0; victim < 2; victim++) {
        end_one(2, victim, SIGKILL, MM_STEP_MEET, WITH_CHILD);
        end_one(2, victim, SIGKILL, MM_STEP_PULL, WITH_CHILD);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b36_kill_one_of_two),           cmocka_unit_test(b36_kill_one_of_three),
        cmocka_unit_test(b36_stop_one_of_two),           cmocka_unit_test(b36_stop_one_of_three),
        cmocka_unit_test(a_child_does_not_hide_a_death),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
