/* Many calls without an outer barrier: nothing stale, nothing swapped, whoever is late (cases B31, B32). */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>

/* cmocka needs the headers above first */
#include <cmocka.h>

#include "base/clock.h"
#include "crew.h"
#include "drive.h"

static void sleep_ms(double ms) {
    const struct timespec time = {.tv_sec = (time_t)(ms / 1e3), .tv_nsec = (long)((ms - 1e3 * (int)(ms / 1e3)) * 1e6)};
    nanosleep(&time, NULL);
}

/* ---- Random delays ------------------------------------------------------------------------------- */

struct delays {
    struct crew crew;
    struct mm_hook hook;
    int calls;
    struct rig_random random[8]; /* [rank] */
    int step[8];
};

/* One rank in turn is slow for a while: 0 to 5 ms at one of every eight steps. The others now and then lose a moment.
 */
static mmoe_status delay(void *context, int rank, enum mm_step step) {
    (void)step;
    struct delays *delays = context;
    struct rig_random *random = &delays->random[rank];
    const bool slow = delays->step[rank]++ / 512 % delays->crew.world == rank;
    if (rig_below(random, slow ? 8 : 128) == 0) {
        sleep_ms(rig_uniform(random) * (slow ? 5 : 0.5));
    }
    return MMOE_OK;
}

static void make_calls(struct rig_rank *rank, void *context) {
    struct delays *delays = context;
    mmoe_group *group;
    RIG_OK(rank, crew_join(&delays->crew, rank->rank, &group));
    RIG_OK(rank, drive_calls(rank, group, delays->calls));
    RIG_EXPECT(rank, group->call == (uint32_t)delays->calls, "%u calls", group->call);
    mm_group_free(group);
}

static void make_delayed_calls(enum rig_kind kind, int world, int calls) {
    struct delays *delays = rig_shared(sizeof *delays);
    *delays = (struct delays){.crew = crew_of(world, kind), .hook = {.at = delay, .context = delays}, .calls = calls};
    delays->crew.hook = &delays->hook;
    delays->crew.seconds = 120;
    for (int r = 0; r < world; r++) {
        delays->random[r] = rig_seed((uint64_t)r + 1);
    }
    crew_run(&delays->crew, make_calls, delays);
    rig_shared_free(delays);
}

static void b31_threads(void **state) {
    (void)state;
    make_delayed_calls(RIG_THREADS, 4, rig_scaled("calls of threads", 2000, 300));
}

static void b31_processes(void **state) {
    (void)state;
    make_delayed_calls(RIG_PROCESSES, 4, rig_scaled("calls of processes", 2000, 300));
}

static void other_worlds(void **state) {
    (void)state;
    for (int world = 1; world <= 8; world = world == 2 ? 3 : world == 3 ? 8 : world + 1) {
        make_delayed_calls(RIG_THREADS, world, 60);
    }
}

/* ---- Wrapping counters --------------------------------------------------------------------------- */

#define LAST_CALL UINT32_C(0xfffffff0)
#define LAST_ARRIVAL UINT32_C(0xffffffc0)

/* As if so many calls had been made. Each rank sets its own segment and counters before any call. */
static void age(mmoe_group *group) {
    struct mm_control *control = mm_control(group, group->rank);
    group->call = LAST_CALL;
    for (int r = 0; r < group->world; r++) {
        atomic_store(&control->ready[r].value, LAST_CALL);
        atomic_store(&control->left[r].value, LAST_CALL);
        atomic_store(&control->rows_arrived[r].value, LAST_ARRIVAL);
        atomic_store(&control->dw_arrived[r].value, LAST_ARRIVAL);
        group->rows_target[r] = group->dw_target[r] = LAST_ARRIVAL;
    }
}

struct aged {
    struct crew crew;
    pthread_barrier_t all_aged;
};

static void call_past_the_end(struct rig_rank *rank, void *context) {
    struct aged *aged = context;
    mmoe_group *group;
    RIG_OK(rank, crew_join(&aged->crew, rank->rank, &group));
    age(group);
    pthread_barrier_wait(&aged->all_aged);
    RIG_OK(rank, drive_calls(rank, group, 100));
    RIG_EXPECT(rank, group->call == LAST_CALL + 100 && group->call < 100, "call %u", group->call);
    RIG_EXPECT(rank, group->dw_target[0] < 100 && group->rows_target[0] < 1000, "arrivals don't wrap");
    mm_group_free(group);
}

static void counters_wrap(void **state) {
    (void)state;
    struct aged aged = {.crew = crew_of(3, RIG_THREADS)};
    pthread_barrier_init(&aged.all_aged, NULL, 3);
    crew_run(&aged.crew, call_past_the_end, &aged);
    pthread_barrier_destroy(&aged.all_aged);
}

/* ---- A wait waits -------------------------------------------------------------------------------- */

#define LATE_MS 200

struct late {
    struct crew crew;
    struct mm_hook hook;
    enum mm_step step;
    double slept_at; /* written by rank 1 before it sleeps, read by rank 0 after the call: ordered by the call */
};

static mmoe_status be_late(void *context, int rank, enum mm_step step) {
    struct late *late = context;
    if (rank == 1 && step == late->step && late->slept_at == 0) {
        late->slept_at = mm_now();
        sleep_ms(LATE_MS);
    }
    return MMOE_OK;
}

static void time_the_wait(struct rig_rank *rank, void *context) {
    struct late *late = context;
    mmoe_group *group;
    RIG_OK(rank, crew_join(&late->crew, rank->rank, &group));
    RIG_OK(rank, drive_call(rank, group));
    if (rank->rank == 0) {
        const double ms = (mm_now() - late->slept_at) * 1e3;
        RIG_EXPECT(rank, ms >= LATE_MS, "rank 0 was done %.1f ms after rank 1 fell asleep before %s", ms,
                   mm_step_name(late->step));
    }
    RIG_OK(rank, drive_calls(rank, group, 2));
    mm_group_free(group);
}

/* B34: whatever step a peer is late for, who needs what comes after it waits that long. */
static void b34_wait_takes_as_long_as_the_peer(void **state) {
    (void)state;
    const enum mm_step steps[] = {MM_STEP_BEGIN, MM_STEP_WRITE, MM_STEP_READY,
                                  MM_STEP_PULL,  MM_STEP_LEFT,  MM_STEP_PUSH};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        for (enum rig_kind kind = RIG_THREADS; kind <= RIG_PROCESSES; kind++) {
            struct late *late = rig_shared(sizeof *late);
            *late = (struct late){.crew = crew_of(2, kind), .hook = {.at = be_late, .context = late}, .step = steps[i]};
            late->crew.hook = &late->hook;
            crew_run(&late->crew, time_the_wait, late);
            assert_true(late->slept_at > 0);
            rig_shared_free(late);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b31_threads),
        cmocka_unit_test(b31_processes),
        cmocka_unit_test(other_worlds),
        cmocka_unit_test(counters_wrap),
        cmocka_unit_test(b34_wait_takes_as_long_as_the_peer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
