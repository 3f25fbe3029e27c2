/* The row products: a row's bits don't depend on its company. Run as OpenBLAS picks its kernels for this CPU, and again
 * with other kernels (OPENBLAS_CORETYPE), whose blocks round differently. */
#include "check.h"

#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "cpu/convert.h"
#include "cpu/gemm.h"
#include "rig/random.h"

static struct mm_workspace space_of(int64_t depth) {
    return (struct mm_workspace){malloc(mm_workspace_a(depth) * sizeof(float)),
                                 malloc(mm_workspace_b(depth) * sizeof(float)),
                                 malloc(mm_workspace_c() * sizeof(float))};
}

static void free_space(struct mm_workspace *space) {
    free(space->a);
    free(space->b);
    free(space->c);
}

static uint16_t *random_bf16(int64_t n, uint64_t seed) {
    struct rig_random random = rig_seed(seed);
    uint16_t *values = malloc((size_t)n * sizeof *values);
    for (int64_t i = 0; i < n; i++)
        values[i] = mm_bf16_from_float((float)rig_normal(&random));
    return values;
}

/* B as one matrix in memory, [cols, depth] or [depth, cols]. */
struct right {
    struct mm_matrix matrix;
    struct mm_gemm_shape shape;
};

static void load(const void *context, int64_t depth, int64_t count, float *b) {
    const struct right *right = context;
    if (right->shape.layout == MM_GEMM_COLS_DEPTH)
        mm_widen_tile(&right->matrix, 0, depth, right->shape.cols, count, b, count);
    else
        mm_widen_tile(&right->matrix, depth, 0, count, right->shape.cols, b, right->shape.cols);
}

static double right_at(const struct right *right, int64_t depth, int64_t col) {
    int64_t i = right->shape.layout == MM_GEMM_COLS_DEPTH ? col : depth;
    int64_t j = right->shape.layout == MM_GEMM_COLS_DEPTH ? depth : col;
    return mm_bf16_to_float(((const uint16_t *)right->matrix.data)[i * right->matrix.stride[0] + j]);
}

static const struct mm_gemm_shape shapes[] = {
    {1, 1, MM_GEMM_COLS_DEPTH},     {7, 16, MM_GEMM_DEPTH_COLS},     {64, 29, MM_GEMM_COLS_DEPTH},
    {192, 384, MM_GEMM_COLS_DEPTH}, {512, 192, MM_GEMM_COLS_DEPTH},  {512, 256, MM_GEMM_DEPTH_COLS},
    {1100, 92, MM_GEMM_DEPTH_COLS}, {2049, 240, MM_GEMM_COLS_DEPTH},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static void check_values(const struct mm_gemm *gemm, const struct right *right, int64_t rows, const float *c) {
    for (int64_t row = 0; row < rows; row += rows / 5 + 1)
        for (int64_t col = 0; col < gemm->shape.cols; col += 13) {
            double exact = 0, size = 0;
            for (int64_t k = 0; k < gemm->shape.depth; k++) {
                double product = mm_bf16_to_float(gemm->a[row * gemm->a_pitch + k]) * right_at(right, k, col);
                exact += product;
                size += fabs(product);
            }
            assert_true(fabs(c[row * gemm->shape.cols + col] - exact) <= size * 0x1p-20);
        }
}

/* Runs of every kind of length against each row on its own. */
static void a_row_has_the_same_bits_in_any_company(void **state) {
    (void)state;
    static const int64_t lengths[] = {1, 2, 9, 16, 17, 48, 100, 127, 128, 129, 250, 256, 300, 512, 639};
    enum { LENGTHS = sizeof lengths / sizeof lengths[0], ALONE = 12 };
    for (int s = 0; s < SHAPES; s++) {
        const int64_t depth = shapes[s].depth, cols = shapes[s].cols, pitch = depth + 3;
        struct mm_workspace space = space_of(depth);
        uint16_t *a = random_bf16(MM_GEMM_RUN_MAX * pitch, 1), *b = random_bf16(depth * cols, 2);
        struct right right = {{b, MMOE_BF16, {shapes[s].layout == MM_GEMM_COLS_DEPTH ? depth : cols, 1}}, shapes[s]};
        struct mm_gemm gemm = {
            .shape = shapes[s],
            .form = mm_gemm_probe(&shapes[s], &space),
            .a = a,
            .a_pitch = pitch,
            .load = load,
            .context = &right,
        };
        float *alone = malloc((size_t)(MM_GEMM_RUN_MAX * cols) * sizeof *alone);
        char *known = calloc(MM_GEMM_RUN_MAX, 1);
        for (int l = 0; l < LENGTHS; l++) {
            gemm.a = a;
            mm_gemm_run(&gemm, lengths[l], &space);
            float *together = malloc((size_t)(lengths[l] * cols) * sizeof *together);
            memcpy(together, space.c, (size_t)(lengths[l] * cols) * sizeof *together);
            check_values(&gemm, &right, lengths[l], together);
            for (int64_t row = 0; row < lengths[l]; row += lengths[l] / ALONE + 1) {
                if (!known[row]) {
                    gemm.a = a + row * pitch;
                    mm_gemm_run(&gemm, 1, &space);
                    memcpy(alone + row * cols, space.c, (size_t)cols * sizeof *alone);
                    known[row] = 1;
                }
                assert_memory_equal(alone + row * cols, together + row * cols, (size_t)cols * sizeof *alone);
            }
            free(together);
        }
        printf("depth %4d, columns %3d: %s, blocks 0x%x\n", (int)depth, (int)cols,
               gemm.form.transposed ? "transposed" : "direct", gemm.form.blocks);
        free(known);
        free(alone);
        free(a);
        free(b);
        free_space(&space);
    }
}

/* On AVX2 kernels the plain way, large blocks of rows, really does break the contract: the probe is needed, and these
 * tests see what it avoids. */
static void without_the_probe_bits_would_change_on_avx2_kernels(void **state) {
    (void)state;
    if (strcmp(openblas_get_corename(), "Haswell") != 0) {
        print_message("kernels are for %s, not run\n", openblas_get_corename());
        skip();
    }
    const struct mm_gemm_shape shape = {512, 256, MM_GEMM_COLS_DEPTH};
    struct mm_workspace space = space_of(shape.depth);
    struct mm_gemm_form probed = mm_gemm_probe(&shape, &space);
    assert_int_equal(probed.blocks >> 8, 0); /* no block of 256 rows */
    uint16_t *a = random_bf16(256 * shape.depth, 1), *b = random_bf16(shape.depth * shape.cols, 2);
    struct right right = {{b, MMOE_BF16, {shape.depth, 1}}, shape};
    struct mm_gemm gemm = {.shape = shape, .form = {false, 1u << 8}, .a = a, .load = load, .context = &right};
    gemm.a_pitch = 0; /* all rows are row 0 */
    mm_gemm_run(&gemm, 256, &space);
    int differ = 0;
    for (int64_t row = 1; row < 256; row++)
        differ += memcmp(space.c, space.c + row * shape.cols, (size_t)shape.cols * sizeof *space.c) != 0;
    assert_true(differ > 0);
    free(a);
    free(b);
    free_space(&space);
}

static void scaled_rows_are_rounded_before_the_product(void **state) {
    (void)state;
    const struct mm_gemm_shape shape = {96, 32, MM_GEMM_DEPTH_COLS};
    enum { ROWS = 40 };
    struct mm_workspace space = space_of(shape.depth);
    uint16_t *a = random_bf16(ROWS * shape.depth, 3), *b = random_bf16(shape.depth * shape.cols, 4);
    uint16_t *scaled = malloc((size_t)(ROWS * shape.depth) * sizeof *scaled);
    float scale[ROWS], expected[ROWS * 32];
    for (int64_t row = 0; row < ROWS; row++) {
        scale[row] = 0.37f * (float)(row - 11);
        for (int64_t k = 0; k < shape.depth; k++)
            scaled[row * shape.depth + k] = mm_bf16_from_float(scale[row] * mm_bf16_to_float(a[row * shape.depth + k]));
    }
    struct right right = {{b, MMOE_BF16, {shape.cols, 1}}, shape};
    struct mm_gemm gemm = {
        .shape = shape, .form = mm_gemm_probe(&shape, &space), .a = scaled, .a_pitch = shape.depth, .load = load};
    gemm.context = &right;
    mm_gemm_run(&gemm, ROWS, &space);
    memcpy(expected, space.c, sizeof expected);
    gemm.a = a;
    gemm.a_scale = scale;
    mm_gemm_run(&gemm, ROWS, &space);
    assert_memory_equal(expected, space.c, sizeof expected);
    free(scaled);
    free(a);
    free(b);
    free_space(&space);
}

/* Blocks cover any number of rows and stay inside the thread's memory, for any set of sizes. */
static void blocks_cover_every_run(void **state) {
    (void)state;
    for (uint32_t blocks = 1; blocks < 1u << 10; blocks++) {
        struct mm_gemm_form form = {false, blocks};
        for (int64_t rows = 1; rows < MM_GEMM_RUN_MAX; rows++) {
            int64_t row = 0;
            while (row < rows) {
                int64_t block = mm_gemm_block(&form, rows - row);
                assert_true(block > 0 && (block & (block - 1)) == 0 && (blocks & (uint32_t)block) != 0);
                row += block;
            }
            assert_true(row <= MM_GEMM_RUN_PADDED);
        }
    }
}

int main(void) {
    openblas_set_num_threads(1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_has_the_same_bits_in_any_company),
        cmocka_unit_test(without_the_probe_bits_would_change_on_avx2_kernels),
        cmocka_unit_test(scaled_rows_are_rounded_before_the_product),
        cmocka_unit_test(blocks_cover_every_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
