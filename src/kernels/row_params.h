/* Matrices of callers, and the kernel that fills one; shared by the host side and the kernels. C and C++. */
#ifndef MM_KERNELS_ROW_PARAMS_H
#define MM_KERNELS_ROW_PARAMS_H

#include <stdint.h>

#define ROW_THREADS 512u

/* A caller's matrix: element (i, j) at data + i * stride[0] + j * stride[1]. */
struct strided_matrix {
    void *data;
    int64_t stride[2]; /* elements */
};

/* mm_fill_nan: every element of a matrix. Any number of CTAs of ROW_THREADS. */
struct fill_nan_params {
    struct strided_matrix to; /* [rows, cols] */
    uint32_t rows, cols;
    uint32_t wide; /* 1: fp32; 0: bf16 */
};

#endif
