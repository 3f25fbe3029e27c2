/* Running ranks that make their groups themselves. */
#include "crew.h"

#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* cmocka needs the headers above first */
#include <cmocka.h>

#include "base/clock.h"
#include "group/rendezvous.h"

#define DEFAULT_SECONDS 60

static mmoe_status open_nothing(struct mmoe_group *group) {
    (void)group;
    return MMOE_OK;
}

static void close_nothing(struct mmoe_group *group) {
    (void)group;
}

const struct mm_backend crew_backend = {
    .name = "none",
    .segments = &mm_host_segments,
    .layout = mm_layout_of,
    .group_open = open_nothing,
    .group_close = close_nothing,
};

struct crew crew_of(int world, enum rig_kind kind) {
    struct crew crew = {.world = world, .kind = kind, .config = mmoe_group_config_default(), .backend = &crew_backend};
    crew.config.max_tokens = 6;
    crew.config.max_hidden = 8;
    crew.config.max_top_k = 2;
    crew.config.max_experts = 8;
    crew.config.arrive_timeout_ms = crew.config.progress_timeout_ms = 20000;
    return crew;
}

mmoe_status crew_join(const struct crew *crew, int rank, mmoe_group **group) {
    if (crew->kind == RIG_THREADS) {
        *group = crew->group[rank];
        return MMOE_OK;
    }
    char rendezvous[160];
    snprintf(rendezvous, sizeof rendezvous, "path:%s", crew->path);
    return mm_group_make_processes(&crew->config, rendezvous, rank, crew->world, crew->backend, crew->hook, group);
}

bool crew_has_socket(const char *rendezvous) {
    struct mm_place place;
    char line[512];
    bool found = false;
    assert_int_equal(mm_place_of(rendezvous, "", &place), MMOE_OK);
    FILE *file = fopen("/proc/net/unix", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        found = found || strstr(line, place.address.sun_path + 1) != NULL;
    }
    fclose(file);
    return found;
}

bool says(const char *text) {
    return strstr(mmoe_last_error(), text) != NULL;
}

/* ---- What may not be left ------------------------------------------------------------------------ */

/* Named shared memory of the library's; other programs come and go there. */
static int shared_objects(void) {
    DIR *opened = opendir("/dev/shm");
    int count = 0;
    for (struct dirent *entry; opened != NULL && (entry = readdir(opened)) != NULL;) {
        count += strstr(entry->d_name, "megamoe") != NULL;
    }
    if (opened != NULL) {
        closedir(opened);
    }
    return count;
}

static bool is_listed(const char *file, const char *text) {
    FILE *opened = fopen(file, "r");
    char line[512];
    bool found = false;
    while (opened != NULL && fgets(line, sizeof line, opened) != NULL) {
        found = found || strstr(line, text) != NULL;
    }
    if (opened != NULL) {
        fclose(opened);
    }
    return found;
}

static void expect_nothing_left(const char *folder, int shared_before) {
    if (rmdir(folder) != 0) {
        fail_msg("something is left in the rendezvous folder %s: %s", folder, strerror(errno));
    }
    assert_false(is_listed("/proc/net/unix", folder));
    assert_int_equal(shared_objects(), shared_before);
    errno = 0;
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

/* ---- Processes ----------------------------------------------------------------------------------- */

static double limit_of(const struct crew *crew) {
    return mm_now() + (crew->seconds != 0 ? crew->seconds : DEFAULT_SECONDS);
}

static pid_t start_process(struct rig_rank *rank, rig_body body, void *context, pid_t parent) {
    pid_t id = fork();
    assert_true(id >= 0);
    if (id == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent) {
            body(rank, context);
        }
        _exit(0);
    }
    return id;
}

static void await_process(struct rig_rank *rank, pid_t id, double limit) {
    int status = 0;
    while (waitpid(id, &status, WNOHANG) == 0) {
        if (mm_now() > limit) {
            rig_fail(rank, __FILE__, __LINE__, "hangs");
            kill(id, SIGKILL);
            waitpid(id, &status, 0);
            return;
        }
        usleep(500);
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        rig_fail(rank, __FILE__, __LINE__, "died: wait status 0x%x", status);
    }
}

static void run_processes(struct crew *crew, struct rig_rank *ranks, rig_body body, void *context) {
    char folder[] = "/tmp/crew-XXXXXX", path[64];
    const int shared_before = shared_objects();
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/meet", folder);
    crew->path = path;
    fflush(NULL);
    pid_t ids[MMOE_MAX_WORLD];
    const pid_t parent = getpid();
    for (int r = 0; r < crew->world; r++) {
        ids[r] = start_process(&ranks[r], body, context, parent);
    }
    const double limit = limit_of(crew);
    for (int r = 0; r < crew->world; r++) {
        if (!(crew->expendable >> r & 1)) {
            await_process(&ranks[r], ids[r], limit);
        }
    }
    for (int r = 0; r < crew->world; r++) {
        if (crew->expendable >> r & 1) {
            kill(ids[r], SIGKILL);
            waitpid(ids[r], NULL, 0);
        }
    }
    expect_nothing_left(folder, shared_before);
}

/* ---- Threads ------------------------------------------------------------------------------------- */

struct thread {
    pthread_t id;
    struct rig_rank *rank;
    rig_body body;
    void *context;
};

static void *thread_main(void *argument) {
    struct thread *thread = argument;
    thread->body(thread->rank, thread->context);
    return NULL;
}

static void run_threads(struct crew *crew, struct rig_rank *ranks, rig_body body, void *context) {
    assert_int_equal(mm_group_make_threads(&crew->config, crew->world, crew->backend, crew->hook, crew->group),
                     MMOE_OK);
    struct thread threads[MMOE_MAX_WORLD];
    for (int r = 0; r < crew->world; r++) {
        threads[r] = (struct thread){.rank = &ranks[r], .body = body, .context = context};
        assert_int_equal(pthread_create(&threads[r].id, NULL, thread_main, &threads[r]), 0);
    }
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += (time_t)(limit_of(crew) - mm_now());
    bool hung = false;
    for (int r = 0; r < crew->world; r++) {
        if (pthread_timedjoin_np(threads[r].id, NULL, &limit) != 0) {
            print_error("rank %d of %d hangs\n", r, crew->world);
            hung = true;
        }
    }
    if (hung) { /* a thread can't be taken away: the whole program ends */
        _exit(1);
    }
}

void crew_run(struct crew *crew, rig_body body, void *context) {
    struct rig_rank *ranks = rig_shared((size_t)crew->world * sizeof *ranks);
    for (int r = 0; r < crew->world; r++) {
        ranks[r].rank = r;
        ranks[r].world = crew->world;
    }
    (crew->kind == RIG_THREADS ? run_threads : run_processes)(crew, ranks, body, context);
    int failed = 0;
    for (int r = 0; r < crew->world; r++) {
        if (ranks[r].failed) {
            print_error("%s\n", ranks[r].failure);
            failed++;
        }
    }
    rig_shared_free(ranks);
    if (failed > 0) {
        fail_msg("%d of %d ranks failed", failed, crew->world);
    }
}
