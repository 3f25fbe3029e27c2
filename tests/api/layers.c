/* Layers, saved states, plans and sizes with every bad argument. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "rig/rig.h"

/* ---- A bad layer configuration, told by everything that takes one */

static mmoe_layer_config good_layer(void) {
    return rig_layer(8, 6, 4, 2);
}

static void without_struct_size(mmoe_layer_config *config) {
    config->struct_size--;
}
static void without_hidden(mmoe_layer_config *config) {
    config->hidden = 0;
}
static void with_hidden_above(mmoe_layer_config *config) {
    config->hidden = MMOE_MAX_HIDDEN + 1;
}
static void without_intermediate(mmoe_layer_config *config) {
    config->intermediate = -3;
}
static void with_intermediate_above(mmoe_layer_config *config) {
    config->intermediate = INT64_MAX;
}
static void without_experts(mmoe_layer_config *config) {
    config->experts = 0;
}
static void with_experts_above(mmoe_layer_config *config) {
    config->experts = MMOE_MAX_EXPERTS + 2;
}
static void with_odd_experts(mmoe_layer_config *config) {
    config->experts = 3;
}
static void without_top_k(mmoe_layer_config *config) {
    config->top_k = 0;
}
static void with_top_k_above(mmoe_layer_config *config) {
    config->top_k = MMOE_MAX_TOP_K + 1;
}
static void with_strange_combine(mmoe_layer_config *config) {
    config->combine = (mmoe_combine)2;
}
static void with_weight_elsewhere(mmoe_layer_config *config) {
    config->weight_on = (mmoe_weight_on)2;
}
static void with_activation(mmoe_layer_config *config) {
    config->activation = (mmoe_activation)1;
}
static void with_limit_below(mmoe_layer_config *config) {
    config->limit = -1;
}
static void with_limit_nan(mmoe_layer_config *config) {
    config->limit = NAN;
}
static void with_limit_infinite(mmoe_layer_config *config) {
    config->limit = INFINITY;
}
static void with_policy(mmoe_layer_config *config) {
    config->capacity_policy = (mmoe_capacity_policy)2;
}
static void with_capacity_growing(mmoe_layer_config *config) {
    config->capacity = 8;
}
static void with_drop_growing(mmoe_layer_config *config) {
    config->drop = 1;
}
static void with_check_weights(mmoe_layer_config *config) {
    config->check_weights = 2;
}

static void with_capacity_below(mmoe_layer_config *config) {
    config->capacity_policy = MMOE_CAPACITY_FIXED;
    config->capacity = -1;
}

static void with_drop(mmoe_layer_config *config) {
    config->capacity_policy = MMOE_CAPACITY_FIXED;
    config->drop = 2;
}

static const struct {
    void (*spoil)(mmoe_layer_config *config);
    const char *sentence;
} bad_layers[] = {
    {without_struct_size, "config.struct_size is "},
    {without_hidden, "config.hidden is 0, expected 1 .. 65536"},
    {with_hidden_above, "config.hidden is 65537, expected 1 .. 65536"},
    {without_intermediate, "config.intermediate is -3, expected 1 .. 65536"},
    {with_intermediate_above, "config.intermediate is 9223372036854775807, expected 1 .. 65536"},
    {without_experts, "config.experts is 0, expected 1 .. 4096"},
    {with_experts_above, "config.experts is 4098, expected 1 .. 4096"},
    {with_odd_experts, "config.experts is 3, expected a multiple of the 2 ranks"},
    {without_top_k, "config.top_k is 0, expected 1 .. 64"},
    {with_top_k_above, "config.top_k is 65, expected 1 .. 64"},
    {with_weight_elsewhere, "config.weight_on is 2, expected 0 .. 1"},
    {with_strange_combine, "config.combine is 2, expected 0 .. 1"},
    {with_activation, "config.activation is 1, expected 0 .. 0"},
    {with_limit_below, "config.limit is -1, expected a finite number above 0, or 0 for none"},
    {with_limit_nan, "config.limit is nan, expected a finite number above 0, or 0 for none"},
    {with_limit_infinite, "config.limit is inf, expected a finite number above 0, or 0 for none"},
    {with_policy, "config.capacity_policy is 2, expected 0 .. 1"},
    {with_capacity_below, "config.capacity is -1, expected 0 .. 2147483647"},
    {with_capacity_growing, "config.capacity is 8, expected 0 unless config.capacity_policy is fixed"},
    {with_drop, "config.drop is 2, expected 0 .. 1"},
    {with_drop_growing, "config.drop is 1, expected 0 unless config.capacity_policy is fixed"},
    {with_check_weights, "config.check_weights is 2, expected 0 .. 1"},
};

static void expect_refused(mmoe_status status, const char *part) {
    if (status != MMOE_INVALID_ARGUMENT || strstr(mmoe_last_error(), part) == NULL)
        fail_msg("%s: \"%s\", expected \"%s\"", mmoe_status_name(status), mmoe_last_error(), part);
}

/* Two ranks as threads, of which the first is used: nothing here waits for a peer. */
static int make_group(void **state) {
    static mmoe_group *groups[2];
    mmoe_group_config config = rig_world_make(2, RIG_THREADS, 16, 8, 2, 4).config;
    *state = groups;
    return mmoe_group_create_threads(&config, 2, groups);
}

static int destroy_group(void **state) {
    mmoe_group **groups = *state;
    mmoe_group_destroy(&groups[0]);
    mmoe_group_destroy(&groups[1]);
    return 0;
}

/* A pointer that is no handle, to see that failures overwrite it. */
static char stale;

static void try_layer(mmoe_group *group, const mmoe_layer_config *config, const char *sentence) {
    mmoe_layer *layer = (mmoe_layer *)(void *)&stale;
    expect_refused(mmoe_layer_create(group, config, &layer), sentence);
    assert_null(layer);

    mmoe_tensor ids[2] = {{0}, {0}};
    mmoe_plan *plan = (mmoe_plan *)(void *)&stale;
    expect_refused(mmoe_plan_create(config, 0, 2, ids, &plan), sentence);
    assert_null(plan);

    mmoe_group_config group_config = rig_world_make(2, RIG_THREADS, 16, 8, 2, 4).config;
    mmoe_sizes sizes, before;
    memset(&sizes, 0x5a, sizeof sizes);
    before = sizes;
    expect_refused(mmoe_sizes_of(&group_config, config, 2, 1, 1, MMOE_KEEP_PLAN, &sizes), sentence);
    assert_memory_equal(&sizes, &before, sizeof sizes);

    assert_non_null(strstr(mmoe_unsupported_reason(NULL, config, 2), sentence));
}

static void every_field_of_a_layer_is_checked(void **state) {
    mmoe_group **groups = *state;
    for (size_t i = 0; i < sizeof bad_layers / sizeof bad_layers[0]; i++) {
        mmoe_layer_config config = good_layer();
        bad_layers[i].spoil(&config);
        try_layer(groups[0], &config, bad_layers[i].sentence);
    }
    try_layer(groups[0], NULL, "config is NULL, expected a mmoe_layer_config");
}

static void a_layer_fits_its_group(void **state) {
    mmoe_group **groups = *state;
    mmoe_layer *layer;
    mmoe_layer_config config = good_layer();
    config.hidden = 9;
    expect_refused(mmoe_layer_create(groups[0], &config, &layer), "config.hidden is 9, expected at most the group's");
    config = good_layer();
    config.experts = 6;
    expect_refused(mmoe_layer_create(groups[0], &config, &layer), "config.experts is 6, expected at most the group's");
    config = good_layer();
    config.top_k = 3;
    expect_refused(mmoe_layer_create(groups[0], &config, &layer), "config.top_k is 3, expected at most the group's");
    config = good_layer();
    expect_refused(mmoe_layer_create(NULL, &config, &layer), "group is NULL, expected a group");
    expect_refused(mmoe_layer_create(groups[0], &config, NULL), "layer is NULL, expected the address of a layer");
}

/* More top-k than experts is legal: a token may name an expert twice. */
static void the_limits_themselves_are_legal(void **state) {
    mmoe_group **groups = *state;
    mmoe_layer *layer;
    mmoe_layer_config config = rig_layer(8, MMOE_MAX_INTERMEDIATE, 2, 2);
    assert_null(mmoe_unsupported_reason(NULL, &config, 2));
    config = rig_layer(1, 1, 2, 2);
    config.capacity_policy = MMOE_CAPACITY_FIXED;
    config.weight_on = MMOE_WEIGHT_ON_INPUT;
    assert_int_equal(mmoe_layer_create(groups[0], &config, &layer), MMOE_OK); /* capacity 0: no row at all */
    mmoe_layer_destroy(&layer);
    assert_null(layer);
    mmoe_layer_destroy(&layer);
    config = rig_layer(MMOE_MAX_HIDDEN, MMOE_MAX_INTERMEDIATE, MMOE_MAX_EXPERTS, MMOE_MAX_TOP_K);
    assert_null(mmoe_unsupported_reason(NULL, &config, MMOE_MAX_WORLD));
}

/* ---- Saved states */

static void saved_states_are_checked(void **state) {
    mmoe_group **groups = *state;
    mmoe_layer_config config = good_layer();
    mmoe_layer *layer;
    assert_int_equal(mmoe_layer_create(groups[0], &config, &layer), MMOE_OK);
    mmoe_saved *saved = (mmoe_saved *)(void *)&stale;
    expect_refused(mmoe_saved_create(NULL, MMOE_KEEP_PLAN, &saved), "layer is NULL, expected a layer");
    assert_null(saved);
    expect_refused(mmoe_saved_create(layer, MMOE_KEEP_PLAN, NULL), "saved is NULL, expected the address of a handle");
    saved = (mmoe_saved *)(void *)&stale;
    expect_refused(mmoe_saved_create(layer, (mmoe_keep)2, &saved), "keep is 2, expected 0 .. 1");
    assert_null(saved);
    for (int keep = MMOE_KEEP_PLAN; keep <= MMOE_KEEP_ROWS; keep++) {
        assert_int_equal(mmoe_saved_create(layer, (mmoe_keep)keep, &saved), MMOE_OK);
        assert_null(mmoe_saved_plan(saved)); /* no forward yet */
        mmoe_saved_destroy(&saved);
        assert_null(saved);
        mmoe_saved_destroy(&saved);
    }
    mmoe_layer_destroy(&layer);
}

/* ---- Plans from ids alone */

static void try_ids(mmoe_tensor second, const char *sentence) {
    int32_t good[4] = {0, 1, 2, 3};
    mmoe_layer_config config = good_layer();
    mmoe_tensor ids[] = {mmoe_matrix(good, MMOE_I32, 2, 2), second};
    mmoe_plan *plan = (mmoe_plan *)(void *)&stale;
    expect_refused(mmoe_plan_create(&config, 0, 2, ids, &plan), sentence);
    assert_null(plan);
}

/* B09 for the public function: the rank, token and slot of the first bad id. */
static void ids_of_a_plan_are_checked(void **state) {
    (void)state;
    int32_t narrow[8] = {0, 1, 2, 3, -1, 4, 0, 0};
    int64_t wide[4] = {0, 1, 2, (INT64_C(1) << 32) + 1};
    float real[4] = {0};
    mmoe_tensor odd = mmoe_matrix((char *)wide + 4, MMOE_I64, 1, 2), far = mmoe_matrix(narrow, MMOE_I32, 2, 2);
    far.stride[0] = INT64_MAX;
    try_ids((mmoe_tensor){0}, "ids[1] is absent, expected a tensor [T, 2]");
    try_ids(mmoe_stack(narrow, MMOE_I32, 1, 2, 2), "ids[1] has dims 3, expected 2");
    try_ids(mmoe_matrix(real, MMOE_F32, 2, 2), "ids[1] has dtype 2 (fp32), expected int32 or int64");
    try_ids(mmoe_matrix(narrow, (mmoe_dtype)9, 2, 2), "ids[1] has dtype 9 (unknown), expected int32 or int64");
    try_ids(mmoe_matrix(narrow, MMOE_I32, 2, 3), "ids[1] has shape [2, 3], expected [T, 2]");
    try_ids(mmoe_matrix(narrow, MMOE_I32, -2, 2), "ids[1] has shape [-2, 2], expected [T, 2]");
    try_ids(mmoe_matrix(narrow, MMOE_I32, MMOE_MAX_TOKENS + 1, 2),
            "ids[1] has 1048577 tokens, expected at most 1048576");
    try_ids(mmoe_matrix(NULL, MMOE_I32, 2, 2), "ids[1].data is NULL");
    try_ids(odd, "expected a multiple of the 8 bytes of an element");
    try_ids(far, "ids[1] has stride[0] 9223372036854775807, expected its elements to lie within 2^63 bytes");
    try_ids(mmoe_matrix(narrow, MMOE_I32, 4, 2), "ids[1] at token 2, slot 1 is 4, expected -1 or 0 .. 3");
    try_ids(mmoe_matrix(wide, MMOE_I64, 2, 2), "ids[1] at token 1, slot 1 is 4294967297, expected -1 or 0 .. 3");
}

static void other_arguments_of_a_plan_are_checked(void **state) {
    (void)state;
    int32_t good[4] = {0, 1, 2, 3};
    mmoe_layer_config config = good_layer();
    mmoe_tensor ids[] = {mmoe_matrix(good, MMOE_I32, 2, 2), mmoe_matrix(NULL, MMOE_I64, 0, 2)};
    mmoe_plan *plan;
    expect_refused(mmoe_plan_create(&config, -1, 2, ids, &plan), "rank is -1, expected 0 .. 1");
    expect_refused(mmoe_plan_create(&config, 2, 2, ids, &plan), "rank is 2, expected 0 .. 1");
    expect_refused(mmoe_plan_create(&config, 0, 0, ids, &plan), "world is 0, expected 1 .. 64");
    expect_refused(mmoe_plan_create(&config, 0, 65, ids, &plan), "world is 65, expected 1 .. 64");
    expect_refused(mmoe_plan_create(&config, 0, 2, NULL, &plan), "ids is NULL, expected a tensor for each rank");
    expect_refused(mmoe_plan_create(&config, 0, 2, ids, NULL), "plan is NULL, expected the address of a plan");

    config.capacity_policy = MMOE_CAPACITY_FIXED;
    config.capacity = 1;
    plan = (mmoe_plan *)(void *)&stale;
    assert_int_equal(mmoe_plan_create(&config, 0, 2, ids, &plan), MMOE_CAPACITY);
    assert_string_equal(mmoe_last_error(), "rank 0 was routed 2 rows, expected at most its capacity of 1");
    assert_null(plan);
    config.drop = 1;
    assert_int_equal(mmoe_plan_create(&config, 0, 2, ids, &plan), MMOE_OK);
    assert_int_equal(plan->slots, 2);
    assert_int_equal(plan->slots_dropped, 2);
    assert_null(plan->row_weight);
    assert_int_equal(plan->slot_row[1], -2);
    mmoe_plan_destroy(&plan);
    assert_null(plan);
}

/* Ids of all zero strides: one id for 2^20 tokens of 64 ranks at top-k 64 would be 2^32 rows. */
static void b11_rows_of_a_plan_stay_int32(void **state) {
    (void)state;
    int32_t id = 0;
    mmoe_layer_config config = rig_layer(8, 8, 64, MMOE_MAX_TOP_K);
    mmoe_tensor ids[MMOE_MAX_WORLD];
    for (int r = 0; r < MMOE_MAX_WORLD; r++) {
        ids[r] = mmoe_matrix(&id, MMOE_I32, MMOE_MAX_TOKENS, MMOE_MAX_TOP_K);
        ids[r].stride[0] = ids[r].stride[1] = 0;
    }
    mmoe_plan *plan;
    expect_refused(mmoe_plan_create(&config, 0, 64, ids, &plan),
                   "ids have 4294967296 slots in all, expected fewer than");
    config.experts = MMOE_MAX_EXPERTS;
    ids[0].shape[0]--; /* one token fewer than 2^31 slots, but the pads of 4096 experts pass it */
    expect_refused(mmoe_plan_create(&config, 0, 32, ids, &plan), "a rank of 128 experts may get 2147483584 rows, ");
}

/* ---- Sizes */

static void other_arguments_of_sizes_are_checked(void **state) {
    (void)state;
    mmoe_group_config group = rig_world_make(2, RIG_THREADS, 16, 8, 2, 4).config, bad = group;
    mmoe_layer_config layer = good_layer();
    mmoe_sizes sizes, before;
    memset(&sizes, 0x5a, sizeof sizes);
    before = sizes;
    bad.max_hidden = 0;
    expect_refused(mmoe_sizes_of(&bad, &layer, 2, 1, 1, MMOE_KEEP_PLAN, &sizes), "config.max_hidden is 0");
    expect_refused(mmoe_sizes_of(NULL, &layer, 2, 1, 1, MMOE_KEEP_PLAN, &sizes), "config is NULL");
    expect_refused(mmoe_sizes_of(&group, &layer, 0, 1, 1, MMOE_KEEP_PLAN, &sizes), "world is 0, expected 1 .. 64");
    expect_refused(mmoe_sizes_of(&group, &layer, 2, -1, 1, MMOE_KEEP_PLAN, &sizes), "tokens is -1, expected 0 .. 16");
    expect_refused(mmoe_sizes_of(&group, &layer, 2, 17, 1, MMOE_KEEP_PLAN, &sizes), "tokens is 17, expected 0 .. 16");
    expect_refused(mmoe_sizes_of(&group, &layer, 2, 1, 65, MMOE_KEEP_PLAN, &sizes), "rows is 65, expected at most 64");
    expect_refused(mmoe_sizes_of(&group, &layer, 2, 1, 1, (mmoe_keep)2, &sizes), "keep is 2, expected 0 .. 1");
    expect_refused(mmoe_sizes_of(&group, &layer, 2, 1, 1, MMOE_KEEP_PLAN, NULL), "sizes is NULL");
    bad = group;
    bad.backend = "abacus";
    expect_refused(mmoe_sizes_of(&bad, &layer, 2, 1, 1, MMOE_KEEP_PLAN, &sizes), "backend is \"abacus\"");
    assert_memory_equal(&sizes, &before, sizeof sizes);
}

static void sizes_add_up(void **state) {
    (void)state;
    mmoe_group_config group = rig_world_make(2, RIG_THREADS, 16, 8, 2, 4).config;
    mmoe_layer_config layer = good_layer();
    mmoe_sizes plan_kept, rows_kept, worst;
    assert_int_equal(mmoe_sizes_of(&group, &layer, 2, 16, 64, MMOE_KEEP_PLAN, &plan_kept), MMOE_OK);
    assert_int_equal(mmoe_sizes_of(&group, &layer, 2, 16, 64, MMOE_KEEP_ROWS, &rows_kept), MMOE_OK);
    assert_int_equal(mmoe_sizes_of(&group, &layer, 2, 16, -1, MMOE_KEEP_PLAN, &worst), MMOE_OK);
    assert_memory_equal(&plan_kept, &worst, sizeof worst); /* 64 rows are all slots of all ranks */
    const mmoe_sizes *s = &rows_kept;
    assert_int_equal(s->segment, s->x_slot + s->dy_slot + s->routing + s->combine_slots + s->dw_slots + s->flags);
    assert_int_equal(s->segment, mmoe_group_segment_bytes(&group, 2));
    assert_int_equal(s->x_slot, 16 * 8 * 2);
    assert_int_equal(s->routing, 2 * 16 * 2 * 8);
    assert_int_equal(s->combine_slots, 16 * 2 * 8 * 2);
    assert_int_equal(s->saved, s->plan + s->kept_x + s->kept_gate_up);
    assert_true(s->kept_x >= 64 * 8 * 2 && s->kept_gate_up >= 64 * 2 * 6 * 2);
    assert_true(plan_kept.kept_x == 0 && plan_kept.kept_gate_up == 0 && plan_kept.saved == plan_kept.plan);

    layer.capacity_policy = MMOE_CAPACITY_FIXED;
    layer.capacity = 10;
    mmoe_sizes few, many;
    assert_int_equal(mmoe_sizes_of(&group, &layer, 2, 16, 1, MMOE_KEEP_ROWS, &few), MMOE_OK);
    assert_int_equal(mmoe_sizes_of(&group, &layer, 2, 16, -1, MMOE_KEEP_ROWS, &many), MMOE_OK);
    assert_memory_equal(&few, &many, sizeof few); /* made with the layer, whatever is received */
}

/* B11: the numbers at which others' 32-bit offsets wrapped. */
static void b11_sizes_are_64_bits_wide(void **state) {
    (void)state;
    mmoe_group_config group = rig_world_make(1, RIG_THREADS, 37450, 7168, 8, 256).config;
    mmoe_layer_config layer = rig_layer(7168, 2048, 256, 8);
    for (int64_t tokens = 37449; tokens <= 37450; tokens++) {
        group.max_tokens = tokens;
        mmoe_sizes sizes;
        assert_int_equal(mmoe_sizes_of(&group, &layer, 8, tokens, -1, MMOE_KEEP_ROWS, &sizes), MMOE_OK);
        size_t slots = (size_t)tokens * 8, padded_rows = (slots * 8 - 32) / 128 * 128 + 32 * 128;
        assert_int_equal(sizes.combine_slots, slots * 7168 * 2);
        assert_int_equal(sizes.kept_x, padded_rows * 7168 * 2);
        assert_int_equal(sizes.kept_gate_up, padded_rows * 4096 * 2);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_of_a_layer_is_checked),
        cmocka_unit_test(a_layer_fits_its_group),
        cmocka_unit_test(the_limits_themselves_are_legal),
        cmocka_unit_test(saved_states_are_checked),
        cmocka_unit_test(ids_of_a_plan_are_checked),
        cmocka_unit_test(other_arguments_of_a_plan_are_checked),
        cmocka_unit_test(b11_rows_of_a_plan_stay_int32),
        cmocka_unit_test(other_arguments_of_sizes_are_checked),
        cmocka_unit_test(sizes_add_up),
        cmocka_unit_test(b11_sizes_are_64_bits_wide),
    };
    return cmocka_run_group_tests(tests, make_group, destroy_group);
}
