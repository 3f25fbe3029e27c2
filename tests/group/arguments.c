/* Bad configurations, environments and segments: one sentence with the argument, its value and what was expected. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* cmocka needs the headers above first */
#include <cmocka.h>

#include "crew.h"

static void expect(mmoe_status got, mmoe_status expected, const char *says) {
    assert_int_equal(got, expected);
    if (strcmp(mmoe_last_error(), says) != 0) {
        fail_msg("\"%s\", expected \"%s\"", mmoe_last_error(), says);
    }
}

/* ---- Configuration ------------------------------------------------------------------------------- */

static void expect_bad_config(mmoe_group_config config, int world, const char *says) {
    mmoe_group_config checked;
    expect(mm_group_config_check(&config, world, &checked), MMOE_INVALID_ARGUMENT, says);
}

static void bad_numbers(void **state) {
    (void)state;
    static const struct {
        size_t offset;
        int64_t value;
        const char *says;
    } bad[] = {
        {offsetof(mmoe_group_config, max_tokens), -1, "config.max_tokens is -1, expected 0 .. 1048576"},
        {offsetof(mmoe_group_config, max_tokens), (1 << 20) + 1, "config.max_tokens is 1048577, expected 0 .. 1048576"},
        {offsetof(mmoe_group_config, max_hidden), 0, "config.max_hidden is 0, expected 1 .. 65536"},
        {offsetof(mmoe_group_config, max_hidden), 65537, "config.max_hidden is 65537, expected 1 .. 65536"},
        {offsetof(mmoe_group_config, max_top_k), 0, "config.max_top_k is 0, expected 1 .. 64"},
        {offsetof(mmoe_group_config, max_top_k), 65, "config.max_top_k is 65, expected 1 .. 64"},
        {offsetof(mmoe_group_config, max_experts), 0, "config.max_experts is 0, expected 1 .. 4096"},
        {offsetof(mmoe_group_config, max_experts), 4097, "config.max_experts is 4097, expected 1 .. 4096"},
        {offsetof(mmoe_group_config, arrive_timeout_ms), 0, "config.arrive_timeout_ms is 0, expected 1 .. 31536000000"},
        {offsetof(mmoe_group_config, progress_timeout_ms), -5,
         "config.progress_timeout_ms is -5, expected 1 .. 31536000000"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        mmoe_group_config config = crew_of(2, RIG_THREADS).config;
        *(int64_t *)(void *)((char *)&config + bad[i].offset) = bad[i].value;
        expect_bad_config(config, 2, bad[i].says);
    }
    mmoe_group_config config = crew_of(2, RIG_THREADS).config;
    config.threads = -1;
    expect_bad_config(config, 2, "config.threads is -1, expected 0 .. 4096");
    config.threads = 0;
    config.spare_multiprocessors = -1;
    expect_bad_config(config, 2, "config.spare_multiprocessors is -1, expected 0 .. 4096");
    config.spare_multiprocessors = 4097;
    expect_bad_config(config, 2, "config.spare_multiprocessors is 4097, expected 0 .. 4096");
}

static void bad_configurations(void **state) {
    (void)state;
    const mmoe_group_config good = crew_of(2, RIG_THREADS).config;
    mmoe_group_config config = good, checked;
    expect(mm_group_config_check(NULL, 2, &checked), MMOE_INVALID_ARGUMENT,
           "config is NULL, expected a mmoe_group_config");
    expect_bad_config(good, 0, "world is 0, expected 1 .. 64");
    expect_bad_config(good, 65, "world is 65, expected 1 .. 64");
    config.struct_size = 0;
    assert_int_equal(mm_group_config_check(&config, 2, &checked), MMOE_INVALID_ARGUMENT);
    assert_non_null(strstr(mmoe_last_error(), "config.struct_size is 0, expected"));
    config = good;
    config.max_tokens = 1 << 20;
    config.max_top_k = 64;
    expect_bad_config(config, 32,
                      "world * config.max_tokens * config.max_top_k is 2147483648, expected at most 2147483647 (a row "
                      "number is an int32)");
    config = good;
    config.name = "a name of sixty-four bytes, which is one more than there is room";
    assert_int_equal(strlen(config.name), 64);
    expect_bad_config(config, 2, "config.name begins \"a name of sixty-four bytes, whic\" and is longer than 63 bytes");
}

static void filled_in(void **state) {
    (void)state;
    mmoe_group_config config = crew_of(2, RIG_THREADS).config, checked;
    config.name = NULL;
    assert_int_equal(mm_group_config_check(&config, 2, &checked), MMOE_OK);
    assert_string_equal(checked.name, "");
    assert_true(checked.threads >= 1);
    config.max_tokens = 0;
    config.threads = 3;
    assert_int_equal(mm_group_config_check(&config, 64, &checked), MMOE_OK);
    assert_int_equal(checked.threads, 3);
}

static void bad_ranks(void **state) {
    (void)state;
    const struct crew crew = crew_of(2, RIG_THREADS);
    for (int rank = -1; rank <= 2; rank += 3) {
        mmoe_group *group = (mmoe_group *)1;
        assert_int_equal(
            mm_group_make_processes(&crew.config, "path:/tmp/never made", rank, 2, &crew_backend, NULL, &group),
            MMOE_INVALID_ARGUMENT);
        assert_null(group);
        assert_non_null(strstr(mmoe_last_error(), "expected 0 .. 1"));
    }
}

/* ---- Layout -------------------------------------------------------------------------------------- */

/* Parts are aligned, in the order that the header tells, and large enough; the largest of all does not overflow. */
static void parts_do_not_overlap(void **state) {
    (void)state;
    mmoe_group_config config = crew_of(2, RIG_THREADS).config;
    const struct mm_layout small = mm_layout_of(&config, 3);
    const size_t slots = 6 * 2;
    const size_t starts[] = {small.control, small.x,       small.dy, small.ids,
                             small.weights, small.combine, small.dw, small.bytes};
    const size_t sizes[] = {
        sizeof(struct mm_control), 6 * 8 * 2, 6 * 8 * 2, 3 * slots * 4, 3 * slots * 4, slots * 8 * 2, slots * 4};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        assert_int_equal(starts[i] % MM_ALIGN, 0);
        assert_true(starts[i] + sizes[i] <= starts[i + 1]);
        assert_true(starts[i + 1] < starts[i] + sizes[i] + MM_ALIGN);
    }
    config.max_tokens = MMOE_MAX_TOKENS;
    config.max_hidden = MMOE_MAX_HIDDEN;
    config.max_top_k = MMOE_MAX_TOP_K;
    const size_t combine = (size_t)MMOE_MAX_TOKENS * MMOE_MAX_TOP_K * MMOE_MAX_HIDDEN * 2;
    assert_true(mm_layout_of(&config, 31).bytes > combine);
    assert_true(mm_layout_of(&config, 31).bytes < combine + combine / 16);
}

/* ---- Adopted memory ------------------------------------------------------------------------------ */

static void bad_segments(void **state) {
    (void)state;
    const struct crew crew = crew_of(2, RIG_THREADS);
    char *memory = rig_shared(2 * mm_layout_of(&crew.config, 2).bytes);
    void *none[2] = {memory, NULL}, *skewed[2] = {memory, memory + 64}, *twice[2] = {memory, memory};
    const struct {
        void *const *segments;
        const char *says;
    } bad[] = {
        {NULL, "segments is NULL, expected 2 pointers"},
        {none, "segments[1] is NULL, expected where rank 1's segment is mapped"},
        {skewed, "expected a multiple of 128"},
        {twice, "segments[1] equals segments[0], expected a segment for each rank"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        mmoe_group *group = (mmoe_group *)1;
        assert_int_equal(mm_group_make_adopted(&crew.config, 0, 2, bad[i].segments, &crew_backend, NULL, &group),
                         MMOE_INVALID_ARGUMENT);
        assert_null(group);
        assert_non_null(strstr(mmoe_last_error(), bad[i].says));
    }
    rig_shared_free(memory);
}

/* ---- Environment --------------------------------------------------------------------------------- */

static const char *const variables[] = {"RANK",        "WORLD_SIZE",  "LOCAL_RANK",          "LOCAL_WORLD_SIZE",
                                        "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "MMOE_RENDEZVOUS"};

static void set_good_environment(void) {
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        unsetenv(variables[i]);
    }
    setenv("RANK", "1", 1);
    setenv("WORLD_SIZE", "4", 1);
    setenv("MASTER_ADDR", "node", 1);
    setenv("MASTER_PORT", "29500", 1);
}

static mmoe_status read_environment(int *rank, int *world, char rendezvous[64]) {
    return mm_group_environment(rank, world, rendezvous, 64);
}

static void good_environments(void **state) {
    (void)state;
    int rank, world;
    char plain[64], of_a_run[64], at_path[64];
    set_good_environment();
    assert_int_equal(read_environment(&rank, &world, plain), MMOE_OK);
    assert_int_equal(rank, 1);
    assert_int_equal(world, 4);
    assert_int_equal(strncmp(plain, "name:", 5), 0);
    setenv("LOCAL_RANK", "1", 1);
    setenv("LOCAL_WORLD_SIZE", "4", 1);
    setenv("TORCHELASTIC_RUN_ID", "run 7", 1);
    assert_int_equal(read_environment(&rank, &world, of_a_run), MMOE_OK);
    assert_string_not_equal(plain, of_a_run);
    setenv("MMOE_RENDEZVOUS", "/tmp/meet", 1);
    assert_int_equal(read_environment(&rank, &world, at_path), MMOE_OK);
    assert_string_equal(at_path, "path:/tmp/meet");
}

static void bad_environments(void **state) {
    (void)state;
    static const struct {
        const char *variable, *value; /* NULL: not set */
        mmoe_status status;
        const char *says;
    } bad[] = {
        {"RANK", NULL, MMOE_INVALID_ARGUMENT,
         "RANK is not set, expected a number 0 .. 3 in the environment, as torchrun sets it"},
        {"RANK", "4", MMOE_INVALID_ARGUMENT, "RANK is \"4\", expected a number 0 .. 3"},
        {"RANK", "-1", MMOE_INVALID_ARGUMENT, "RANK is \"-1\", expected a number 0 .. 3"},
        {"RANK", "1x", MMOE_INVALID_ARGUMENT, "RANK is \"1x\", expected a number 0 .. 3"},
        {"RANK", "", MMOE_INVALID_ARGUMENT, "RANK is \"\", expected a number 0 .. 3"},
        {"WORLD_SIZE", NULL, MMOE_INVALID_ARGUMENT,
         "WORLD_SIZE is not set, expected a number 1 .. 64 in the environment, as torchrun sets it"},
        {"WORLD_SIZE", "65", MMOE_INVALID_ARGUMENT, "WORLD_SIZE is \"65\", expected a number 1 .. 64"},
        {"WORLD_SIZE", "99999999999999999999", MMOE_INVALID_ARGUMENT,
         "WORLD_SIZE is \"99999999999999999999\", expected a number 1 .. 64"},
        {"LOCAL_WORLD_SIZE", "2", MMOE_UNSUPPORTED,
         "LOCAL_WORLD_SIZE is 2 and WORLD_SIZE is 4: groups across hosts are not supported yet"},
        {"LOCAL_RANK", "0", MMOE_UNSUPPORTED,
         "LOCAL_RANK is 0 and RANK is 1: groups across hosts are not supported yet"},
        {"LOCAL_RANK", "one", MMOE_INVALID_ARGUMENT, "LOCAL_RANK is \"one\", expected a number 0 .. 2147483647"},
        {"MASTER_ADDR", NULL, MMOE_INVALID_ARGUMENT,
         "MASTER_ADDR is not set, expected MASTER_ADDR and MASTER_PORT, or MMOE_RENDEZVOUS with a path, in the "
         "environment"},
        {"MASTER_PORT", NULL, MMOE_INVALID_ARGUMENT,
         "MASTER_PORT is not set, expected MASTER_ADDR and MASTER_PORT, or MMOE_RENDEZVOUS with a path, in the "
         "environment"},
        {"MMOE_RENDEZVOUS", "/a path that is longer than the buffer of this test, which has 64 bytes",
         MMOE_INVALID_ARGUMENT, "MMOE_RENDEZVOUS is too long, expected at most 58 bytes"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int rank, world;
        char rendezvous[64];
        set_good_environment();
        if (bad[i].value != NULL) {
            setenv(bad[i].variable, bad[i].value, 1);
        } else {
            unsetenv(bad[i].variable);
        }
        expect(read_environment(&rank, &world, rendezvous), bad[i].status, bad[i].says);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_numbers),       cmocka_unit_test(bad_configurations),   cmocka_unit_test(filled_in),
        cmocka_unit_test(bad_ranks),         cmocka_unit_test(parts_do_not_overlap), cmocka_unit_test(bad_segments),
        cmocka_unit_test(good_environments), cmocka_unit_test(bad_environments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
