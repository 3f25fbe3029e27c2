/* Set-up that must fail: on every rank, in time, with the same reason. */
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* cmocka needs the headers above first */
#include <cmocka.h>

#include "base/clock.h"
#include "crew.h"
#include "drive.h"
#include "group/hello.h"

#define LIMIT_MS 300
#define LONG_MS 20000

/* What each process of a crew claims to be, and what all of them must be told. */
struct attempt {
    struct crew crew;
    struct {
        int rank, world;
        mmoe_group_config config;
        const struct mm_backend *backend;
        void (*before)(const struct crew *crew); /* instead of nothing */
        bool absent;
    } as[4];
    struct mm_hook hook;
    mmoe_status status;  /* MMOE_OK: set-up must succeed */
    const char *says[3]; /* parts of the sentence */
    double seconds;      /* until which all must know */
};

static struct attempt attempt_of(int processes, mmoe_status status) {
    struct attempt attempt = {.crew = crew_of(processes, RIG_PROCESSES), .status = status, .seconds = 2};
    for (int i = 0; i < processes; i++) {
        attempt.as[i].rank = i;
        attempt.as[i].world = processes;
        attempt.as[i].config = attempt.crew.config;
        attempt.as[i].backend = &crew_backend;
    }
    return attempt;
}

/* Time limits so short that they are what ends the attempt. */
static struct attempt short_attempt_of(int processes, mmoe_status status) {
    struct attempt attempt = attempt_of(processes, status);
    for (int i = 0; i < processes; i++) {
        attempt.as[i].config.arrive_timeout_ms = LIMIT_MS;
    }
    attempt.seconds = LIMIT_MS * 1e-3 + 2;
    return attempt;
}

static void join_as(struct rig_rank *rank, void *context) {
    const struct attempt *attempt = context;
    const int i = rank->rank;
    if (attempt->as[i].before != NULL) {
        attempt->as[i].before(&attempt->crew);
    }
    if (attempt->as[i].absent) {
        return;
    }
    char rendezvous[160];
    snprintf(rendezvous, sizeof rendezvous, "path:%s", attempt->crew.path);
    mmoe_group *group;
    const double start = mm_now();
    mmoe_status status = mm_group_make_processes(&attempt->as[i].config, rendezvous, attempt->as[i].rank,
                                                 attempt->as[i].world, attempt->as[i].backend, &attempt->hook, &group);
    const double took = mm_now() - start;
    RIG_EXPECT(rank, status == attempt->status, "%s: %s", mmoe_status_name(status),
               status == MMOE_OK ? "" : mmoe_last_error());
    RIG_EXPECT(rank, took < attempt->seconds, "it took %.2f s", took);
    if (status == MMOE_OK) {
        RIG_OK(rank, drive_calls(rank, group, 3));
        mm_group_free(group);
        return;
    }
    RIG_EXPECT(rank, group == NULL, "a handle came with a failure");
    for (int k = 0; k < 3 && attempt->says[k] != NULL; k++) {
        RIG_EXPECT(rank, strstr(mmoe_last_error(), attempt->says[k]) != NULL, "\"%s\" does not say \"%s\"",
                   mmoe_last_error(), attempt->says[k]);
    }
}

static void try(struct attempt *attempt) {
    crew_run(&attempt->crew, join_as, attempt);
}

/* ---- Agreed fields ------------------------------------------------------------------------------- */

/* B16: the last rank differs in one number; every rank is shown both values. */
static void b16_numbers(void **state) {
    (void)state;
    static const struct {
        const char *name;
        size_t offset;
        const char *theirs;
    } fields[] = {
        {"max_tokens is 6 on rank 0", offsetof(mmoe_group_config, max_tokens), "7 on rank"},
        {"max_hidden is 8 on rank 0", offsetof(mmoe_group_config, max_hidden), "9 on rank"},
        {"max_top_k is 2 on rank 0", offsetof(mmoe_group_config, max_top_k), "3 on rank"},
        {"max_experts is 8 on rank 0", offsetof(mmoe_group_config, max_experts), "9 on rank"},
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        for (int world = 2; world <= 3; world++) {
            struct attempt attempt = attempt_of(world, MMOE_MISMATCH);
            *(int64_t *)(void *)((char *)&attempt.as[world - 1].config + fields[i].offset) += 1;
            attempt.says[0] = fields[i].name;
            attempt.says[1] = fields[i].theirs;
            try(&attempt);
        }
    }
}

static void b16_name_and_backend(void **state) {
    (void)state;
    struct attempt name = attempt_of(3, MMOE_MISMATCH);
    name.as[2].config.name = "other";
    name.says[0] = "name is \"\" on rank 0 and \"other\" on rank 2";
    try(&name);
    struct attempt backend = attempt_of(3, MMOE_MISMATCH);
    struct mm_backend other = crew_backend;
    other.name = "other";
    backend.as[1].backend = &other;
    backend.says[0] = "backend is \"none\" on rank 0 and \"other\" on rank 1";
    try(&backend);
}

/* What a rank may choose for itself does not keep ranks apart. */
static void own_fields(void **state) {
    (void)state;
    struct attempt attempt = attempt_of(2, MMOE_OK);
    attempt.as[1].config.threads = 3;
    attempt.as[1].config.progress_timeout_ms = LONG_MS / 2;
    attempt.as[1].config.arrive_timeout_ms = LONG_MS / 2;
    try(&attempt);
}

static void uneven_worlds(void **state) {
    (void)state;
    struct attempt attempt = attempt_of(3, MMOE_MISMATCH);
    attempt.as[0].world = 2;
    attempt.says[0] = "world is 2 on rank 0 and 3 on rank";
    try(&attempt);
    attempt = attempt_of(3, MMOE_MISMATCH);
    attempt.as[2].world = 4;
    attempt.as[2].rank = 3;
    for (int i = 0; i < 3; i++) { /* all wait for the fourth that rank 3 believes in */
        attempt.as[i].config.arrive_timeout_ms = LIMIT_MS;
    }
    attempt.says[0] = "world is 3 on rank 0 and 4 on rank 3";
    attempt.seconds = LIMIT_MS * 1e-3 + 2;
    try(&attempt);
}

static void duplicate_ranks(void **state) {
    (void)state;
    struct attempt guest = attempt_of(3, MMOE_MISMATCH);
    guest.as[2].rank = 1;
    guest.says[0] = "rank 1 came twice";
    try(&guest);
    struct attempt host = attempt_of(3, MMOE_MISMATCH);
    host.as[2].rank = 0;
    host.says[0] = "rank 0 came twice";
    try(&host);
}

/* ---- Ranks that don't come ----------------------------------------------------------------------- */

static void a_guest_does_not_come(void **state) {
    (void)state;
    struct attempt attempt = short_attempt_of(3, MMOE_TIMEOUT);
    attempt.as[1].absent = true;
    attempt.says[0] = "rank 1 did not come";
    try(&attempt);
}

static void the_host_does_not_come(void **state) {
    (void)state;
    struct attempt attempt = short_attempt_of(3, MMOE_TIMEOUT);
    attempt.as[0].absent = true;
    attempt.says[0] = "rank 0 did not come";
    try(&attempt);
}

static void sleep_for_a_while(const struct crew *crew) {
    (void)crew;
    usleep(LIMIT_MS * 2 * 1000 / 3);
}

/* The time limit is that of the rank that began first, so that nobody waits longer than it promised. */
static void the_first_limit_counts(void **state) {
    (void)state;
    struct attempt attempt = short_attempt_of(3, MMOE_TIMEOUT);
    attempt.as[0].before = sleep_for_a_while;
    attempt.as[1].absent = true;
    attempt.says[0] = "rank 1 did not come";
    attempt.seconds = LIMIT_MS * 1e-3 + 0.4;
    try(&attempt);
}

/* ---- Ranks that can't ---------------------------------------------------------------------------- */

static mmoe_status fail_on_rank_1(void *context, int rank, enum mm_step step) {
    const enum mm_step *at = context;
    return rank == 1 && step == *at ? mm_fail(MMOE_SYSTEM, "injected") : MMOE_OK;
}

/* B37: what one rank can't do, e.g. open a peer's memory, fails all of them, in time. Two hosts of one name can't be
 * taken for one here: ranks meet at a socket, which no two hosts share. */
static void b37_failure_on_one_rank(void **state) {
    (void)state;
    for (enum mm_step step = MM_STEP_MAP; step <= MM_STEP_MAPPED; step++) {
        for (int world = 2; world <= 4; world++) {
            struct attempt attempt = attempt_of(world, MMOE_SYSTEM);
            attempt.hook = (struct mm_hook){.at = fail_on_rank_1, .context = &step};
            attempt.says[0] = "rank 1 failed in set-up: injected";
            try(&attempt);
        }
    }
}

static mmoe_status make_none(size_t bytes, int *descriptor, void **segment) {
    *descriptor = -1;
    *segment = NULL;
    return mm_fail(MMOE_OUT_OF_MEMORY, "no memory for a segment of %zu bytes", bytes);
}

static void no_memory_on_one_rank(void **state) {
    (void)state;
    struct mm_segment_maker maker = mm_host_segments;
    maker.make = make_none;
    struct mm_backend poor = crew_backend;
    poor.segments = &maker;
    for (int r = 0; r < 3; r++) {
        struct attempt attempt = attempt_of(3, MMOE_OUT_OF_MEMORY);
        attempt.as[r].backend = &poor;
        char who[40];
        snprintf(who, sizeof who, "rank %d failed in set-up", r);
        attempt.says[0] = who;
        attempt.says[1] = "no memory for a segment of";
        try(&attempt);
    }
}

/* Refused before a page is taken, on all ranks. */
static void more_than_the_machine_has(void **state) {
    (void)state;
    struct attempt attempt = attempt_of(2, MMOE_OUT_OF_MEMORY);
    for (int i = 0; i < 2; i++) {
        attempt.as[i].config.max_tokens = 1 << 20;
        attempt.as[i].config.max_hidden = MMOE_MAX_HIDDEN;
        attempt.as[i].config.max_top_k = 64;
    }
    attempt.says[0] = "rank 0 failed in set-up: the segments of all ranks need";
    try(&attempt);
    mmoe_group *groups[2];
    assert_int_equal(mm_group_make_threads(&attempt.as[0].config, 2, &crew_backend, NULL, groups), MMOE_OUT_OF_MEMORY);
    assert_null(groups[0]);
    assert_null(groups[1]);
}

static bool small_shared_memory(const char *options, unsigned long flags) {
    return unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("none", "/dev/shm", "tmpfs", flags, options) == 0;
}

static void tiny_shared_memory(const struct crew *crew) {
    (void)crew;
    if (!small_shared_memory("size=4k", 0)) {
        print_message("not run: this user may not mount a tiny /dev/shm\n");
    }
}

static void read_only_shared_memory(const struct crew *crew) {
    (void)crew;
    if (!small_shared_memory("", MS_RDONLY)) {
        print_message("not run: this user may not mount a read-only /dev/shm\n");
    }
}

/* B37: /dev/shm is not used, so its size and rights don't matter. */
static void b37_poor_shared_memory_folder(void **state) {
    (void)state;
    struct attempt attempt = attempt_of(2, MMOE_OK);
    attempt.as[1].before = tiny_shared_memory;
    try(&attempt);
    attempt.as[1].before = read_only_shared_memory;
    try(&attempt);
}

/* A process can't be two ranks. */
static void *join_as_rank_1(void *context) {
    const struct crew *crew = context;
    mmoe_group *group = NULL;
    mmoe_status *status = malloc(sizeof *status);
    *status = crew_join(crew, 1, &group);
    mm_group_free(group);
    return status;
}

static void join_as_both(struct rig_rank *rank, void *context) {
    struct crew crew = *(struct crew *)context;
    crew.world = 2;
    pthread_t thread;
    RIG_EXPECT(rank, pthread_create(&thread, NULL, join_as_rank_1, &crew) == 0, "no thread");
    mmoe_group *group;
    mmoe_status status = crew_join(&crew, 0, &group);
    void *other;
    pthread_join(thread, &other);
    RIG_EXPECT(rank, status == MMOE_INVALID_ARGUMENT && *(mmoe_status *)other == status && group == NULL, "%s, %s",
               mmoe_status_name(status), mmoe_status_name(*(mmoe_status *)other));
    RIG_EXPECT(rank, says("rank 1 is in the same process, expected each rank to be a process"), "%s",
               mmoe_last_error());
    free(other);
}

static void two_ranks_in_one_process(void **state) {
    (void)state;
    struct crew crew = crew_of(1, RIG_PROCESSES);
    crew_run(&crew, join_as_both, &crew);
}

/* ---- Others at the meeting place ----------------------------------------------------------------- */

/* In a forked rank, where an assertion of cmocka would go on with the next test. */
static void must(bool holds) {
    if (!holds) {
        abort();
    }
}

static int connect_to(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    while (connect(made, (const struct sockaddr *)&address, sizeof address) != 0) {
        usleep(500);
    }
    return made;
}

/* A foreign text, one that begins like ours, half a hello, and silence; all stay connected. */
static void send_garbage(const struct crew *crew) {
    char noise[600];
    struct rig_random random = rig_seed(1);
    for (size_t i = 0; i < sizeof noise; i++) {
        noise[i] = (char)rig_next(&random);
    }
    must(write(connect_to(crew->path), noise, sizeof noise) == sizeof noise);
    must(write(connect_to(crew->path), "GET / HTTP/1.1\r\n\r\n", 18) == 18);
    memcpy(noise, "megamoe\n", 8);
    must(write(connect_to(crew->path), noise, sizeof noise) == sizeof noise);
    must(write(connect_to(crew->path), "megamoe\n", 8) == 8);
    close(connect_to(crew->path));
    connect_to(crew->path);
}

static void foreign_connections(void **state) {
    (void)state;
    struct attempt attempt = attempt_of(3, MMOE_OK);
    attempt.as[2].before = send_garbage;
    try(&attempt);
}

static void send_old_hello(const struct crew *crew) {
    struct mm_hello_front hello = {
        .magic = "megamoe\n", .protocol = 0, .bytes = 96, .rank = 1, .world = 2, .version = "0.0.9"};
    int host = connect_to(crew->path);
    must(write(host, &hello, sizeof hello) == sizeof hello);
    char word;
    must(read(host, &word, 1) == 1);
}

static void another_version(void **state) {
    (void)state;
    struct attempt attempt = attempt_of(2, MMOE_MISMATCH);
    attempt.as[1].before = send_old_hello;
    attempt.as[1].absent = true;
    char says[96];
    snprintf(says, sizeof says, "the library version is \"%s\" on rank 0 and \"0.0.9\" on rank 1", mmoe_version());
    attempt.says[0] = says;
    try(&attempt);
}

/* A socket file of a run that died is no obstacle. */
static void leave_stale_file(const struct crew *crew) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", crew->path);
    int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(bind(made, (const struct sockaddr *)&address, sizeof address) == 0);
    close(made);
}

static void stale_file(void **state) {
    (void)state;
    struct attempt attempt = attempt_of(2, MMOE_OK);
    attempt.as[0].before = leave_stale_file;
    try(&attempt);
    attempt = short_attempt_of(2, MMOE_TIMEOUT); /* and when rank 0 never comes, the others remove it */
    attempt.as[0].absent = true;
    attempt.as[1].before = leave_stale_file;
    attempt.says[0] = "rank 0 did not come";
    try(&attempt);
}

static void write_file(const struct crew *crew) {
    int made = open(crew->path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    must(write(made, "precious", 8) == 8);
    close(made);
}

static void find_file_intact(struct rig_rank *rank, void *context) {
    struct attempt *attempt = context;
    join_as(rank, attempt);
    struct stat file;
    RIG_EXPECT(rank, stat(attempt->crew.path, &file) == 0 && file.st_size == 8, "the file was touched");
    unlink(attempt->crew.path);
}

static void somebody_elses_file(void **state) {
    (void)state;
    struct attempt attempt = attempt_of(1, MMOE_INVALID_ARGUMENT);
    attempt.as[0].world = 2;
    attempt.as[0].before = write_file;
    attempt.says[0] = "a file that is no socket is there";
    crew_run(&attempt.crew, find_file_intact, &attempt);
}

/* ---- Bad arguments ------------------------------------------------------------------------------- */

static void expect_bad_place(const char *rendezvous, const char *says) {
    struct crew crew = crew_of(2, RIG_PROCESSES);
    mmoe_group *group = (mmoe_group *)1;
    for (int r = 0; r < 2; r++) {
        assert_int_equal(mm_group_make_processes(&crew.config, rendezvous, r, 2, &crew_backend, NULL, &group),
                         MMOE_INVALID_ARGUMENT);
        assert_null(group);
        assert_non_null(strstr(mmoe_last_error(), says));
    }
}

static void bad_places(void **state) {
    (void)state;
    char longest[200] = "path:/tmp/";
    memset(longest + strlen(longest), 'x', 150);
    expect_bad_place(longest, "expected 1 .. 107 bytes");
    expect_bad_place("path:/tmp/no such folder/meet", "expected a name in an existing folder");
    expect_bad_place("path:", "expected 1 .. 107 bytes");
    expect_bad_place("elsewhere", "expected path:... or name:...");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b16_numbers),
        cmocka_unit_test(b16_name_and_backend),
        cmocka_unit_test(own_fields),
        cmocka_unit_test(uneven_worlds),
        cmocka_unit_test(duplicate_ranks),
        cmocka_unit_test(a_guest_does_not_come),
        cmocka_unit_test(the_host_does_not_come),
        cmocka_unit_test(the_first_limit_counts),
        cmocka_unit_test(b37_failure_on_one_rank),
        cmocka_unit_test(no_memory_on_one_rank),
        cmocka_unit_test(more_than_the_machine_has),
        cmocka_unit_test(b37_poor_shared_memory_folder),
        cmocka_unit_test(two_ranks_in_one_process),
        cmocka_unit_test(foreign_connections),
        cmocka_unit_test(another_version),
        cmocka_unit_test(stale_file),
        cmocka_unit_test(somebody_elses_file),
        cmocka_unit_test(bad_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
