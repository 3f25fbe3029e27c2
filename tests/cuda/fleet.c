/* Groups on a machine of fake GPUs; see fleet.h. */
#include "fleet.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cuda/cuda.h"
#include "cuda/state.h"
#include "fakes.h"

int use_fleet(void **state) {
    (void)state;
    static const char *const faults[] = {"FAKE_FAIL",        "FAKE_COARSE", "FAKE_LOSES",      "FAKE_NO_ACCESS",
                                         "FAKE_HIDES_PEERS", "LOCAL_RANK",  "FAKE_NO_ATOMICS", "MEGAMOE_SHARE_GPUS"};
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
        unsetenv(faults[i]);
    fake_use("fleet");
    return 0;
}

struct crew crew_on(int world, enum rig_kind kind) {
    struct crew crew = crew_of(world, kind);
    crew.backend = &mm_cuda_backend;
    crew.config.backend = "cuda";
    return crew;
}

int open_descriptors(void) {
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    assert_non_null(folder);
    while (readdir(folder) != NULL)
        count++;
    closedir(folder);
    return count;
}

void expect_nothing_left(struct rig_rank *rank, int descriptors) {
    RIG_EXPECT(rank, fake_living() == 0 && open_descriptors() == descriptors, "%d objects and %d descriptors are left",
               fake_living(), open_descriptors() - descriptors);
}

static const struct mm_cuda_group *cuda_of(const mmoe_group *group) {
    return group->backend_state;
}

uint32_t *block_of(const mmoe_group *group, int rank) {
    return mm_at(cuda_of(group)->shared.base[rank]);
}

/* ---- Sharing ---- */

uint32_t mark(int writer, int owner) {
    return 1000 + 100 * (uint32_t)writer + (uint32_t)owner;
}

uint32_t *place(const mmoe_group *group, int writer, int owner) {
    const size_t words = cuda_of(group)->layout.bytes / sizeof(uint32_t);
    return block_of(group, owner) + words - MMOE_MAX_WORLD + (size_t)writer;
}

static void expect_zeros(struct rig_rank *rank, const mmoe_group *group) {
    const size_t words = cuda_of(group)->layout.bytes / sizeof(uint32_t);
    for (int owner = 0; owner < rank->world; owner++)
        for (size_t i = 0; i < words; i++)
            RIG_EXPECT(rank, block_of(group, owner)[i] == 0, "word %zu of rank %d's block is %x", i, owner,
                       block_of(group, owner)[i]);
}

struct meeting {
    struct crew crew;
    int gpu[8]; /* that the ranks take, in turn */
    int gpus;
    pthread_barrier_t barrier;
};

/* Everybody writes to everybody, and finds what everybody wrote. The last rank leaves first: the others still see its
 * block. */
static void share(struct rig_rank *rank, void *context) {
    struct meeting *meeting = context;
    const int descriptors = open_descriptors();
    mmoe_group *group;
    RIG_OK(rank, crew_join(&meeting->crew, rank->rank, &group));
    RIG_EXPECT(rank, mmoe_group_device(group) == meeting->gpu[rank->rank % meeting->gpus], "on GPU %d",
               mmoe_group_device(group));
    expect_zeros(rank, group);
    pthread_barrier_wait(&meeting->barrier);
    for (int owner = 0; owner < rank->world; owner++)
        *place(group, rank->rank, owner) = mark(rank->rank, owner);
    pthread_barrier_wait(&meeting->barrier);
    if (rank->rank == rank->world - 1)
        mmoe_group_destroy(&group);
    pthread_barrier_wait(&meeting->barrier);
    for (int owner = 0; owner < rank->world && group != NULL; owner++)
        for (int writer = 0; writer < rank->world; writer++)
            RIG_EXPECT(rank, *place(group, writer, owner) == mark(writer, owner), "%u from rank %d in rank %d's block",
                       *place(group, writer, owner), writer, owner);
    mmoe_group_destroy(&group);
    if (meeting->crew.kind == RIG_PROCESSES)
        expect_nothing_left(rank, descriptors);
}

void run_sharing_of(const int *gpu, int gpus, int world, enum rig_kind kind) {
    struct meeting *meeting = rig_shared(sizeof *meeting);
    meeting->crew = crew_on(world, kind);
    memcpy(meeting->gpu, gpu, (size_t)gpus * sizeof *gpu);
    meeting->gpus = gpus;
    rig_barrier_make(&meeting->barrier, world);
    const int descriptors = open_descriptors();
    crew_run(&meeting->crew, share, meeting);
    assert_int_equal(open_descriptors(), descriptors);
    assert_int_equal(fake_living(), 0);
    pthread_barrier_destroy(&meeting->barrier);
    rig_shared_free(meeting);
}

void run_sharing(int world, enum rig_kind kind) {
    static const int fleet[] = {0, 1, 2, 3, 4, 5, 6, 7};
    run_sharing_of(fleet, 8, world, kind);
}
