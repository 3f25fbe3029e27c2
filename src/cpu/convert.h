/* Moving bf16 matrices: to fp32 and back, from and to any strides.
 *
 * A strided matrix is a pointer to its element (0, 0) and two strides in elements, as in mmoe_tensor. The contiguous
 * side of a move is row-major with the pitch that is said. */
#ifndef MM_CPU_CONVERT_H
#define MM_CPU_CONVERT_H

#include <stdint.h>

#include "megamoe.h"

/* A matrix of the caller, or one expert's of a stack. */
struct mm_matrix {
    void *data;
    mmoe_dtype dtype;
    int64_t stride[2]; /* elements */
};

/* A 2-dimensional tensor, and matrix `index` of a 3-dimensional one. */
struct mm_matrix mm_matrix_of(const mmoe_tensor *tensor);
struct mm_matrix mm_matrix_of_expert(const mmoe_tensor *tensor, int64_t index);

/* out[i] = in[i] as fp32; exact. */
void mm_widen(int64_t n, const uint16_t *in, float *out);

/* out[i] = bf16(scale * in[i]) as fp32. */
void mm_widen_scaled(int64_t n, float scale, const uint16_t *in, float *out);

/* out[i] = bf16(scale * in[i]). */
void mm_narrow_scaled(int64_t n, float scale, const float *in, uint16_t *out);

/* out[i] = bf16(in[i]). */
void mm_narrow(int64_t n, const float *in, uint16_t *out);

/* sum[i] += in[i]. */
void mm_add_widened(int64_t n, const uint16_t *in, float *sum);

/* Elements (row .. row+rows-1, col .. col+cols-1) of a bf16 matrix to out [rows, cols], row pitch `pitch`. */
void mm_widen_tile(const struct mm_matrix *in, int64_t row, int64_t col, int64_t rows, int64_t cols, float *out,
                   int64_t pitch);

/* One row of a bf16 matrix to or from contiguous memory. */
void mm_read_row(const struct mm_matrix *in, int64_t row, int64_t cols, uint16_t *out);
void mm_write_row(const struct mm_matrix *out, int64_t row, int64_t cols, const uint16_t *in);

/* in [rows, cols], row pitch `pitch`, to the tile at (row, col) of a bf16 or fp32 matrix: overwritten, or added to what
 * is there in fp32 and rounded once. */
void mm_store_tile(const struct mm_matrix *out, int64_t row, int64_t col, int64_t rows, int64_t cols, const float *in,
                   int64_t pitch, int accumulate);

/* Every element of a tensor (none when it is absent) becomes a quiet NaN. */
void mm_fill_nan(const mmoe_tensor *tensor);

#endif
