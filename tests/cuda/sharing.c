/* Memory that the GPUs of a group share: set-up on a machine of fake GPUs, which really map one another's memory, also
 * between processes. The ranks see each other's writes, failures anywhere are told everywhere, and nothing is left. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cuda/cuda.h"
#include "cuda/state.h"
#include "fakes.h"
#include "fleet.h"

/* ---- Sharing ---- */

static void threads_and_processes(void **state) {
    (void)state;
    for (int world = 2; world <= 8; world *= 2) {
        run_sharing(world, RIG_THREADS);
        run_sharing(world, RIG_PROCESSES);
    }
}

/* CUDA_VISIBLE_DEVICES may hide a peer's GPU: nobody can be asked about it, and it works. */
static void a_peer_that_is_not_seen(void **state) {
    (void)state;
    setenv("FAKE_HIDES_PEERS", "1", 1);
    setenv("FAKE_NO_ACCESS", "0-1", 1); /* which nobody asks */
    run_sharing(2, RIG_PROCESSES);
}

/* ---- Failures ---- */

struct fault {
    const char *variable, *value;
    mmoe_status status;
    const char *text[2]; /* parts of the sentence */
};

static const struct fault faults[] = {
    {"FAKE_FAIL",
     "cuMemCreate@1=2",
     MMOE_OUT_OF_MEMORY,
     {"rank 1 failed in set-up: no memory on GPU 1, FAKE 90, for the shared memory of rank 1: 2097152 bytes asked, "
      "1000 of 2000 free"}},
    {"FAKE_FAIL", "cuMemGetAllocationGranularity@2=801", MMOE_UNSUPPORTED, {"rank 2 failed in set-up: asking in what"}},
    {"FAKE_FAIL", "cuMemAddressReserve@1=2", MMOE_OUT_OF_MEMORY, {"the shared memory of rank 1: cuMemAddressReserve"}},
    {"FAKE_FAIL", "cuMemMap@0=999", MMOE_SYSTEM, {"the shared memory of rank 0: cuMemMap gave"}},
    {"FAKE_FAIL", "cuMemSetAccess@2=999", MMOE_SYSTEM, {"the shared memory of rank 2: cuMemSetAccess gave"}},
    {"FAKE_FAIL", "cuMemsetD8Async@1=999", MMOE_SYSTEM, {"the shared memory of rank 1: cuMemsetD8Async gave"}},
    {"FAKE_FAIL", "cuMemHostAlloc@2=2", MMOE_OUT_OF_MEMORY, {"rank 2 failed in set-up: making pinned memory"}},
    {"FAKE_FAIL",
     "cuMemExportToShareableHandle@1=801",
     MMOE_UNSUPPORTED,
     {"rank 1 failed in set-up: offering the shared memory of rank 1: cuMemExportToShareableHandle gave"}},
    {"FAKE_FAIL",
     "cuMemImportFromShareableHandle@1=400",
     MMOE_SYSTEM,
     {"rank 1 failed in set-up: mapping the memory of a peer, from rank 1 on GPU 0000:01:00.0 to rank 0 on GPU "
      "0000:00:00.0: cuMemImportFromShareableHandle gave"}},
    {"FAKE_NO_ACCESS",
     "1-2",
     MMOE_UNSUPPORTED,
     {"rank 1 failed in set-up: no peer access from rank 1 on GPU 0000:01:00.0 to rank 2 on GPU 0000:02:00.0"}},
    {"FAKE_NO_ATOMICS",
     "0-2",
     MMOE_UNSUPPORTED,
     {"rank 0 failed in set-up: no native atomics from rank 0 on GPU 0000:00:00.0 to rank 2 on GPU 0000:02:00.0"}},
    {"FAKE_LOSES",
     "2-1",
     MMOE_SYSTEM,
     {"writing and reading in the memory of a peer, from rank 1 on GPU 0000:01:00.0 to rank 2 on GPU 0000:02:00.0: ",
      "what was written there is not what was read back"}},
    {"FAKE_COARSE", "1", MMOE_MISMATCH, {"the shared memory has 2097152 bytes on rank 0 and 4194304 bytes on rank 1"}},
};

static bool tells(const struct fault *fault) {
    return says(fault->text[0]) && (fault->text[1] == NULL || says(fault->text[1]));
}

static void threads_fail(const struct fault *fault) {
    const struct crew crew = crew_on(RANKS, RIG_THREADS);
    mmoe_group *groups[RANKS];
    const int descriptors = open_descriptors();
    const mmoe_status status = mm_group_make_threads(&crew.config, RANKS, &mm_cuda_backend, NULL, groups);
    if (status != fault->status || !tells(fault))
        fail_msg("%s=%s: %s: %s", fault->variable, fault->value, mmoe_status_name(status), mmoe_last_error());
    for (int r = 0; r < RANKS; r++)
        assert_null(groups[r]);
    assert_int_equal(fake_living(), 0);
    assert_int_equal(open_descriptors(), descriptors);
}

struct failing {
    struct crew crew;
    const struct fault *fault;
    char sentence[RANKS][MM_ERROR_BYTES];
};

static void process_fails(struct rig_rank *rank, void *context) {
    struct failing *failing = context;
    const struct fault *fault = failing->fault;
    const int descriptors = open_descriptors();
    mmoe_group *group;
    const mmoe_status status = crew_join(&failing->crew, rank->rank, &group);
    RIG_EXPECT(rank, status == fault->status && tells(fault), "%s=%s: %s: %s", fault->variable, fault->value,
               mmoe_status_name(status), mmoe_last_error());
    RIG_EXPECT(rank, group == NULL, "there is a group");
    expect_nothing_left(rank, descriptors);
    snprintf(failing->sentence[rank->rank], MM_ERROR_BYTES, "%s", mmoe_last_error());
}

/* The same sentence on every rank. */
static void processes_fail(const struct fault *fault) {
    struct failing *failing = rig_shared(sizeof *failing);
    failing->crew = crew_on(RANKS, RIG_PROCESSES);
    failing->fault = fault;
    crew_run(&failing->crew, process_fails, failing);
    for (int r = 1; r < RANKS; r++)
        assert_string_equal(failing->sentence[r], failing->sentence[0]);
    rig_shared_free(failing);
}

static void failures(void **state) {
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        use_fleet(state);
        setenv(faults[i].variable, faults[i].value, 1);
        threads_fail(&faults[i]);
        processes_fail(&faults[i]);
    }
}

/* What cannot be asked is found by trying. */
static void a_peer_that_is_not_seen_and_not_reached(void **state) {
    (void)state;
    setenv("FAKE_HIDES_PEERS", "1", 1);
    setenv("FAKE_LOSES", "0-1", 1);
    const struct fault fault = {
        "FAKE_LOSES", "0-1", MMOE_SYSTEM, {"from rank 0 on GPU 0000:00:00.0 to rank 1 on GPU 0000:01:00.0"}};
    processes_fail(&fault);
}

/* A rank that dies takes nothing with it and leaves nothing to the others. */
static mmoe_status die(void *context, int rank, enum mm_step step) {
    (void)context;
    if (rank == 1 && step == MM_STEP_MAP)
        _exit(0);
    return MMOE_OK;
}

static void lose_a_rank(struct rig_rank *rank, void *context) {
    const int descriptors = open_descriptors();
    mmoe_group *group;
    EXPECT_FAILURE(rank, crew_join(context, rank->rank, &group), MMOE_PEER_LOST,
                   "rank 1 died or gave up during set-up");
    expect_nothing_left(rank, descriptors);
}

static void a_rank_dies_before_it_maps(void **state) {
    (void)state;
    const struct mm_hook hook = {.at = die};
    struct crew crew = crew_on(RANKS, RIG_PROCESSES);
    crew.hook = &hook;
    crew_run(&crew, lose_a_rank, &crew);
}

struct dying {
    struct crew crew;
    pthread_barrier_t barrier;
    bool refuses; /* rank 1, before it dies: it has told rank 0 that it came to the call */
};

/* A fake GPU launches no kernel, so a call that is made fails with the first one. */
static void call_the_dead(struct rig_rank *rank, void *context) {
    struct dying *dying = context;
    mmoe_layer_config config = mmoe_layer_config_default();
    const mmoe_forward_args args = mmoe_forward_args_default();
    mmoe_group *group;
    mmoe_layer *layer;
    RIG_OK(rank, crew_join(&dying->crew, rank->rank, &group));
    config.hidden = config.intermediate = 64;
    config.experts = rank->world;
    config.top_k = 1;
    RIG_OK(rank, mmoe_layer_create(group, &config, &layer));
    if (rank->rank == 1)
        ((struct call_control *)(void *)block_of(group, 0))->ready[1].value = dying->refuses;
    pthread_barrier_wait(&dying->barrier);
    if (rank->rank == 1)
        raise(SIGKILL);
    while (mm_memory_alive(group->memory, 1))
        usleep(1000);
    const mmoe_status expected = dying->refuses ? MMOE_SYSTEM : MMOE_PEER_LOST;
    const char *text = dying->refuses
                           ? "launching kernel mm_call_open"
                           : "rank 1 has died or left the group: rank 0 was awaiting ready from it in call 1";
    EXPECT_FAILURE(rank, mmoe_forward(layer, &args), expected, text);
    EXPECT_FAILURE(rank, mmoe_forward(layer, &args), MMOE_BROKEN, text);
    mmoe_layer_destroy(&layer);
    mmoe_group_destroy(&group);
}

/* Otherwise the time limit of arrivals would have to pass. A rank that has come has told why it went. */
static void a_dead_rank_is_missed_when_a_call_begins(void **state) {
    (void)state;
    for (int refuses = 0; refuses < 2; refuses++) {
        struct dying *dying = rig_shared(sizeof *dying);
        struct crew *crew = &dying->crew;
        dying->refuses = refuses;
        *crew = crew_on(2, RIG_PROCESSES);
        crew->expendable = 1 << 1;
        crew->config.max_hidden = 64;
        crew->config.max_experts = 2;
        rig_barrier_make(&dying->barrier, dying->crew.world);
        crew_run(crew, call_the_dead, dying);
        pthread_barrier_destroy(&dying->barrier);
        rig_shared_free(dying);
    }
}

/* ---- Which GPU ---- */

static void two_ranks_on_one_gpu(void **state) {
    (void)state;
    const struct fault more_ranks_than_gpus = {
        "", "", MMOE_UNSUPPORTED, {"ranks 0 and 2 are both on GPU 0000:01:00.0"}};
    const struct fault one_choice = {"", "", MMOE_UNSUPPORTED, {"ranks 0 and 1 are both on GPU 0000:01:00.0"}};
    fake_use("pair");
    threads_fail(&more_ranks_than_gpus);
    processes_fail(&more_ranks_than_gpus);
    fake_use("chosen");
    processes_fail(&one_choice);
}

/* Where it is asked for, and only of processes. */
static void ranks_that_share_gpus(void **state) {
    (void)state;
    const struct fault too_many_threads = {"", "", MMOE_UNSUPPORTED, {"ranks 0 and 2 are both on GPU 0000:01:00.0"}};
    static const int pair[] = {1, 3};
    fake_use("pair");
    setenv("MEGAMOE_SHARE_GPUS", "1", 1);
    for (int world = 2; world <= 8; world *= 2)
        run_sharing_of(pair, 2, world, RIG_PROCESSES);
    threads_fail(&too_many_threads);
    setenv("MEGAMOE_SHARE_GPUS", "0", 1);
    processes_fail(&too_many_threads);
}

/* A current context is the choice of a rank that is alone in its process. */
static void a_current_context(void **state) {
    (void)state;
    const struct crew crew = crew_on(2, RIG_THREADS);
    mmoe_group *groups[2], *alone;
    fake_use("chosen");
    assert_int_equal(mm_group_make_threads(&crew.config, 2, &mm_cuda_backend, NULL, groups), MMOE_OK);
    assert_int_equal(mmoe_group_device(groups[0]), 0);
    assert_int_equal(mmoe_group_device(groups[1]), 1);
    assert_int_equal(mm_group_make_threads(&crew.config, 1, &mm_cuda_backend, NULL, &alone), MMOE_OK);
    assert_int_equal(mmoe_group_device(alone), 1);
    mmoe_group_destroy(&alone);
    mmoe_group_destroy(&groups[1]);
    mmoe_group_destroy(&groups[0]);
    assert_int_equal(fake_living(), 0);
}

static void expect_device_of_process(const char *local_rank, int expected) {
    char folder[] = "/tmp/sharing-XXXXXX", path[64];
    const struct crew crew = crew_on(1, RIG_PROCESSES);
    mmoe_group *group;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "path:%s/meet", folder);
    setenv("LOCAL_RANK", local_rank, 1);
    assert_int_equal(mm_group_make_processes(&crew.config, path, 0, 1, &mm_cuda_backend, NULL, &group), MMOE_OK);
    assert_int_equal(mmoe_group_device(group), expected);
    mmoe_group_destroy(&group);
    assert_int_equal(rmdir(folder), 0);
}

/* A group may have a part of the ranks of a host: then its ranks are not the host's. */
static void local_ranks(void **state) {
    (void)state;
    expect_device_of_process("0", 0);
    expect_device_of_process("5", 5);
    expect_device_of_process("11", 3); /* of eight */
    expect_device_of_process("five", 0);
}

/* ---- Adopted blocks ---- */

/* Another group's blocks, as its rank `seen_by` has them mapped. */
static void take_blocks(mmoe_group *const *made, int seen_by, void **blocks) {
    for (int r = 0; r < 2; r++)
        blocks[r] = block_of(made[seen_by], r);
}

static void adopted(void **state) {
    (void)state;
    const struct crew crew = crew_on(2, RIG_THREADS);
    mmoe_group *made[2], *group[2];
    void *blocks[2];
    assert_int_equal(mm_group_make_threads(&crew.config, 2, &mm_cuda_backend, NULL, made), MMOE_OK);
    const int before = fake_living();
    for (int r = 0; r < 2; r++) {
        take_blocks(made, r, blocks);
        assert_int_equal(mm_group_make_adopted(&crew.config, r, 2, blocks, &mm_cuda_backend, NULL, &group[r]), MMOE_OK);
        assert_int_equal(mmoe_group_device(group[r]), r);
        assert_ptr_equal(block_of(group[r], 0), blocks[0]);
        assert_ptr_equal(block_of(group[r], 1), blocks[1]);
        assert_false(group[r]->adopted); /* nothing is told by the host */
        assert_int_equal(mmoe_group_check(group[r]), MMOE_OK);
    }
    mmoe_group_destroy(&group[1]);
    mmoe_group_destroy(&group[0]);
    assert_int_equal(fake_living(), before);
    *block_of(made[0], 1) = 0; /* it is still mapped */
    mmoe_group_destroy(&made[0]);
    mmoe_group_destroy(&made[1]);
    assert_int_equal(fake_living(), 0);
}

static void refuse_blocks(const struct crew *crew, int rank, void *const *blocks, mmoe_status expected,
                          const char *sentence) {
    mmoe_group *group;
    const int before = fake_living();
    assert_int_equal(mm_group_make_adopted(&crew->config, rank, 2, blocks, &mm_cuda_backend, NULL, &group), expected);
    if (!says(sentence))
        fail_msg("\"%s\" does not say \"%s\"", mmoe_last_error(), sentence);
    assert_null(group);
    assert_int_equal(fake_living(), before);
}

static void adopted_in_vain(void **state) {
    (void)state;
    static _Alignas(128) char host[128];
    const struct crew crew = crew_on(2, RIG_THREADS);
    mmoe_group *made[2];
    void *blocks[2];
    assert_int_equal(mm_group_make_threads(&crew.config, 2, &mm_cuda_backend, NULL, made), MMOE_OK);
    take_blocks(made, 1, blocks);
    struct call_control *control = blocks[1];
    control->ready[1].value = 1;
    refuse_blocks(&crew, 1, blocks, MMOE_INVALID_ARGUMENT,
                  "segments[1] holds a group already, expected memory that is zero");
    control->ready[1].value = 0;
    control->ready[0].value = 1; /* a peer that is ahead */
    mmoe_group *group;
    assert_int_equal(mm_group_make_adopted(&crew.config, 1, 2, blocks, &mm_cuda_backend, NULL, &group), MMOE_OK);
    mmoe_group_destroy(&group);
    blocks[0] = host;
    refuse_blocks(&crew, 1, blocks, MMOE_INVALID_ARGUMENT, "segments[0] is 0x");
    refuse_blocks(&crew, 0, blocks, MMOE_INVALID_ARGUMENT, "is not of a GPU");
    mmoe_group_destroy(&made[0]);
    mmoe_group_destroy(&made[1]);
    assert_int_equal(fake_living(), 0);
}

/* Each rank of the pair finds it. */
static void adopted_out_of_reach(void **state) {
    (void)state;
    static const char *const variables[] = {"FAKE_NO_ACCESS", "FAKE_NO_ATOMICS"},
                             *const texts[][2] = {
                                 {"no peer access from rank 0 on GPU 0000:00:00.0 to rank 1 on GPU 0000:01:00.0",
                                  "no peer access from rank 1 on GPU 0000:01:00.0 to rank 0 on GPU 0000:00:00.0"},
                                 {"no native atomics from rank 0 on GPU 0000:00:00.0 to rank 1 on GPU 0000:01:00.0",
                                  "no native atomics from rank 1 on GPU 0000:01:00.0 to rank 0 on GPU 0000:00:00.0"}};
    const struct crew crew = crew_on(2, RIG_THREADS);
    mmoe_group *made[2];
    void *blocks[2];
    assert_int_equal(mm_group_make_threads(&crew.config, 2, &mm_cuda_backend, NULL, made), MMOE_OK);
    for (int i = 0; i < 2; i++) {
        setenv(variables[i], "0-1", 1);
        for (int r = 0; r < 2; r++) {
            take_blocks(made, r, blocks);
            refuse_blocks(&crew, r, blocks, MMOE_UNSUPPORTED, texts[i][r]);
        }
        unsetenv(variables[i]);
    }
    mmoe_group_destroy(&made[0]);
    mmoe_group_destroy(&made[1]);
    assert_int_equal(fake_living(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(threads_and_processes, use_fleet),
        cmocka_unit_test_setup(a_peer_that_is_not_seen, use_fleet),
        cmocka_unit_test_setup(failures, use_fleet),
        cmocka_unit_test_setup(a_peer_that_is_not_seen_and_not_reached, use_fleet),
        cmocka_unit_test_setup(a_rank_dies_before_it_maps, use_fleet),
        cmocka_unit_test_setup(a_dead_rank_is_missed_when_a_call_begins, use_fleet),
        cmocka_unit_test_setup(two_ranks_on_one_gpu, use_fleet),
        cmocka_unit_test_setup(ranks_that_share_gpus, use_fleet),
        cmocka_unit_test_setup(a_current_context, use_fleet),
        cmocka_unit_test_setup(local_ranks, use_fleet),
        cmocka_unit_test_setup(adopted, use_fleet),
        cmocka_unit_test_setup(adopted_in_vain, use_fleet),
        cmocka_unit_test_setup(adopted_out_of_reach, use_fleet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
