/* Worlds of threads and of processes. */
#include "rig/world.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* cmocka needs the headers above first */
#include <cmocka.h>

#include "backend/backend.h"
#include "base/clock.h"
#include "rig/allocation.h"
#include "rig/device.h"
#include "rig/one_gpu.h"

#define DEFAULT_SECONDS 60
#define SHARED_HEADER 128

void *rig_shared(size_t bytes) {
    size_t *block = mmap(NULL, bytes + SHARED_HEADER, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED)
        abort();
    *block = bytes + SHARED_HEADER;
    return (char *)block + SHARED_HEADER;
}

void rig_barrier_make(pthread_barrier_t *barrier, int world) {
    pthread_barrierattr_t shared;
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(barrier, &shared, (unsigned)world);
    pthread_barrierattr_destroy(&shared);
}

void rig_shared_free(void *memory) {
    if (!memory)
        return;
    size_t *block = (size_t *)(void *)((char *)memory - SHARED_HEADER);
    munmap(block, *block);
}

bool rig_fail(struct rig_rank *rank, const char *file, int line, const char *format, ...) {
    if (rank->failed)
        return false;
    int used =
        snprintf(rank->failure, sizeof rank->failure, "rank %d of %d, %s:%d: ", rank->rank, rank->world, file, line);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(rank->failure + used, sizeof rank->failure - (size_t)used, format, arguments);
    va_end(arguments);
    rank->failed = true;
    return false;
}

int rig_scaled(const char *what, int full, int small) {
    if (!rig_small())
        return full;
    print_message("reduced: %s: %d instead of %d\n", what, small, full);
    return small;
}

const char *rig_backend(void) {
    const char *name = getenv("MMOE_TEST_BACKEND");
    return name ? name : "cpu";
}

struct rig_world rig_world_make(int world, enum rig_kind kind, int64_t max_tokens, int64_t hidden, int64_t top_k,
                                int64_t experts) {
    struct rig_world made = {.world = world, .kind = kind, .victim = RIG_NO_VICTIM};
    made.config = mmoe_group_config_default();
    made.config.max_tokens = max_tokens;
    made.config.max_hidden = hidden;
    made.config.max_top_k = top_k;
    made.config.max_experts = experts;
    made.config.backend = rig_backend();
    made.config.arrive_timeout_ms = 20000;
    made.config.progress_timeout_ms = 20000;
    return made;
}

/* What the ranks and the runner share. */
struct stage {
    const struct rig_world *world;
    rig_body body;
    void *context;
    pthread_barrier_t segments_poisoned;
    struct rig_rank rank[MMOE_MAX_WORLD];
};

static int poison_of(const struct rig_world *world) {
    return world->poison ? world->poison : 0xff;
}

/* Fills all but the flags of a rank's own segment: a read of what no rank has written must show. */
static void poison_segment(const struct stage *stage, const mmoe_group *group) {
    memset(group->segment[group->rank] + group->layout.x, poison_of(stage->world),
           group->layout.bytes - group->layout.x);
}

static void run_rank(struct stage *stage, struct rig_rank *rank) {
    poison_segment(stage, rank->group);
    rig_poison_shared(rank, poison_of(stage->world));
    pthread_barrier_wait(&stage->segments_poisoned);
    if (!rank->failed)
        stage->body(rank, stage->context);
    /* after a failure layers may still stand on the group */
    if (!rank->failed)
        mmoe_group_destroy(&rank->group);
}

static struct stage *stage_make(const struct rig_world *world, rig_body body, void *context) {
    struct stage *stage = rig_shared(sizeof *stage);
    stage->world = world;
    stage->body = body;
    stage->context = context;
    for (int r = 0; r < world->world; r++) {
        stage->rank[r].rank = r;
        stage->rank[r].world = world->world;
    }
    rig_barrier_make(&stage->segments_poisoned, world->world);
    rig_poison_allocations(poison_of(world));
    return stage;
}

/* Frees the stage, and fails the test when a rank has failed. */
static void stage_end(struct stage *stage) {
    const struct rig_world *world = stage->world;
    int failed = 0;
    for (int r = 0; r < world->world; r++)
        if (stage->rank[r].failed && r != world->victim) {
            print_error("%s\n", stage->rank[r].failure);
            failed++;
        }
    rig_shared_free(stage);
    if (failed)
        fail_msg("%d of %d ranks failed", failed, world->world);
}

static double seconds_of(const struct rig_world *world) {
    return world->seconds ? world->seconds : DEFAULT_SECONDS;
}

/* ---- Ranks as threads */

struct thread {
    struct stage *stage;
    struct rig_rank *rank;
    pthread_t id;
};

static void *thread_main(void *argument) {
    struct thread *thread = argument;
    run_rank(thread->stage, thread->rank);
    return NULL;
}

static mmoe_status make_threads(const struct rig_world *world, mmoe_group **groups) {
    if (!world->hook.at)
        return mmoe_group_create_threads(&world->config, world->world, groups);
    const struct mm_backend *backend;
    mmoe_status status = mm_backend_find(world->config.backend, &backend);
    return status != MMOE_OK ? status
                             : mm_group_make_threads(&world->config, world->world, backend, &world->hook, groups);
}

/* With the group and share of each rank. */
static void run_in_threads(struct stage *stage, mmoe_group **groups, struct rig_share **shares) {
    const struct rig_world *world = stage->world;
    struct thread threads[MMOE_MAX_WORLD];
    for (int r = 0; r < world->world; r++) {
        stage->rank[r].group = groups[r];
        stage->rank[r].share = shares[r];
        threads[r] = (struct thread){.stage = stage, .rank = &stage->rank[r]};
        assert_int_equal(pthread_create(&threads[r].id, NULL, thread_main, &threads[r]), 0);
    }
    struct timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += (time_t)seconds_of(world);
    int hung = 0;
    for (int r = 0; r < world->world; r++)
        if (pthread_timedjoin_np(threads[r].id, NULL, &deadline) != 0) {
            print_error("rank %d of %d hangs after %.0f s\n", r, world->world, seconds_of(world));
            hung++;
        }
    if (hung) /* a thread can't be taken away: the whole program ends */
        _exit(1);
}

static void run_threads(struct stage *stage) {
    const struct rig_world *world = stage->world;
    mmoe_group *groups[MMOE_MAX_WORLD];
    struct rig_share *shares[MMOE_MAX_WORLD] = {NULL};
    rig_hold_devices(world->config.backend, world->world);
    if (make_threads(world, groups) != MMOE_OK)
        fail_msg("no group of %d threads: %s", world->world, mmoe_last_error());
    run_in_threads(stage, groups, shares);
}

static void run_on_one_gpu(struct stage *stage) {
    mmoe_group *groups[MMOE_MAX_WORLD];
    struct rig_share *shares[MMOE_MAX_WORLD];
    rig_hold_devices(stage->world->config.backend, 1);
    struct rig_one_gpu *one = rig_one_gpu_open(stage->world, groups, shares);
    if (one == NULL)
        fail_msg("no group of %d ranks on one GPU: %s", stage->world->world, mmoe_last_error());
    run_in_threads(stage, groups, shares);
    rig_one_gpu_close(one);
}

/* ---- Ranks as processes */

static mmoe_status make_process(const struct rig_world *world, const char *path, int rank, mmoe_group **group) {
    if (!world->hook.at)
        return mmoe_group_create_path(&world->config, path, rank, world->world, group);
    const struct mm_backend *backend;
    mmoe_status status = mm_backend_find(world->config.backend, &backend);
    char rendezvous[160];
    snprintf(rendezvous, sizeof rendezvous, "path:%s", path);
    return status != MMOE_OK
               ? status
               : mm_group_make_processes(&world->config, rendezvous, rank, world->world, backend, &world->hook, group);
}

static void process_main(struct stage *stage, const char *path, int r, pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    struct rig_rank *rank = &stage->rank[r];
    if (make_process(stage->world, path, r, &rank->group) != MMOE_OK) {
        rig_fail(rank, __FILE__, __LINE__, "no group: %s", mmoe_last_error());
        _exit(0);
    }
    run_rank(stage, rank);
    _exit(0);
}

/* Waits for rank `r` until the deadline; a rank that hangs or died is reported as a failure of it. */
static void await_process(struct stage *stage, int r, pid_t id, double deadline) {
    int status = 0;
    while (waitpid(id, &status, WNOHANG) == 0) {
        if (mm_now() > deadline) {
            rig_fail(&stage->rank[r], __FILE__, __LINE__, "hangs after %.0f s", seconds_of(stage->world));
            kill(id, SIGKILL);
            waitpid(id, &status, 0);
            return;
        }
        usleep(1000);
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        rig_fail(&stage->rank[r], __FILE__, __LINE__, "died: wait status 0x%x", status);
}

/* Removes the folder of the rendezvous, in which nothing may be left. */
static void remove_folder(const char *folder) {
    if (rmdir(folder) != 0)
        fail_msg("set-up left something in its folder %s: %s", folder, strerror(errno));
}

static void run_processes(struct stage *stage) {
    const struct rig_world *world = stage->world;
    char folder[] = "/tmp/rig-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/meet", folder);
    fflush(NULL);
    pid_t ids[MMOE_MAX_WORLD], parent = getpid();
    for (int r = 0; r < world->world; r++) {
        ids[r] = fork();
        assert_true(ids[r] >= 0);
        if (ids[r] == 0)
            process_main(stage, path, r, parent);
    }
    double deadline = mm_now() + seconds_of(world);
    for (int r = 0; r < world->world; r++)
        if (r != world->victim)
            await_process(stage, r, ids[r], deadline);
    if (world->victim != RIG_NO_VICTIM) {
        kill(ids[world->victim], SIGKILL);
        waitpid(ids[world->victim], NULL, 0);
    }
    remove_folder(folder);
}

void rig_world_run(const struct rig_world *world, rig_body body, void *context) {
    struct stage *stage = stage_make(world, body, context);
    if (world->kind == RIG_PROCESSES)
        run_processes(stage);
    else if (world->kind == RIG_ONE_GPU && world->world > 1 && strcmp(world->config.backend, "cpu") != 0)
        run_on_one_gpu(stage);
    else
        run_threads(stage);
    stage_end(stage);
}
