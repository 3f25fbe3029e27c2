/* Memory that GPUs share: kernels reach the blocks of peers, adopted blocks serve as well as own ones, and nothing of a
 * group is left. One rank a GPU: on simulated GPUs as many as MEGAMOE_SIM_DEVICES says, and on all of this machine
 * without it. What a real driver doesn't tell exactly is looked at on simulated ones alone. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rig/rig.h"

/* cmocka comes with the rig */
#include "cuda/cuda.h"
#include "cuda/state.h"
#include "group/crew.h"
#include "kernels/row_params.h"

#define MOST_RANKS 8
#define ROW 64 /* elements of bf16 that a rank writes to each block */
#define TOKENS 20

static int ranks; /* as many as GPUs */

static bool simulated(void) {
    return getenv("MEGAMOE_SIM_DEVICES") != NULL;
}

static int count_gpus(void) {
    struct mm_driver driver;
    int count = 0;
    if (mm_driver_open(&driver, MM_DRIVER_VERSION_NEEDED) == MMOE_OK) {
        mm_device_count(&driver, &count);
        mm_driver_close(&driver);
    }
    return count < MOST_RANKS ? count : MOST_RANKS;
}

/* In a process of its own: a driver that was started is of no use to forked ranks. */
static int count_ranks(void **state) {
    (void)state;
    int status = 0;
    pid_t id = fork();
    if (id == 0)
        _exit(count_gpus());
    if (id < 0 || waitpid(id, &status, 0) != id || !WIFEXITED(status))
        return -1;
    ranks = WEXITSTATUS(status);
    return 0;
}

/* To be called by the tests themselves: a set-up that skips counts as failed. */
static void need_several(void) {
    if (ranks < 2) {
        print_message("not run: it needs two GPUs\n");
        skip();
    }
}

static void need_simulated(void) {
    if (!simulated()) {
        print_message("not run: it needs simulated GPUs\n");
        skip();
    }
    need_several();
}

static struct crew crew_on(int world, enum rig_kind kind) {
    struct crew crew = crew_of(world, kind);
    crew.backend = &mm_cuda_backend;
    crew.config.backend = "cuda";
    crew.config.max_tokens = TOKENS;
    crew.config.max_hidden = ROW;
    return crew;
}

static struct mm_cuda_group *cuda_of(const mmoe_group *group) {
    return group->backend_state;
}

/* ---- Kernels reach the blocks of peers ---- */

/* The x slot has room for a row of each writer. */
static uint16_t *row_of(const mmoe_group *group, int owner, int writer) {
    const struct mm_cuda_group *cuda = cuda_of(group);
    return (uint16_t *)mm_at(cuda->shared.base[owner] + cuda->layout.x) + (size_t)writer * ROW;
}

static mmoe_status write_row(const mmoe_group *group, int owner) {
    const struct mm_cuda_group *cuda = cuda_of(group);
    const struct mm_launch launch = {.ctas = 1, .threads = ROW_THREADS};
    const struct fill_nan_params params = {.to = {row_of(group, owner, group->rank), {ROW, 1}}, .rows = 1, .cols = ROW};
    mmoe_status status = mm_gpu_enter(&cuda->gpu);
    if (status == MMOE_OK) {
        status = mm_kernel_launch(&cuda->gpu, &cuda->kernels[MM_KERNEL_FILL_NAN], &launch, &params);
        if (status == MMOE_OK)
            status = MM_CU(&cuda->gpu.driver, cuStreamSynchronize, "writing a row", NULL);
        mm_gpu_leave(&cuda->gpu);
    }
    return status;
}

struct sharing {
    struct crew crew;
    pthread_barrier_t barrier;
};

static void expect_words(struct rig_rank *rank, mmoe_group *group, int owner, bool written) {
    const size_t bytes = cuda_of(group)->layout.bytes;
    uint16_t *words = malloc(bytes);
    const mmoe_status status = mmoe_device_read(group, words, mm_at(cuda_of(group)->shared.base[owner]), bytes);
    const size_t begin = cuda_of(group)->layout.x / 2, end = begin + (size_t)rank->world * ROW;
    size_t wrong = 0;
    for (size_t i = 0; i < bytes / 2 && status == MMOE_OK; i++)
        wrong += words[i] != (written && i >= begin && i < end ? 0x7fc0 : 0);
    free(words);
    RIG_EXPECT(rank, status == MMOE_OK, "can't read: %s", mmoe_last_error());
    RIG_EXPECT(rank, wrong == 0, "%zu words of rank %d's block are wrong, %swritten", wrong, owner,
               written ? "" : "not ");
}

static void reach(struct rig_rank *rank, void *context) {
    struct sharing *sharing = context;
    mmoe_group *group;
    RIG_OK(rank, crew_join(&sharing->crew, rank->rank, &group));
    RIG_EXPECT(rank, mmoe_group_device(group) == rank->rank, "on GPU %d", mmoe_group_device(group));
    for (int owner = 0; owner < rank->world; owner++)
        expect_words(rank, group, owner, false);
    pthread_barrier_wait(&sharing->barrier);
    for (int owner = 0; owner < rank->world; owner++)
        RIG_OK(rank, write_row(group, owner));
    pthread_barrier_wait(&sharing->barrier);
    expect_words(rank, group, rank->rank, true);
    mmoe_group_destroy(&group);
}

/* Bytes of a device that are free; its context is taken for the time of asking. */
static size_t available(int ordinal) {
    struct mm_gpu gpu;
    const struct mm_device_wish wish = {.number = ordinal};
    size_t free_bytes = 0, total;
    assert_int_equal(mm_gpu_open(&gpu, &wish), MMOE_OK);
    assert_int_equal(mm_gpu_enter(&gpu), MMOE_OK);
    assert_int_equal(gpu.driver.cuMemGetInfo(&free_bytes, &total), MM_CUDA_SUCCESS);
    mm_gpu_leave(&gpu);
    mm_gpu_close(&gpu);
    return free_bytes;
}

static void run_reaching(enum rig_kind kind) {
    struct sharing *sharing = rig_shared(sizeof *sharing);
    sharing->crew = crew_on(ranks, kind);
    rig_barrier_make(&sharing->barrier, ranks);
    crew_run(&sharing->crew, reach, sharing);
    pthread_barrier_destroy(&sharing->barrier);
    rig_shared_free(sharing);
}

/* A simulated GPU is in one process. */
static void join_in_vain(struct rig_rank *rank, void *context) {
    mmoe_group *group;
    EXPECT_FAILURE(rank, crew_join(context, rank->rank, &group), MMOE_UNSUPPORTED,
                   "rank 0 failed in set-up: mapping the memory of a peer, from rank 0 on GPU simulated:00 to rank 1 "
                   "on GPU simulated:01: cuMemImportFromShareableHandle gave CUDA_ERROR_NOT_SUPPORTED (801): simulated "
                   "memory can't be shared between processes");
}

static void processes_reach_their_peers(void **state) {
    (void)state;
    need_several();
    struct crew crew = crew_on(ranks, RIG_PROCESSES);
    if (simulated())
        crew_run(&crew, join_in_vain, &crew);
    else
        run_reaching(RIG_PROCESSES);
}

static void threads_reach_their_peers(void **state) {
    (void)state;
    need_several();
    run_reaching(RIG_THREADS);
}

static void nothing_is_left(void **state) {
    (void)state;
    need_simulated();
    size_t before[MOST_RANKS];
    for (int r = 0; r < ranks; r++)
        before[r] = available(r);
    run_reaching(RIG_THREADS);
    for (int r = 0; r < ranks; r++)
        assert_int_equal(available(r), before[r]);
}

/* ---- Set-up that fails ---- */

static void more_ranks_than_gpus(void **state) {
    (void)state;
    need_several();
    const int world = ranks + 1;
    const struct crew crew = crew_on(world, RIG_THREADS);
    mmoe_group *groups[MOST_RANKS + 1];
    char expected[80];
    snprintf(expected, sizeof expected, "ranks 0 and %d are both on GPU ", world - 1);
    assert_int_equal(mm_group_make_threads(&crew.config, world, crew.backend, NULL, groups), MMOE_UNSUPPORTED);
    assert_true(says(expected));
    assert_null(groups[0]);
}

/* Another group has taken what the last rank would need. */
static void memory_of_one_gpu_is_short(void **state) {
    (void)state;
    need_simulated();
    const int world = ranks, last = world - 1;
    struct crew crew = crew_on(world, RIG_THREADS);
    struct mm_gpu gpu;
    const struct mm_device_wish wish = {.number = last};
    struct mm_device_buffer taken = {0};
    mmoe_group *groups[MOST_RANKS];
    char expected[80];
    const size_t before = available(0), rest = available(last) - 1000;
    assert_int_equal(mm_gpu_open(&gpu, &wish), MMOE_OK);
    assert_int_equal(mm_gpu_enter(&gpu), MMOE_OK);
    assert_int_equal(mm_device_reserve(&gpu, &taken, rest, "nothing"), MMOE_OK);
    snprintf(expected, sizeof expected, "rank %d failed in set-up: no memory on GPU %d", last, last);
    assert_int_equal(mm_group_make_threads(&crew.config, world, crew.backend, NULL, groups), MMOE_OUT_OF_MEMORY);
    if (!says(expected))
        fail_msg("%s", mmoe_last_error());
    mm_device_free(&gpu, &taken);
    mm_gpu_leave(&gpu);
    mm_gpu_close(&gpu);
    assert_int_equal(available(0), before);
    assert_int_equal(mm_group_make_threads(&crew.config, world, crew.backend, NULL, groups), MMOE_OK);
    for (int r = 0; r < world; r++)
        mmoe_group_destroy(&groups[r]);
}

/* ---- Adopted blocks ---- */

/* All ranks' blocks as a rank of the crew's group has mapped them. */
static void blocks_of(const mmoe_group *group, void **blocks) {
    for (int r = 0; r < group->world; r++)
        blocks[r] = mm_at(cuda_of(group)->shared.base[r]);
}

/* For a rank on each GPU. */
static struct rig_batch batch_for_all(enum rig_routing routing, uint64_t seed) {
    const mmoe_layer_config layer = rig_layer(ROW, 64, 2 * ranks, 2);
    int64_t tokens[MOST_RANKS];
    for (int r = 0; r < ranks; r++)
        tokens[r] = TOKENS - r;
    return rig_batch_make(&layer, ranks, tokens, routing, seed);
}

static bool two_steps(struct rig_rank *rank, mmoe_group *group, struct rig_batch *batch) {
    const struct rig_options options = {.keep = MMOE_KEEP_PLAN};
    mmoe_layer *layer;
    mmoe_saved *saved;
    rank->group = group;
    RIG_TRY(rank, mmoe_layer_create(group, &batch->layer, &layer) == MMOE_OK, "no layer: %s", mmoe_last_error());
    RIG_TRY(rank, mmoe_saved_create(layer, options.keep, &saved) == MMOE_OK, "nothing kept: %s", mmoe_last_error());
    const bool good =
        rig_step(rank, layer, saved, batch, &options, 0xff) && rig_step(rank, layer, saved, batch, &options, 0x7f);
    mmoe_saved_destroy(&saved);
    mmoe_layer_destroy(&layer);
    return good;
}

struct computing {
    struct sharing sharing;
    struct rig_batch *batch;
    bool adopt; /* the blocks of the crew's group, which makes no calls itself */
};

static void compute(struct rig_rank *rank, void *context) {
    struct computing *computing = context;
    mmoe_group *made = computing->sharing.crew.group[rank->rank], *group = made;
    void *blocks[MOST_RANKS];
    blocks_of(made, blocks);
    if (computing->adopt)
        RIG_OK(rank,
               mmoe_group_create_adopted(&computing->sharing.crew.config, rank->rank, rank->world, blocks, &group));
    RIG_EXPECT(rank, mmoe_group_device(group) == rank->rank, "on GPU %d", mmoe_group_device(group));
    const bool good = two_steps(rank, group, computing->batch);
    pthread_barrier_wait(&computing->sharing.barrier); /* blocks stay until every rank has destroyed its group */
    if (computing->adopt)
        mmoe_group_destroy(&group);
    pthread_barrier_wait(&computing->sharing.barrier);
    mmoe_group_destroy(&made);
    RIG_EXPECT(rank, good, "no result");
}

static void run_steps(struct rig_batch *batch, bool adopt) {
    struct computing computing = {.batch = batch, .adopt = adopt};
    struct crew *crew = &computing.sharing.crew;
    *crew = crew_on(batch->world, RIG_THREADS);
    crew->config.max_experts = batch->layer.experts;
    rig_barrier_make(&computing.sharing.barrier, crew->world);
    crew_run(crew, compute, &computing);
    pthread_barrier_destroy(&computing.sharing.barrier);
}

static void adopted_blocks_give_the_same_bits(void **state) {
    (void)state;
    need_several();
    struct rig_batch batch = batch_for_all(RIG_UNIFORM, 41), adopted = batch_for_all(RIG_UNIFORM, 41);
    run_steps(&batch, false);
    run_steps(&adopted, true);
    rig_same_bits(&batch, &adopted, "adopted blocks");
    rig_batch_free(&batch);
    rig_batch_free(&adopted);
}

/* ---- Adopted blocks of ranks that differ ---- */

/* Differences that must be found before anything is written where a rank believes its peers' slots to be. */
enum difference { SMALLER_SLOTS, ANOTHER_NAME, FEWER_RANKS, DIFFERENCES };

struct differing {
    struct sharing sharing;
    struct rig_batch *batch;
    enum difference difference;
};

/* Told to rank 0, which is the one that differs, and to all others. */
static const char *const difference_texts[DIFFERENCES] = {
    [SMALLER_SLOTS] = "max_tokens is 20 on rank 0 and 1280 on rank ",
    [ANOTHER_NAME] = "\"other\" on rank 0 and \"\" on rank ",
    [FEWER_RANKS] = " on rank 0 and ",
};

static mmoe_group_config config_of(const struct differing *differing, int rank) {
    mmoe_group_config config = differing->sharing.crew.config;
    if (rank == 0 && differing->difference == SMALLER_SLOTS)
        config.max_tokens = TOKENS;
    if (rank == 0 && differing->difference == ANOTHER_NAME)
        config.name = "other";
    return config;
}

/* Whether all of the rank's block past the devices' control part is still zero. */
static bool is_untouched(mmoe_group *group, const void *block, size_t bytes) {
    unsigned char *copy = malloc(bytes);
    bool zero = mmoe_device_read(group, copy, block, bytes) == MMOE_OK;
    for (size_t i = sizeof(struct call_control); i < bytes; i++)
        zero = zero && copy[i] == 0;
    free(copy);
    return zero;
}

static bool fails_with(struct rig_rank *rank, mmoe_group *group, struct rig_batch *batch, mmoe_status expected,
                       const char *text) {
    const struct rig_options options = {.keep = MMOE_KEEP_PLAN};
    mmoe_layer_config config = batch->layer;
    mmoe_layer *layer;
    struct rig_placed placed;
    rank->group = group;
    config.experts = config.experts / batch->world * mmoe_group_world(group);
    RIG_TRY(rank, mmoe_layer_create(group, &config, &layer) == MMOE_OK, "no layer: %s", mmoe_last_error());
    struct rig_call call = rig_call_make(rank, batch, &options, NULL, 0xff);
    const bool placed_well = rig_call_place(rank, &call, &placed);
    const mmoe_status status = mmoe_forward(layer, &call.forward);
    const bool right = status == expected && strstr(mmoe_last_error(), text) != NULL;
    char said[256];
    snprintf(said, sizeof said, "%s: %s", mmoe_status_name(status), mmoe_last_error());
    rig_placed_free(rank, &placed);
    rig_call_free(&call);
    mmoe_layer_destroy(&layer);
    RIG_TRY(rank, placed_well && right, "%s", said);
    return true;
}

static void differ(struct rig_rank *rank, void *context) {
    struct differing *differing = context;
    mmoe_group *made = differing->sharing.crew.group[rank->rank], *group;
    const mmoe_group_config config = config_of(differing, rank->rank);
    const int world = rank->world - (rank->rank == 0 && differing->difference == FEWER_RANKS);
    const char *text = difference_texts[differing->difference];
    void *blocks[MOST_RANKS];
    blocks_of(made, blocks);
    RIG_OK(rank, mmoe_group_create_adopted(&config, rank->rank, world, blocks, &group));
    const bool good = fails_with(rank, group, differing->batch, MMOE_MISMATCH, text) &&
                      fails_with(rank, group, differing->batch, MMOE_BROKEN, text);
    pthread_barrier_wait(&differing->sharing.barrier);
    const bool untouched = is_untouched(made, blocks[rank->rank], cuda_of(made)->layout.bytes);
    pthread_barrier_wait(&differing->sharing.barrier);
    mmoe_group_destroy(&group);
    mmoe_group_destroy(&made);
    RIG_EXPECT(rank, good, "not told: %s", text);
    RIG_EXPECT(rank, untouched, "a block was written to");
}

static void adopted_blocks_of_ranks_that_differ(void **state) {
    (void)state;
    need_several();
    struct rig_batch batch = batch_for_all(RIG_UNUSED, 42);
    for (int difference = 0; difference < DIFFERENCES; difference++) {
        struct differing differing = {.batch = &batch, .difference = (enum difference)difference};
        struct crew *crew = &differing.sharing.crew;
        if (difference == FEWER_RANKS && ranks < 3) /* one rank alone has no peers */
            continue;
        *crew = crew_on(ranks, RIG_THREADS);
        crew->config.max_experts = batch.layer.experts;
        crew->config.max_tokens = 64 * TOKENS;
        rig_barrier_make(&differing.sharing.barrier, crew->world);
        crew_run(crew, differ, &differing);
        pthread_barrier_destroy(&differing.sharing.barrier);
    }
    rig_batch_free(&batch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_reach_their_peers), /* before this process uses the driver */
        cmocka_unit_test(threads_reach_their_peers),
        cmocka_unit_test(adopted_blocks_give_the_same_bits),
        cmocka_unit_test(adopted_blocks_of_ranks_that_differ),
        cmocka_unit_test(more_ranks_than_gpus),
        cmocka_unit_test(nothing_is_left),
        cmocka_unit_test(memory_of_one_gpu_is_short),
    };
    return cmocka_run_group_tests(tests, count_ranks, NULL);
}
