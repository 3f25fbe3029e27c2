/* The rig itself: it fails a test where a rank hangs or dies, where a byte beside an operand has changed, where a
 * result is wrong, missing or not the zero it has to be, and it fills fresh memory with its poison. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rig/rig.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- Tests that fail, in a process of their own ---- */

/* Runs one test with all it prints in `said`; whether it passed. */
static bool passes(CMUnitTestFunction test, void *state, char *said, size_t bytes) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const struct CMUnitTest tests[] = {{"inner", test, NULL, NULL, state}};
        dup2(ends[1], STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        _exit(cmocka_run_group_tests(tests, NULL, NULL));
    }
    close(ends[1]);
    size_t used = 0;
    ssize_t more;
    while (used < bytes - 1 && (more = read(ends[0], said + used, bytes - 1 - used)) > 0)
        used += (size_t)more;
    said[used] = 0;
    close(ends[0]);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Both texts have to be in what it prints. */
static void expect_failure(CMUnitTestFunction test, void *state, const char *text, const char *who) {
    char said[4096];
    if (passes(test, state, said, sizeof said) || strstr(said, text) == NULL || strstr(said, who) == NULL)
        fail_msg("expected a failure that says \"%s\" and \"%s\": %s", text, who, said);
}

/* ---- The watchdog ---- */

enum end { HANG, DIE, EXPECT, END_WELL };

struct watched {
    enum rig_kind kind;
    enum end end; /* of rank 1 */
};

static void end_so(struct rig_rank *rank, void *context) {
    const struct watched *watched = context;
    if (rank->rank != 1)
        return;
    if (watched->end == HANG)
        pause();
    if (watched->end == DIE)
        raise(SIGKILL);
    RIG_EXPECT(rank, watched->end != EXPECT, "as it should");
}

static void watch(void **state) {
    const struct watched *watched = *state;
    struct rig_world world = rig_world_make(2, watched->kind, 1, 1, 1, 2);
    world.seconds = watched->end == HANG ? 1 : 20;
    rig_world_run(&world, end_so, *state);
}

static void a_rank_that_ends_badly_is_named(void **state) {
    (void)state;
    struct {
        struct watched watched;
        const char *text;
    } arms[] = {
        {{RIG_THREADS, HANG}, "rank 1 of 2 hangs after 1 s"},
        {{RIG_PROCESSES, HANG}, "hangs after 1 s"},
        {{RIG_PROCESSES, DIE}, "died: wait status"},
        {{RIG_THREADS, EXPECT}, "as it should"},
        {{RIG_PROCESSES, EXPECT}, "as it should"},
    };
    for (size_t i = 0; i < COUNT(arms); i++)
        expect_failure(watch, &arms[i].watched, arms[i].text, "rank 1 of 2");
    for (int kind = RIG_THREADS; kind <= RIG_PROCESSES; kind++) {
        struct watched well = {(enum rig_kind)kind, END_WELL};
        char said[4096];
        if (!passes(watch, &well, said, sizeof said))
            fail_msg("%s", said);
    }
}

/* ---- Guards ---- */

/* Every byte of the memory in turn: a changed one is found unless it is an element's. */
static void check_guards(enum rig_layout layout, mmoe_dtype dtype, int64_t count) {
    unsigned char values[256];
    struct rig_tensor tensor = rig_tensor_make(layout, dtype, count, 3, 2);
    size_t elements = 0;
    rig_tensor_poison(&tensor, 0x11);
    for (size_t i = 0; i < tensor.bytes; i++) {
        const bool element = tensor.memory[i] == 0x11;
        elements += element;
        tensor.memory[i] ^= 1;
        assert_false(rig_tensor_intact(&tensor));
        assert_int_equal(rig_tensor_take(&tensor, values), element);
        tensor.memory[i] = tensor.snapshot[i];
        assert_true(rig_tensor_intact(&tensor));
    }
    assert_int_equal(elements, (size_t)(count ? count : 1) * 3 * 2 * rig_element_bytes(dtype));
    assert_true(tensor.bytes >= elements + 2 * 64);
    rig_tensor_free(&tensor);
}

static void a_byte_beside_an_element_is_found(void **state) {
    (void)state;
    const mmoe_dtype dtypes[] = {MMOE_BF16, MMOE_F32, MMOE_I32, MMOE_I64};
    for (int layout = RIG_CONTIGUOUS; layout <= RIG_SCATTERED; layout++)
        for (size_t d = 0; d < COUNT(dtypes) && layout != RIG_REPEATED_ROW && layout != RIG_REPEATED; d++) {
            check_guards((enum rig_layout)layout, dtypes[d], 2);
            if (layout != RIG_SCATTERED)
                check_guards((enum rig_layout)layout, dtypes[d], 0);
        }
}

/* ---- Comparison ---- */

/* One step of two ranks; the first token uses no slot, and expert 3 has no row. */
static struct rig_batch right_batch(const struct rig_options *options) {
    const mmoe_layer_config layer = rig_layer(8, 6, 4, 2);
    const int64_t tokens[2] = {3, 2};
    struct rig_batch batch = rig_batch_make(&layer, 2, tokens, RIG_UNIFORM, 7);
    const int64_t ids[10] = {-1, -1, 0, 1, 2, 0, 1, 2, 0, 2};
    memcpy(batch.ids, ids, sizeof ids);
    rig_batch_positive(&batch);
    struct rig_world world = rig_world_for(&batch, 1, RIG_THREADS);
    rig_run(&world, &batch, 1, options);
    return batch;
}

#define EXPERT_3 (3 * 8 * 6)

static void nothing(struct rig_batch *batch) {
    (void)batch;
}
static void missing_row(struct rig_batch *batch) {
    memset(batch->y + 8, 0xff, 8 * sizeof *batch->y);
}
static void swapped_rows(struct rig_batch *batch) {
    memcpy(batch->dx + 8, batch->dx + 16, 8 * sizeof *batch->dx);
}
static void doubled_gradient(struct rig_batch *batch) {
    batch->dweights[3] *= 2;
}
static void unused_slot(struct rig_batch *batch) {
    batch->dweights[0] = 1e-30f;
}
static void unused_token(struct rig_batch *batch) {
    batch->y[3] = 1; /* the smallest number there is */
}
static void empty_expert(struct rig_batch *batch) {
    batch->dgate[EXPERT_3] += batch->dgate[EXPERT_3] == 0 ? 1e-30f : 1e-5f;
}
static void minus_zero(struct rig_batch *batch) {
    batch->ddown[EXPERT_3 + 1] = -0.0f;
}

struct spoilt {
    void (*spoil)(struct rig_batch *batch);
    bool accumulate;
};

static void compare_spoilt(void **state) {
    const struct spoilt *spoilt = *state;
    const struct rig_options options = {.accumulate = spoilt->accumulate};
    struct rig_batch batch = right_batch(&options);
    spoilt->spoil(&batch);
    rig_compare(&batch, &options, RIG_BOUND);
}

static void a_wrong_result_is_found(void **state) {
    (void)state;
    struct {
        struct spoilt spoilt;
        const char *text;
    } arms[] = {
        {{missing_row, false}, "y: relative error"},
        {{swapped_rows, false}, "dx: relative error"},
        {{doubled_gradient, false}, "dweights: relative error"},
        {{unused_slot, false}, "dweights[0, 0] of an unused slot"},
        {{unused_token, false}, "token 0 uses no slot"},
        {{empty_expert, false}, "dgate of expert 3, which has no rows"},
        {{empty_expert, true}, "dgate of expert 3, which has no rows"},
        {{minus_zero, false}, "ddown of expert 3, which has no rows"},
    };
    char said[4096];
    for (size_t i = 0; i < COUNT(arms); i++)
        expect_failure(compare_spoilt, &arms[i].spoilt, arms[i].text, "");
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        struct spoilt good = {nothing, accumulate};
        if (!passes(compare_spoilt, &good, said, sizeof said))
            fail_msg("%s", said);
    }
}

/* ---- Poison ---- */

/* Fresh memory, and the data of the segments before any call. */
static void find_poison(struct rig_rank *rank, void *context) {
    const int *poison = context;
    unsigned char *fresh = aligned_alloc(64, 128);
    for (size_t i = 0; i < 128; i++)
        RIG_EXPECT(rank, fresh[i] == *poison, "fresh memory holds %x", fresh[i]);
    free(fresh);
    const unsigned char *segment = rank->group->segment[1 - rank->rank];
    for (size_t i = rank->group->layout.x; i < rank->group->layout.bytes; i++)
        RIG_EXPECT(rank, segment[i] == *poison, "byte %zu of a peer's segment holds %x", i, segment[i]);
}

static void memory_is_poisoned(void **state) {
    (void)state;
    int poisons[] = {0xff, 0x7f};
    for (int kind = RIG_THREADS; kind <= RIG_PROCESSES; kind++)
        for (size_t i = 0; i < COUNT(poisons); i++) {
            struct rig_world world = rig_world_make(2, (enum rig_kind)kind, 4, 8, 2, 4);
            world.poison = poisons[i];
            rig_world_run(&world, find_poison, &poisons[i]);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_ends_badly_is_named),
        cmocka_unit_test(a_byte_beside_an_element_is_found),
        cmocka_unit_test(a_wrong_result_is_found),
        cmocka_unit_test(memory_is_poisoned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
