/* The checks on where outputs lie, against a map of the bytes that every element covers. */
#include <string.h>

#include "api/check.h"
#include "rig/rig.h"

enum { BYTES = 4096, MOST_EXPERTS = 3, SEEDS = 60000 };

/* Only addresses matter: nothing here is read or written through the tensors. */
static _Alignas(16) unsigned char memory[BYTES];

/* Counts, for every byte, the elements that cover it. */
static void cover(const mmoe_tensor *tensor, unsigned char *map) {
    int64_t shape[3] = {1, 1, 1}, stride[3] = {0, 0, 0};
    int shift = 3 - tensor->dims, bytes = (int)mm_dtype_bytes(tensor->dtype);
    for (int d = 0; d < tensor->dims; d++) {
        shape[d + shift] = tensor->shape[d];
        stride[d + shift] = tensor->stride[d];
    }
    for (int64_t e = 0; e < shape[0]; e++)
        for (int64_t i = 0; i < shape[1]; i++)
            for (int64_t j = 0; j < shape[2]; j++) {
                const unsigned char *base = tensor->experts != NULL ? tensor->experts[e] : tensor->data;
                int64_t element = (tensor->experts != NULL ? 0 : e * stride[0]) + i * stride[1] + j * stride[2];
                int64_t at = base - memory + element * bytes;
                assert_in_range(at, 0, BYTES - bytes);
                for (int b = 0; b < bytes; b++)
                    map[at + b]++;
            }
}

static bool covered_twice(const unsigned char *map) {
    for (int i = 0; i < BYTES; i++)
        if (map[i] > 1)
            return true;
    return false;
}

static int64_t pick_stride(struct rig_random *random) {
    static const int64_t common[] = {0, 1, 2, 3, 4, 6, 8, 12};
    int64_t stride = rig_below(random, 3) == 0 ? rig_below(random, 40) : common[rig_below(random, 8)];
    return rig_below(random, 4) == 0 ? -stride : stride;
}

/* Small shapes with strides that often fold, nest or interleave, in the middle of the memory. */
static mmoe_tensor pick_tensor(struct rig_random *random, void **experts) {
    static const mmoe_dtype dtypes[] = {MMOE_BF16, MMOE_F32, MMOE_I64};
    mmoe_tensor tensor = {.dtype = dtypes[rig_below(random, 3)], .dims = 2 + (int32_t)rig_below(random, 2)};
    for (int d = 0; d < tensor.dims; d++) {
        tensor.shape[d] = rig_below(random, 10) == 0 ? 0 : 1 + rig_below(random, 4 - d);
        tensor.stride[d] = pick_stride(random);
    }
    bool scattered = tensor.dims == 3 && rig_below(random, 2);
    if (!scattered) {
        tensor.data = memory + BYTES / 2 + 8 * rig_below(random, 32);
        return tensor;
    }
    tensor.shape[0] = 1 + rig_below(random, MOST_EXPERTS);
    for (int e = 0; e < MOST_EXPERTS; e++)
        experts[e] = memory + BYTES / 2 + 8 * rig_below(random, 32);
    tensor.experts = experts;
    return tensor;
}

/* An output of its own; for a stack of pointers its matrices, whose distance is the other check's matter. */
static void check_distinct(const struct mm_argument *argument) {
    unsigned char map[BYTES];
    bool folds = false;
    mmoe_tensor matrix = *argument->tensor;
    int64_t count = 1;
    if (matrix.experts != NULL) {
        count = matrix.shape[0];
        matrix.experts = NULL;
        matrix.dims = 2;
        memmove(matrix.shape, matrix.shape + 1, 2 * sizeof(int64_t));
        memmove(matrix.stride, matrix.stride + 1, 2 * sizeof(int64_t));
    }
    for (int64_t e = 0; e < count; e++) {
        memset(map, 0, sizeof map);
        matrix.data = argument->tensor->experts != NULL ? argument->tensor->experts[e] : matrix.data;
        cover(&matrix, map);
        folds = folds || covered_twice(map);
    }
    assert_int_equal(mm_check_distinct(argument) == MMOE_OK, !folds);
}

static bool any_expert_overlaps(const mmoe_tensor *tensor) {
    unsigned char map[BYTES] = {0};
    cover(tensor, map);
    return covered_twice(map);
}

static void random_tensors_are_judged_as_by_their_bytes(void **state) {
    (void)state;
    static struct { _Alignas(16) unsigned char bytes[4096]; } scratch;
    assert_true(sizeof scratch >= mm_overlap_bytes(MOST_EXPERTS));
    int pairs = rig_scaled("pairs of tensors", SEEDS, SEEDS / 10), refused = 0, interleaved = 0;
    for (int pair = 0; pair < pairs; pair++) {
        struct rig_random random = rig_seed((uint64_t)pair);
        void *experts[2][MOST_EXPERTS];
        mmoe_tensor a = pick_tensor(&random, experts[0]), b = pick_tensor(&random, experts[1]);
        struct mm_argument arguments[] = {{.expect.name = "a", .tensor = &a, .output = true},
                                          {.expect.name = "b", .tensor = &b, .output = rig_below(&random, 2)}};
        check_distinct(&arguments[0]);
        check_distinct(&arguments[1]);
        bool folds = mm_check_distinct(&arguments[0]) != MMOE_OK || any_expert_overlaps(&a) ||
                     (arguments[1].output && any_expert_overlaps(&b));
        if (folds)
            continue; /* outputs are judged on their own first */
        unsigned char map_a[BYTES] = {0}, map_b[BYTES] = {0};
        cover(&a, map_a);
        cover(&b, map_b);
        bool overlaps = false;
        for (int i = 0; i < BYTES; i++)
            overlaps = overlaps || (map_a[i] && map_b[i]);
        mmoe_status status = mm_check_overlap(arguments, 2, scratch.bytes);
        assert_int_equal(status, overlaps ? MMOE_INVALID_ARGUMENT : MMOE_OK);
        refused += overlaps;
        interleaved += !overlaps;
    }
    assert_true(refused > pairs / 20 && interleaved > pairs / 20); /* both verdicts are common */
}

/* Real sizes: gate and up halves of one [El, 2I, H] tensor, and slices of columns and rows of a wider one. */
static void halves_and_slices_of_one_tensor_are_apart(void **state) {
    (void)state;
    enum { EXPERTS = 128, I = 2048, H = 7168 };
    static struct { _Alignas(16) unsigned char bytes[(6 * EXPERTS + MM_MOST_ARGUMENTS) * 64]; } scratch;
    assert_true(sizeof scratch >= mm_overlap_bytes(EXPERTS));
    mmoe_tensor joint = mmoe_stack(memory, MMOE_F32, EXPERTS, 2 * I, H);
    mmoe_tensor halves[] = {mmoe_stack_rows(joint, 0, I), mmoe_stack_rows(joint, I, I)};
    mmoe_tensor columns[2] = {mmoe_matrix(memory, MMOE_BF16, 37450, H), mmoe_matrix(memory, MMOE_BF16, 37450, H)};
    columns[0].stride[0] = columns[1].stride[0] = 2 * H;
    columns[1].data = (void *)((uintptr_t)memory + 2 * (uintptr_t)H);
    mmoe_tensor *const pairs[][2] = {{&halves[0], &halves[1]}, {&columns[0], &columns[1]}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        struct mm_argument arguments[] = {{.expect.name = "a", .tensor = pairs[i][0], .output = true},
                                          {.expect.name = "b", .tensor = pairs[i][1], .output = true}};
        assert_int_equal(mm_check_distinct(&arguments[0]), MMOE_OK);
        assert_int_equal(mm_check_overlap(arguments, 2, scratch.bytes), MMOE_OK);
        /* one row, or one column, too many: they touch */
        pairs[i][0]->shape[1]++;
        assert_int_equal(mm_check_overlap(arguments, 2, scratch.bytes), MMOE_INVALID_ARGUMENT);
        assert_non_null(strstr(mmoe_last_error(), "a at "));
        assert_non_null(strstr(mmoe_last_error(), "overlaps b at "));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_tensors_are_judged_as_by_their_bytes),
        cmocka_unit_test(halves_and_slices_of_one_tensor_are_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
