/* Conversions; see convert.h. The contiguous loops are what the compiler turns into vector code. */
#include <math.h>
#include <string.h>

#include "base/bf16.h"
#include "cpu/clones.h"
#include "cpu/convert.h"

struct mm_matrix mm_matrix_of(const mmoe_tensor *tensor) {
    return (struct mm_matrix){tensor->data, tensor->dtype, {tensor->stride[0], tensor->stride[1]}};
}

static size_t dtype_bytes(mmoe_dtype dtype) {
    return dtype == MMOE_BF16 ? sizeof(uint16_t) : sizeof(float);
}

struct mm_matrix mm_matrix_of_expert(const mmoe_tensor *tensor, int64_t index) {
    struct mm_matrix matrix = {NULL, tensor->dtype, {tensor->stride[1], tensor->stride[2]}};
    if (tensor->experts != NULL)
        matrix.data = tensor->experts[index];
    else
        matrix.data = (char *)tensor->data + index * tensor->stride[0] * (int64_t)dtype_bytes(tensor->dtype);
    return matrix;
}

MM_CLONES void mm_widen(int64_t n, const uint16_t *restrict in, float *restrict out) {
    for (int64_t i = 0; i < n; i++)
        out[i] = mm_bf16_to_float(in[i]);
}

MM_CLONES void mm_widen_scaled(int64_t n, float scale, const uint16_t *restrict in, float *restrict out) {
    for (int64_t i = 0; i < n; i++)
        out[i] = mm_bf16_to_float(mm_bf16_from_float(scale * mm_bf16_to_float(in[i])));
}

MM_CLONES void mm_narrow_scaled(int64_t n, float scale, const float *restrict in, uint16_t *restrict out) {
    for (int64_t i = 0; i < n; i++)
        out[i] = mm_bf16_from_float(scale * in[i]);
}

MM_CLONES void mm_narrow(int64_t n, const float *restrict in, uint16_t *restrict out) {
    for (int64_t i = 0; i < n; i++)
        out[i] = mm_bf16_from_float(in[i]);
}

MM_CLONES void mm_add_widened(int64_t n, const uint16_t *restrict in, float *restrict sum) {
    for (int64_t i = 0; i < n; i++)
        sum[i] += mm_bf16_to_float(in[i]);
}

/* A matrix whose rows are not contiguous is read in squares this wide, so that a cache line read down a column is used
 * up before it is gone. */
enum { SQUARE = 16 };

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

void mm_widen_tile(const struct mm_matrix *in, int64_t row, int64_t col, int64_t rows, int64_t cols, float *out,
                   int64_t pitch) {
    const int64_t down = in->stride[0], right = in->stride[1];
    const uint16_t *from = (const uint16_t *)in->data + row * down + col * right;
    if (right == 1) {
        for (int64_t i = 0; i < rows; i++)
            mm_widen(cols, from + i * down, out + i * pitch);
        return;
    }
    for (int64_t i0 = 0; i0 < rows; i0 += SQUARE)
        for (int64_t j = 0; j < cols; j++)
            for (int64_t i = i0; i < smaller(i0 + SQUARE, rows); i++)
                out[i * pitch + j] = mm_bf16_to_float(from[i * down + j * right]);
}

void mm_read_row(const struct mm_matrix *in, int64_t row, int64_t cols, uint16_t *out) {
    const uint16_t *from = (const uint16_t *)in->data + row * in->stride[0];
    if (in->stride[1] == 1) {
        memcpy(out, from, (size_t)cols * sizeof *out);
        return;
    }
    for (int64_t j = 0; j < cols; j++)
        out[j] = from[j * in->stride[1]];
}

void mm_write_row(const struct mm_matrix *out, int64_t row, int64_t cols, const uint16_t *in) {
    uint16_t *to = (uint16_t *)out->data + row * out->stride[0];
    if (out->stride[1] == 1) {
        memcpy(to, in, (size_t)cols * sizeof *in);
        return;
    }
    for (int64_t j = 0; j < cols; j++)
        to[j * out->stride[1]] = in[j];
}

MM_CLONES static void add_row_f32(int64_t n, const float *restrict in, float *restrict out) {
    for (int64_t i = 0; i < n; i++)
        out[i] += in[i];
}

MM_CLONES static void add_row_bf16(int64_t n, const float *restrict in, uint16_t *restrict out) {
    for (int64_t i = 0; i < n; i++)
        out[i] = mm_bf16_from_float(mm_bf16_to_float(out[i]) + in[i]);
}

static void store_row_f32(float *out, int64_t step, int64_t n, const float *in, int accumulate) {
    if (step == 1 && accumulate)
        add_row_f32(n, in, out);
    else if (step == 1)
        memcpy(out, in, (size_t)n * sizeof *in);
    else
        for (int64_t j = 0; j < n; j++)
            out[j * step] = accumulate ? out[j * step] + in[j] : in[j];
}

static void store_row_bf16(uint16_t *out, int64_t step, int64_t n, const float *in, int accumulate) {
    if (step == 1 && accumulate)
        add_row_bf16(n, in, out);
    else if (step == 1)
        mm_narrow(n, in, out);
    else
        for (int64_t j = 0; j < n; j++)
            out[j * step] = mm_bf16_from_float(accumulate ? mm_bf16_to_float(out[j * step]) + in[j] : in[j]);
}

void mm_store_tile(const struct mm_matrix *out, int64_t row, int64_t col, int64_t rows, int64_t cols, const float *in,
                   int64_t pitch, int accumulate) {
    for (int64_t i = 0; i < rows; i++) {
        int64_t at = (row + i) * out->stride[0] + col * out->stride[1];
        if (out->dtype == MMOE_F32)
            store_row_f32((float *)out->data + at, out->stride[1], cols, in + i * pitch, accumulate);
        else
            store_row_bf16((uint16_t *)out->data + at, out->stride[1], cols, in + i * pitch, accumulate);
    }
}

static void fill_matrix_nan(const struct mm_matrix *matrix, int64_t rows, int64_t cols) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            int64_t at = i * matrix->stride[0] + j * matrix->stride[1];
            if (matrix->dtype == MMOE_F32)
                ((float *)matrix->data)[at] = NAN;
            else
                ((uint16_t *)matrix->data)[at] = MM_BF16_NAN;
        }
}

void mm_fill_nan(const mmoe_tensor *tensor) {
    if (tensor->dims == 2) {
        struct mm_matrix matrix = mm_matrix_of(tensor);
        fill_matrix_nan(&matrix, tensor->shape[0], tensor->shape[1]);
    }
    for (int64_t i = 0; tensor->dims == 3 && i < tensor->shape[0]; i++) {
        struct mm_matrix matrix = mm_matrix_of_expert(tensor, i);
        fill_matrix_nan(&matrix, tensor->shape[1], tensor->shape[2]);
    }
}
