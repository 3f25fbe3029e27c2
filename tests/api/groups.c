/* Every maker of groups with every bad argument: the sentence, and no handle. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rig/rig.h"

static mmoe_group_config good_config(void) {
    return rig_world_make(2, RIG_THREADS, 16, 8, 2, 4).config;
}

static void without_struct_size(mmoe_group_config *config) {
    config->struct_size = 0;
}
static void with_tokens_below(mmoe_group_config *config) {
    config->max_tokens = -1;
}
static void with_tokens_above(mmoe_group_config *config) {
    config->max_tokens = MMOE_MAX_TOKENS + 1;
}
static void without_hidden(mmoe_group_config *config) {
    config->max_hidden = 0;
}
static void with_hidden_above(mmoe_group_config *config) {
    config->max_hidden = MMOE_MAX_HIDDEN + 1;
}
static void without_top_k(mmoe_group_config *config) {
    config->max_top_k = 0;
}
static void with_top_k_above(mmoe_group_config *config) {
    config->max_top_k = MMOE_MAX_TOP_K + 1;
}
static void without_experts(mmoe_group_config *config) {
    config->max_experts = 0;
}
static void with_experts_above(mmoe_group_config *config) {
    config->max_experts = MMOE_MAX_EXPERTS + 1;
}
static void with_arrive_timeout(mmoe_group_config *config) {
    config->arrive_timeout_ms = 0;
}
static void with_progress_timeout(mmoe_group_config *config) {
    config->progress_timeout_ms = -5;
}
static void with_threads_below(mmoe_group_config *config) {
    config->threads = -1;
}
static void with_spare_below(mmoe_group_config *config) {
    config->spare_multiprocessors = -1;
}
static void with_unknown_backend(mmoe_group_config *config) {
    config->backend = "abacus";
}
static void with_empty_backend(mmoe_group_config *config) {
    config->backend = "";
}

static void with_long_name(mmoe_group_config *config) {
    config->name = "a name that is longer than the sixty-three bytes that a group keeps of it";
}

static const struct {
    void (*spoil)(mmoe_group_config *config);
    const char *sentence;
} bad_configs[] = {
    {without_struct_size, "config.struct_size is 0, expected"},
    {with_tokens_below, "config.max_tokens is -1, expected 0 .. 1048576"},
    {with_tokens_above, "config.max_tokens is 1048577, expected 0 .. 1048576"},
    {without_hidden, "config.max_hidden is 0, expected 1 .. 65536"},
    {with_hidden_above, "config.max_hidden is 65537, expected 1 .. 65536"},
    {without_top_k, "config.max_top_k is 0, expected 1 .. 64"},
    {with_top_k_above, "config.max_top_k is 65, expected 1 .. 64"},
    {without_experts, "config.max_experts is 0, expected 1 .. 4096"},
    {with_experts_above, "config.max_experts is 4097, expected 1 .. 4096"},
    {with_arrive_timeout, "config.arrive_timeout_ms is 0, expected 1 .."},
    {with_progress_timeout, "config.progress_timeout_ms is -5, expected 1 .."},
    {with_threads_below, "config.threads is -1, expected 0 .."},
    {with_spare_below, "config.spare_multiprocessors is -1, expected 0 .."},
    {with_unknown_backend, "backend is \"abacus\", expected one of this build: cuda, cpu"},
    {with_empty_backend, "backend is \"\", expected one of this build: cuda, cpu"},
    {with_long_name, "config.name begins \"a name that"},
};

/* The sentence of the last error holds `part`. */
static void expect_refused(mmoe_status status, const char *part) {
    if (status != MMOE_INVALID_ARGUMENT || strstr(mmoe_last_error(), part) == NULL)
        fail_msg("%s: \"%s\", expected \"%s\"", mmoe_status_name(status), mmoe_last_error(), part);
}

/* A pointer that is no handle, to see that failures overwrite it. */
static char stale;
#define STALE ((mmoe_group *)(void *)&stale)

static void try_every_maker(const mmoe_group_config *config, int world, const char *sentence) {
    mmoe_group *groups[2] = {STALE, STALE};
    expect_refused(mmoe_group_create_threads(config, world, groups), sentence);
    if (world == 2)
        assert_true(groups[0] == NULL && groups[1] == NULL);
    mmoe_group *group = STALE;
    expect_refused(mmoe_group_create_path(config, "/nonexistent/meet", 0, world, &group), sentence);
    assert_null(group);
    group = STALE;
    void *segments[2] = {NULL, NULL};
    expect_refused(mmoe_group_create_adopted(config, 0, world, segments, &group), sentence);
    assert_null(group);
}

static void every_field_is_checked_by_every_maker(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bad_configs / sizeof bad_configs[0]; i++) {
        mmoe_group_config config = good_config();
        bad_configs[i].spoil(&config);
        try_every_maker(&config, 2, bad_configs[i].sentence);
        setenv("RANK", "0", 1);
        setenv("WORLD_SIZE", "2", 1);
        setenv("MMOE_RENDEZVOUS", "/nonexistent/meet", 1);
        mmoe_group *group = STALE;
        expect_refused(mmoe_group_create_env(&config, &group), bad_configs[i].sentence);
        assert_null(group);
    }
    try_every_maker(NULL, 2, "config is NULL, expected a mmoe_group_config");
}

static void world_is_checked_by_every_maker(void **state) {
    (void)state;
    mmoe_group_config config = good_config();
    try_every_maker(&config, 0, "world is 0, expected 1 .. 64");
    try_every_maker(&config, -1, "world is -1, expected 1 .. 64");
    try_every_maker(&config, 65, "world is 65, expected 1 .. 64");
}

static void rank_is_checked(void **state) {
    (void)state;
    mmoe_group_config config = good_config();
    mmoe_group *group = STALE;
    void *segments[2] = {NULL, NULL};
    for (int rank = -1; rank <= 2; rank += 3) {
        char sentence[64];
        snprintf(sentence, sizeof sentence, "rank is %d, expected 0 .. 1", rank);
        expect_refused(mmoe_group_create_path(&config, "/nonexistent/meet", rank, 2, &group), sentence);
        expect_refused(mmoe_group_create_adopted(&config, rank, 2, segments, &group), sentence);
        assert_null(group);
    }
}

static void pointers_are_checked(void **state) {
    (void)state;
    mmoe_group_config config = good_config();
    mmoe_group *group = STALE;
    _Alignas(128) char memory[256];
    void *one[2] = {memory, NULL}, *odd[2] = {memory, memory + 64}, *same[2] = {memory, memory};
    expect_refused(mmoe_group_create_threads(&config, 2, NULL), "groups is NULL, expected room for a handle of each");
    expect_refused(mmoe_group_create_env(&config, NULL), "group is NULL, expected the address of a group handle");
    expect_refused(mmoe_group_create_path(&config, "/x", 0, 2, NULL), "group is NULL, expected the address");
    expect_refused(mmoe_group_create_adopted(&config, 0, 2, one, NULL), "group is NULL, expected the address");
    expect_refused(mmoe_group_create_path(&config, NULL, 0, 2, &group), "path is NULL, expected the path of a file");
    expect_refused(mmoe_group_create_path(&config, "", 0, 2, &group), "path is \"\", expected the path of a file");
    expect_refused(mmoe_group_create_adopted(&config, 0, 2, NULL, &group), "segments is NULL, expected 2 pointers");
    expect_refused(mmoe_group_create_adopted(&config, 0, 2, one, &group), "segments[1] is NULL");
    expect_refused(mmoe_group_create_adopted(&config, 0, 2, odd, &group), "expected a multiple of 128");
    expect_refused(mmoe_group_create_adopted(&config, 0, 2, same, &group), "segments[1] equals segments[0]");
    assert_null(group);
}

static void the_environment_is_checked(void **state) {
    (void)state;
    static const struct {
        const char *rank, *world, *local_rank, *local_world, *address, *port, *path;
        mmoe_status status;
        const char *sentence;
    } cases[] = {
        {NULL, "2", NULL, NULL, "host", "1", NULL, MMOE_INVALID_ARGUMENT, "RANK is not set"},
        {"0", NULL, NULL, NULL, "host", "1", NULL, MMOE_INVALID_ARGUMENT, "WORLD_SIZE is not set"},
        {"two", "2", NULL, NULL, "host", "1", NULL, MMOE_INVALID_ARGUMENT, "RANK is \"two\", expected a number 0 .. 1"},
        {"2", "2", NULL, NULL, "host", "1", NULL, MMOE_INVALID_ARGUMENT, "RANK is \"2\", expected a number 0 .. 1"},
        {"0", "2x", NULL, NULL, "host", "1", NULL, MMOE_INVALID_ARGUMENT, "WORLD_SIZE is \"2x\""},
        {"0", "65", NULL, NULL, "host", "1", NULL, MMOE_INVALID_ARGUMENT,
         "WORLD_SIZE is \"65\", expected a number 1 .. 64"},
        {"0", "2", "1", NULL, "host", "1", NULL, MMOE_UNSUPPORTED, "LOCAL_RANK is 1 and RANK is 0"},
        {"0", "2", NULL, "1", "host", "1", NULL, MMOE_UNSUPPORTED, "LOCAL_WORLD_SIZE is 1 and WORLD_SIZE is 2"},
        {"0", "2", NULL, NULL, NULL, "1", NULL, MMOE_INVALID_ARGUMENT, "MASTER_ADDR is not set"},
        {"0", "2", NULL, NULL, "host", NULL, NULL, MMOE_INVALID_ARGUMENT, "MASTER_PORT is not set"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *const names[] = {"RANK",        "WORLD_SIZE",  "LOCAL_RANK",     "LOCAL_WORLD_SIZE",
                                     "MASTER_ADDR", "MASTER_PORT", "MMOE_RENDEZVOUS"};
        const char *const values[] = {cases[i].rank,    cases[i].world, cases[i].local_rank, cases[i].local_world,
                                      cases[i].address, cases[i].port,  cases[i].path};
        for (int v = 0; v < 7; v++) {
            if (values[v] != NULL)
                setenv(names[v], values[v], 1);
            else
                unsetenv(names[v]);
        }
        mmoe_group_config config = good_config();
        mmoe_group *group = STALE;
        mmoe_status status = mmoe_group_create_env(&config, &group);
        if (status != cases[i].status || strstr(mmoe_last_error(), cases[i].sentence) == NULL)
            fail_msg("%s: \"%s\", expected \"%s\"", mmoe_status_name(status), mmoe_last_error(), cases[i].sentence);
        assert_null(group);
    }
}

/* B11: sizes past 2^31 and 2^32 bytes at the largest legal products, and a refusal where row numbers would wrap. */
static void b11_segments_are_sized_in_64_bits(void **state) {
    (void)state;
    mmoe_group_config config = good_config();
    config.max_hidden = 7168;
    config.max_top_k = 8;
    config.max_experts = 256;
    for (int64_t tokens = 37449; tokens <= 37450; tokens++) {
        config.max_tokens = tokens;
        size_t slots = (size_t)tokens * 8, rows = (size_t)tokens * 7168 * 2;
        size_t data = 2 * rows + 8 * slots * 8 + 8 * rows + slots * 4;
        size_t bytes = mmoe_group_segment_bytes(&config, 8);
        assert_true(bytes > data && bytes < data + (1 << 20));
    }
    config.max_tokens = MMOE_MAX_TOKENS;
    config.max_top_k = MMOE_MAX_TOP_K;
    assert_true(mmoe_group_segment_bytes(&config, 31) > (size_t)MMOE_MAX_TOKENS * 64 * 7168 * 2);
    assert_int_equal(mmoe_group_segment_bytes(&config, 32), 0);
    assert_non_null(strstr(mmoe_last_error(), "is 2147483648, expected at most 2147483647"));
}

static void segment_bytes_of_a_bad_configuration_are_0(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bad_configs / sizeof bad_configs[0]; i++) {
        mmoe_group_config config = good_config();
        bad_configs[i].spoil(&config);
        if (strstr(bad_configs[i].sentence, "backend") != NULL)
            continue; /* sizes are the same for every backend */
        assert_int_equal(mmoe_group_segment_bytes(&config, 2), 0);
        assert_non_null(strstr(mmoe_last_error(), bad_configs[i].sentence));
    }
    mmoe_group_config config = good_config();
    assert_int_equal(mmoe_group_segment_bytes(&config, 0), 0);
    assert_int_equal(mmoe_group_segment_bytes(NULL, 2), 0);
}

static void handles_know_their_rank(void **state) {
    (void)state;
    mmoe_group_config config = good_config();
    mmoe_group *groups[3];
    assert_int_equal(mmoe_group_create_threads(&config, 3, groups), MMOE_OK);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(mmoe_group_rank(groups[r]), r);
        assert_int_equal(mmoe_group_world(groups[r]), 3);
        assert_int_equal(mmoe_group_check(groups[r]), MMOE_OK);
        mmoe_group_destroy(&groups[r]);
        assert_null(groups[r]);
        mmoe_group_destroy(&groups[r]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_is_checked_by_every_maker),
        cmocka_unit_test(world_is_checked_by_every_maker),
        cmocka_unit_test(rank_is_checked),
        cmocka_unit_test(pointers_are_checked),
        cmocka_unit_test(the_environment_is_checked),
        cmocka_unit_test(b11_segments_are_sized_in_64_bits),
        cmocka_unit_test(segment_bytes_of_a_bad_configuration_are_0),
        cmocka_unit_test(handles_know_their_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
