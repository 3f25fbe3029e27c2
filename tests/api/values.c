/* Functions that take and give plain values: versions, names, defaults, tensor views, backends, error text. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "rig/rig.h"

static void version_is_that_of_the_header(void **state) {
    (void)state;
    char expected[32];
    snprintf(expected, sizeof expected, "%d.%d.%d", MMOE_VERSION_MAJOR, MMOE_VERSION_MINOR, MMOE_VERSION_PATCH);
    assert_string_equal(mmoe_version(), expected);
}

static void every_status_has_its_name(void **state) {
    (void)state;
    const char *const names[] = {"MMOE_OK",      "MMOE_INVALID_ARGUMENT", "MMOE_UNSUPPORTED", "MMOE_OUT_OF_MEMORY",
                                 "MMOE_SYSTEM",  "MMOE_MISMATCH",         "MMOE_REFUSED",     "MMOE_CAPACITY",
                                 "MMOE_TIMEOUT", "MMOE_PEER_LOST",        "MMOE_BROKEN"};
    for (int i = 0; i < (int)(sizeof names / sizeof names[0]); i++)
        assert_string_equal(mmoe_status_name((mmoe_status)i), names[i]);
    assert_string_equal(mmoe_status_name((mmoe_status)11), "unknown status");
    assert_string_equal(mmoe_status_name((mmoe_status)-1), "unknown status");
}

static void defaults_are_those_of_the_header(void **state) {
    (void)state;
    mmoe_group_config group = mmoe_group_config_default();
    assert_int_equal(group.struct_size, sizeof group);
    assert_int_equal(group.arrive_timeout_ms, 600000);
    assert_int_equal(group.progress_timeout_ms, 30000);
    assert_int_equal(group.threads, 0);
    assert_int_equal(group.spare_multiprocessors, 0);
    assert_null(group.backend);
    assert_string_equal(group.name, "");
    mmoe_layer_config layer = mmoe_layer_config_default();
    assert_int_equal(layer.struct_size, sizeof layer);
    assert_int_equal(layer.weight_on, MMOE_WEIGHT_ON_OUTPUT);
    assert_int_equal(layer.capacity_policy, MMOE_CAPACITY_GROW);
    assert_int_equal(layer.check_weights, 1);
    assert_true(layer.limit == 0);
    assert_int_equal(mmoe_forward_args_default().struct_size, sizeof(mmoe_forward_args));
    assert_int_equal(mmoe_backward_args_default().struct_size, sizeof(mmoe_backward_args));
    assert_int_equal(mmoe_backward_args_default().dx.dims, 0);
}

static void views_are_contiguous(void **state) {
    (void)state;
    char data[1];
    mmoe_tensor matrix = mmoe_matrix(data, MMOE_BF16, 5, 7);
    assert_ptr_equal(matrix.data, data);
    assert_int_equal(matrix.dims, 2);
    assert_int_equal(matrix.shape[0], 5);
    assert_int_equal(matrix.stride[0], 7);
    assert_int_equal(matrix.stride[1], 1);
    mmoe_tensor stack = mmoe_stack(data, MMOE_F32, 3, 5, 7);
    assert_int_equal(stack.dims, 3);
    assert_int_equal(stack.shape[0], 3);
    assert_int_equal(stack.stride[0], 35);
    assert_int_equal(stack.stride[1], 7);
    assert_int_equal(stack.stride[2], 1);
    void *experts[3] = {data, data, data};
    mmoe_tensor scattered = mmoe_stack_of(experts, MMOE_F32, 3, 5, 7);
    assert_null(scattered.data);
    assert_ptr_equal(scattered.experts, experts);
    assert_int_equal(scattered.stride[1], 7);
    assert_int_equal(mmoe_stack(data, MMOE_F32, 1, INT64_MAX, INT64_MAX).dims, 3); /* wraps, and traps nowhere */
}

static void rows_of_a_stack_lie_inside_it_or_are_absent(void **state) {
    (void)state;
    float data[2 * 6 * 4];
    mmoe_tensor stack = mmoe_stack(data, MMOE_F32, 2, 6, 4);
    mmoe_tensor up = mmoe_stack_rows(stack, 3, 3);
    assert_ptr_equal(up.data, data + 3 * 4);
    assert_int_equal(up.shape[1], 3);
    assert_int_equal(up.stride[0], 6 * 4);
    assert_int_equal(mmoe_stack_rows(stack, 6, 0).shape[1], 0);
    void *experts[2] = {data, data};
    const struct {
        mmoe_tensor stack;
        int64_t first, count;
    } bad[] = {
        {stack, -1, 2},
        {stack, 0, 7},
        {stack, 4, 3},
        {stack, 2, -1},
        {stack, INT64_MAX, 1},
        {stack, 1, INT64_MAX},
        {mmoe_stack(data, MMOE_F32, 2, INT64_MAX, INT64_MAX / 4), INT64_MAX - 1, 1},
        {mmoe_matrix(data, MMOE_F32, 6, 4), 0, 3},
        {mmoe_stack_of(experts, MMOE_F32, 2, 6, 4), 0, 3},
        {{0}, 0, 0},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        mmoe_tensor rows = mmoe_stack_rows(bad[i].stack, bad[i].first, bad[i].count);
        mmoe_tensor absent = {0};
        assert_memory_equal(&rows, &absent, sizeof absent);
    }
}

static void backends_are_listed(void **state) {
    (void)state;
    int count = mmoe_backend_count(), present = -1;
    const char *detail = NULL;
    assert_true(count >= 1);
    bool cpu = false;
    for (int i = 0; i < count; i++) {
        const char *name = mmoe_backend(i, &present, &detail);
        assert_non_null(name);
        assert_true(present == 0 || present == 1);
        assert_true(detail[0] != '\0');
        cpu = cpu || (strcmp(name, "cpu") == 0 && present == 1);
        assert_string_equal(mmoe_backend(i, NULL, NULL), name);
    }
    assert_true(cpu);
    assert_null(mmoe_backend(count, &present, &detail));
    assert_null(mmoe_backend(-1, &present, &detail));
    assert_null(mmoe_backend(-1, NULL, NULL));
}

static void unsupported_layers_have_a_reason(void **state) {
    (void)state;
    mmoe_layer_config layer = rig_layer(8, 8, 4, 2);
    assert_null(mmoe_unsupported_reason(NULL, &layer, 2));
    assert_null(mmoe_unsupported_reason("cpu", &layer, 4));
    assert_non_null(
        strstr(mmoe_unsupported_reason("abacus", &layer, 2), "\"abacus\", expected one of this build: cuda, cpu"));
    assert_non_null(strstr(mmoe_unsupported_reason(NULL, NULL, 2), "config is NULL"));
    assert_non_null(strstr(mmoe_unsupported_reason(NULL, &layer, 0), "world is 0, expected 1 .. 64"));
    assert_non_null(
        strstr(mmoe_unsupported_reason(NULL, &layer, 3), "config.experts is 4, expected a multiple of the 3"));
    layer.hidden = 0;
    assert_non_null(strstr(mmoe_unsupported_reason(NULL, &layer, 2), "config.hidden is 0"));
}

static void *error_of_a_thread(void *text) {
    snprintf(text, MM_ERROR_BYTES, "%s", mmoe_last_error());
    return NULL;
}

static void error_text_belongs_to_its_thread(void **state) {
    (void)state;
    char elsewhere[MM_ERROR_BYTES] = "poison";
    pthread_t thread;
    assert_int_equal(mmoe_group_check(NULL), MMOE_INVALID_ARGUMENT);
    assert_string_equal(mmoe_last_error(), "group is NULL, expected a group");
    assert_int_equal(pthread_create(&thread, NULL, error_of_a_thread, elsewhere), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_string_equal(elsewhere, "");
    assert_int_equal(mm_fail(MMOE_SYSTEM, "outer: %s", mmoe_last_error()), MMOE_SYSTEM);
    assert_string_equal(mmoe_last_error(), "outer: group is NULL, expected a group");
}

static void long_error_text_is_cut(void **state) {
    (void)state;
    char text[2 * MM_ERROR_BYTES];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    assert_int_equal(mm_fail(MMOE_SYSTEM, "%s", text), MMOE_SYSTEM);
    assert_int_equal(strlen(mmoe_last_error()), MM_ERROR_BYTES - 1);
    assert_int_equal(mm_fail_system(2, "%s", text), MMOE_SYSTEM);
    assert_int_equal(strlen(mmoe_last_error()), MM_ERROR_BYTES - 1);
    assert_int_equal(mm_fail_system(2, "can't open %s", "it"), MMOE_SYSTEM);
    assert_string_equal(mmoe_last_error(), "can't open it: No such file or directory");
}

/* Where there is nothing to fail: the harmless answer of megamoe.h. */
static void null_handles_do_no_harm(void **state) {
    (void)state;
    mmoe_group *group = NULL;
    mmoe_layer *layer = NULL;
    mmoe_saved *saved = NULL;
    mmoe_plan *plan = NULL;
    mmoe_group_destroy(NULL);
    mmoe_group_destroy(&group);
    mmoe_layer_destroy(NULL);
    mmoe_layer_destroy(&layer);
    mmoe_saved_destroy(NULL);
    mmoe_saved_destroy(&saved);
    mmoe_plan_destroy(NULL);
    mmoe_plan_destroy(&plan);
    assert_null(mmoe_saved_plan(NULL));
    assert_int_equal(mmoe_group_rank(NULL), -1);
    assert_int_equal(mmoe_group_world(NULL), 0);
    mmoe_forward_args forward = mmoe_forward_args_default();
    mmoe_backward_args backward = mmoe_backward_args_default();
    assert_int_equal(mmoe_forward(NULL, &forward), MMOE_INVALID_ARGUMENT);
    assert_string_equal(mmoe_last_error(), "layer is NULL, expected a layer");
    assert_int_equal(mmoe_forward(NULL, NULL), MMOE_INVALID_ARGUMENT);
    assert_int_equal(mmoe_backward(NULL, &backward), MMOE_INVALID_ARGUMENT);
    assert_int_equal(mmoe_backward(NULL, NULL), MMOE_INVALID_ARGUMENT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(version_is_that_of_the_header),
        cmocka_unit_test(every_status_has_its_name),
        cmocka_unit_test(defaults_are_those_of_the_header),
        cmocka_unit_test(views_are_contiguous),
        cmocka_unit_test(rows_of_a_stack_lie_inside_it_or_are_absent),
        cmocka_unit_test(backends_are_listed),
        cmocka_unit_test(unsupported_layers_have_a_reason),
        cmocka_unit_test(error_text_belongs_to_its_thread),
        cmocka_unit_test(long_error_text_is_cut),
        cmocka_unit_test(null_handles_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
