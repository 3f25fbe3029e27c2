/* Set-up that succeeds, in all ways to get a group, and what it leaves. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* cmocka needs the headers above first */
#include <cmocka.h>

#include "base/clock.h"
#include "crew.h"
#include "drive.h"

static const int worlds[] = {1, 2, 4, 8};
#define WORLDS (sizeof worlds / sizeof worlds[0])

static void call_and_leave(struct rig_rank *rank, mmoe_group *group) {
    RIG_EXPECT(rank, group->rank == rank->rank && group->world == rank->world, "is rank %d of %d", group->rank,
               group->world);
    RIG_OK(rank, drive_calls(rank, group, 3));
    mmoe_group_destroy(&group);
    RIG_EXPECT(rank, group == NULL, "the handle stays");
    mmoe_group_destroy(&group);
}

/* ---- Threads and processes at a path ------------------------------------------------------------- */

static void join_and_call(struct rig_rank *rank, void *context) {
    mmoe_group *group;
    RIG_OK(rank, crew_join(context, rank->rank, &group));
    call_and_leave(rank, group);
}

static void threads(void **state) {
    (void)state;
    for (size_t i = 0; i < WORLDS; i++) {
        struct crew crew = crew_of(worlds[i], RIG_THREADS);
        crew_run(&crew, join_and_call, &crew);
    }
}

static void processes_at_a_path(void **state) {
    (void)state;
    for (size_t i = 0; i < WORLDS; i++) {
        struct crew crew = crew_of(worlds[i], RIG_PROCESSES);
        crew_run(&crew, join_and_call, &crew);
    }
}

/* ---- The environment ----------------------------------------------------------------------------- */

static void set_number(const char *variable, int value) {
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(variable, text, 1);
}

/* `run` tells this test's runs apart from whatever else uses the machine. */
static void set_torchrun(int rank, int world, pid_t run) {
    set_number("RANK", rank);
    set_number("WORLD_SIZE", world);
    set_number("LOCAL_RANK", rank);
    set_number("LOCAL_WORLD_SIZE", world);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    set_number("MASTER_PORT", 29500);
    set_number("TORCHELASTIC_RUN_ID", (int)run);
    unsetenv("MMOE_RENDEZVOUS");
}

/* One rank of a group that the environment describes, told apart by `name`. */
static mmoe_status join_environment(const struct crew *crew, const char *name, mmoe_group **group) {
    int rank, world;
    char rendezvous[256];
    mmoe_group_config config = crew->config;
    config.name = name;
    mmoe_status status = mm_group_environment(&rank, &world, rendezvous, sizeof rendezvous);
    return status == MMOE_OK
               ? mm_group_make_processes(&config, rendezvous, rank, world, &crew_backend, crew->hook, group)
               : status;
}

static void join_by_environment(struct rig_rank *rank, void *context) {
    set_torchrun(rank->rank, rank->world, getppid());
    mmoe_group *group;
    RIG_OK(rank, join_environment(context, "", &group));
    call_and_leave(rank, group);
}

static void environment(void **state) {
    (void)state;
    int rank, world;
    char rendezvous[256];
    set_torchrun(0, 1, getpid());
    assert_int_equal(mm_group_environment(&rank, &world, rendezvous, sizeof rendezvous), MMOE_OK);
    for (size_t i = 0; i < WORLDS; i++) {
        struct crew crew = crew_of(worlds[i], RIG_PROCESSES);
        crew_run(&crew, join_by_environment, &crew);
        assert_false(crew_has_socket(rendezvous));
    }
}

static void join_by_path_in_environment(struct rig_rank *rank, void *context) {
    struct crew *crew = context;
    set_torchrun(rank->rank, rank->world, getppid());
    setenv("MMOE_RENDEZVOUS", crew->path, 1);
    unsetenv("MASTER_ADDR");
    mmoe_group *group;
    RIG_OK(rank, join_environment(crew, "", &group));
    call_and_leave(rank, group);
}

static void path_in_the_environment(void **state) {
    (void)state;
    struct crew crew = crew_of(3, RIG_PROCESSES);
    crew_run(&crew, join_by_path_in_environment, &crew);
}

/* Two groups that live at the same time, told apart by their names; made in another order on rank 1, by threads. */
static void *join_second(void *context) {
    mmoe_group *group = NULL;
    return join_environment(context, "second", &group) == MMOE_OK ? group : NULL;
}

static void join_two_groups(struct rig_rank *rank, void *context) {
    set_torchrun(rank->rank, rank->world, getppid());
    pthread_t thread;
    RIG_EXPECT(rank, pthread_create(&thread, NULL, join_second, context) == 0, "no thread");
    mmoe_group *first;
    void *second;
    RIG_OK(rank, join_environment(context, "first", &first));
    pthread_join(thread, &second);
    RIG_EXPECT(rank, second != NULL, "the second group was not made");
    call_and_leave(rank, second);
    call_and_leave(rank, first);
}

static void two_groups_of_one_environment(void **state) {
    (void)state;
    struct crew crew = crew_of(2, RIG_PROCESSES);
    crew_run(&crew, join_two_groups, &crew);
}

/* ---- Adopted memory ------------------------------------------------------------------------------ */

struct adopted {
    struct crew crew;
    void *segment[8];
};

static void adopt(struct rig_rank *rank, void *context) {
    struct adopted *adopted = context;
    mmoe_group *group;
    RIG_OK(rank, mm_group_make_adopted(&adopted->crew.config, rank->rank, rank->world, adopted->segment, &crew_backend,
                                       NULL, &group));
    call_and_leave(rank, group);
}

static void adopted(void **state) {
    (void)state;
    for (size_t i = 0; i < WORLDS; i++) {
        struct adopted adopted = {.crew = crew_of(worlds[i], RIG_PROCESSES)};
        const size_t bytes = mm_layout_of(&adopted.crew.config, worlds[i]).bytes;
        for (int r = 0; r < worlds[i]; r++) {
            adopted.segment[r] = rig_shared(bytes);
        }
        crew_run(&adopted.crew, adopt, &adopted);
        for (int r = 0; r < worlds[i]; r++) {
            rig_shared_free(adopted.segment[r]);
        }
    }
}

/* ---- Again and again ----------------------------------------------------------------------------- */

static int open_descriptors(void) {
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    while (readdir(folder) != NULL) {
        count++;
    }
    closedir(folder);
    return count;
}

/* Maps of memory files: segments. */
static int mapped_segments(void) {
    FILE *file = fopen("/proc/self/maps", "r");
    char line[512];
    int count = 0;
    while (fgets(line, sizeof line, file) != NULL) {
        count += strstr(line, "memfd:megamoe") != NULL;
    }
    fclose(file);
    return count;
}

static void come_and_go(struct rig_rank *rank, void *context) {
    const int before = open_descriptors();
    for (int cycle = 0; cycle < 100 && !rank->failed; cycle++) {
        join_and_call(rank, context);
        RIG_EXPECT(rank, open_descriptors() == before, "%d descriptors, %d before cycle %d", open_descriptors(), before,
                   cycle);
        RIG_EXPECT(rank, mapped_segments() == 0, "segments stay mapped");
    }
}

/* B36: 100 create/destroy cycles, each group used; without a barrier between one group and the next. */
static void b36_cycles_of_processes(void **state) {
    (void)state;
    struct crew crew = crew_of(3, RIG_PROCESSES);
    crew_run(&crew, come_and_go, &crew);
}

static void b36_cycles_of_threads(void **state) {
    (void)state;
    const int before = open_descriptors();
    for (int cycle = 0; cycle < 100; cycle++) {
        struct crew crew = crew_of(2, RIG_THREADS);
        crew_run(&crew, join_and_call, &crew);
    }
    assert_int_equal(open_descriptors(), before);
}

/* B36: a rank that exits without destroying its group leaves nothing, which crew_run checks, and is missed at once. */
static void exit_without_destroy(struct rig_rank *rank, void *context) {
    mmoe_group *group;
    RIG_OK(rank, crew_join(context, rank->rank, &group));
    RIG_OK(rank, drive_call(rank, group));
    if (rank->rank == 1) {
        return;
    }
    const double start = mm_now();
    mmoe_status status = drive_call(rank, group);
    RIG_EXPECT(rank, status == MMOE_PEER_LOST && strstr(mmoe_last_error(), "rank 1 ") != NULL, "%s: %s",
               mmoe_status_name(status), mmoe_last_error());
    RIG_EXPECT(rank, mm_now() - start < 2, "it took %.1f s", mm_now() - start);
    mmoe_group_destroy(&group);
}

static void b36_exit_without_destroy(void **state) {
    (void)state;
    struct crew crew = crew_of(2, RIG_PROCESSES);
    crew_run(&crew, exit_without_destroy, &crew);
}

/* A rank that did all it owed and left is no loss to those who still have to do their part. */
static mmoe_status sleep_before_the_end(void *context, int rank, enum mm_step step) {
    (void)context;
    if (rank == 0 && step == MM_STEP_AWAIT) {
        usleep(150000);
    }
    return MMOE_OK;
}

static void leaving_in_good_order_is_no_loss(void **state) {
    (void)state;
    const struct mm_hook hook = {.at = sleep_before_the_end};
    struct crew crew = crew_of(2, RIG_PROCESSES);
    crew.hook = &hook;
    crew_run(&crew, join_and_call, &crew);
}

/* ---- A late rank --------------------------------------------------------------------------------- */

struct late {
    struct crew crew;
    struct mm_hook hook;
    enum mm_step step;
    double slept_at;
};

static mmoe_status be_late(void *context, int rank, enum mm_step step) {
    struct late *late = context;
    if (rank == 1 && step == late->step) {
        late->slept_at = mm_now();
        usleep(200000);
    }
    return MMOE_OK;
}

static void join_late(struct rig_rank *rank, void *context) {
    struct late *late = context;
    mmoe_group *group;
    RIG_OK(rank, crew_join(&late->crew, rank->rank, &group));
    const double ms = (mm_now() - late->slept_at) * 1e3;
    RIG_EXPECT(rank, ms >= 200, "set-up was over %.1f ms after rank 1 fell asleep before %s", ms,
               mm_step_name(late->step));
    call_and_leave(rank, group);
}

/* B34: 50 set-ups with a rank that is late by 200 ms at one of the steps: set-up ends after it, flags are zero. */
static void b34_late_set_ups(void **state) {
    (void)state;
    const int count = rig_scaled("set-ups with a late rank", 50, 9);
    for (int i = 0; i < count; i++) {
        struct late *late = rig_shared(sizeof *late);
        *late = (struct late){.crew = crew_of(2, RIG_PROCESSES),
                              .hook = {.at = be_late, .context = late},
                              .step = (enum mm_step)(MM_STEP_CONNECT + i % 3)};
        late->crew.hook = &late->hook;
        crew_run(&late->crew, join_late, late);
        rig_shared_free(late);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads),
        cmocka_unit_test(processes_at_a_path),
        cmocka_unit_test(environment),
        cmocka_unit_test(path_in_the_environment),
        cmocka_unit_test(two_groups_of_one_environment),
        cmocka_unit_test(adopted),
        cmocka_unit_test(b36_cycles_of_processes),
        cmocka_unit_test(b36_cycles_of_threads),
        cmocka_unit_test(b36_exit_without_destroy),
        cmocka_unit_test(leaving_in_good_order_is_no_loss),
        cmocka_unit_test(b34_late_set_ups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
