/* Sizes of plans, and ids as the caller gives them. */
#include <stdio.h>
#include <string.h>

#include "plan/ids.h"
#include "plan/plan.h"
#include "rig/rig.h"

enum { MOST_ROWS = 3 * MMOE_ROW_BLOCK + 5, MOST_EXPERTS = 5 };

/* Against the largest padded sum over every way to split the rows, found expert by expert. */
static void the_bound_of_padded_rows_is_reached_and_never_passed(void **state) {
    (void)state;
    int64_t most[MOST_EXPERTS + 1][MOST_ROWS + 1];
    memset(most, 0, sizeof most);
    for (int64_t rows = 1; rows <= MOST_ROWS; rows++)
        most[0][rows] = -1; /* no expert to hold them */
    for (int experts = 1; experts <= MOST_EXPERTS; experts++)
        for (int64_t rows = 0; rows <= MOST_ROWS; rows++) {
            most[experts][rows] = -1;
            for (int64_t own = 0; own <= rows; own++) {
                int64_t others = most[experts - 1][rows - own], padded = (own + 127) / 128 * 128;
                if (others >= 0 && others + padded > most[experts][rows])
                    most[experts][rows] = others + padded;
            }
            assert_int_equal(mm_padded_rows_bound(rows, experts), most[experts][rows]);
        }
}

/* B11: every slot of 64 ranks on one rank, at the largest top-k: the bytes of the row map pass 2^31. */
static void b11_a_plan_past_two_to_the_31_bytes(void **state) {
    (void)state;
    mmoe_layer_config layer = mmoe_layer_config_default();
    layer.experts = 256;
    layer.top_k = MMOE_MAX_TOP_K;
    for (int64_t tokens = 37449; tokens <= 37450; tokens++) {
        struct mm_plan_shape shape = mm_plan_shape_of(&layer, 0, 64);
        int64_t rows = mm_most_rows(&layer, 64, tokens);
        assert_int_equal(rows, tokens * 4096);
        int64_t padded_rows = mm_padded_rows_bound(rows, 4);
        assert_int_equal(padded_rows, tokens * 4096 + 3 * 128);
        size_t tables = 2 * 64 * 8 + (2 * 64 + 64 * 256 + 3 * 256) * 4;
        assert_int_equal(mm_plan_bytes(&shape, tokens, padded_rows),
                         tables + (size_t)padded_rows * 20 + (size_t)tokens * 256);
    }
}

static void a_fixed_capacity_bounds_the_rows(void **state) {
    (void)state;
    mmoe_layer_config layer = mmoe_layer_config_default();
    layer.top_k = 2;
    layer.capacity = 7;
    assert_int_equal(mm_most_rows(&layer, 4, 3), 24);
    layer.capacity_policy = MMOE_CAPACITY_FIXED;
    assert_int_equal(mm_most_rows(&layer, 4, 3), 7);
    layer.capacity = 25;
    assert_int_equal(mm_most_rows(&layer, 4, 3), 24);
    layer.capacity = 0;
    assert_int_equal(mm_most_rows(&layer, 4, 3), 0);
}

/* B18: any strides. */
static void b18_ids_of_any_strides_are_read(void **state) {
    (void)state;
    for (int layout = RIG_CONTIGUOUS; layout <= RIG_NEGATIVE; layout++)
        for (int wide = 0; wide < 2; wide++) {
            const int64_t wide_ids[] = {0, 1, -1, 3, 2, 0};
            const int32_t ids[] = {0, 1, -1, 3, 2, 0};
            int32_t read[6] = {9, 9, 9, 9, 9, 9};
            struct rig_tensor tensor = rig_tensor_make((enum rig_layout)layout, wide ? MMOE_I64 : MMOE_I32, 0, 2, 3);
            rig_tensor_put(&tensor, wide ? (const void *)wide_ids : ids);
            assert_int_equal(mm_ids_read(&tensor.view, 4, "ids", read), MMOE_OK);
            assert_memory_equal(read, ids, sizeof ids);
            rig_tensor_free(&tensor);
        }
}

static void check_bad_id(int64_t id, bool wide, int at, const char *expected) {
    int64_t wide_ids[6] = {0};
    int32_t ids[6] = {0}, read[6];
    wide_ids[at] = id;
    ids[at] = (int32_t)id;
    mmoe_tensor tensor = wide ? mmoe_matrix(wide_ids, MMOE_I64, 2, 3) : mmoe_matrix(ids, MMOE_I32, 2, 3);
    assert_int_equal(mm_ids_read(&tensor, 4, "ids", read), MMOE_INVALID_ARGUMENT);
    assert_string_equal(mmoe_last_error(), expected);
}

/* B09: ids are compared before they are narrowed, in the first and in the last slot. */
static void b09_ids_out_of_range_are_named(void **state) {
    (void)state;
    const int64_t bad[] = {-2,        -7,       4, 5, INT32_MIN, INT32_MAX, (INT64_C(1) << 32) + 1, -(INT64_C(1) << 32),
                           INT64_MIN, INT64_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        for (int last = 0; last < 2; last++)
            for (int wide = bad[i] < INT32_MIN || bad[i] > INT32_MAX; wide < 2; wide++) {
                char expected[128];
                snprintf(expected, sizeof expected, "ids at token %d, slot %d is %lld, expected -1 or 0 .. 3", last,
                         2 * last, (long long)bad[i]);
                check_bad_id(bad[i], wide, 5 * last, expected);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bound_of_padded_rows_is_reached_and_never_passed),
        cmocka_unit_test(b11_a_plan_past_two_to_the_31_bytes),
        cmocka_unit_test(a_fixed_capacity_bounds_the_rows),
        cmocka_unit_test(b18_ids_of_any_strides_are_read),
        cmocka_unit_test(b09_ids_out_of_range_are_named),
    };
    rig_poison_allocations(0xff);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
