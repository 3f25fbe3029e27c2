/* Parameters of the kernels that move rows between tokens and experts on one GPU, shared by the host side and the
 * kernels. C and C++. Each takes any number of CTAs and no shared memory. H is a multiple of 8, K at most 64. */
#ifndef MM_KERNELS_ROW_PARAMS_H
#define MM_KERNELS_ROW_PARAMS_H

#include <stdint.h>

#define ROW_THREADS 512u

/* A caller's matrix: element (i, j) at data + i * stride[0] + j * stride[1]. */
struct strided_matrix {
    void *data;
    int64_t stride[2]; /* elements */
};

/* mm_gather: each token's row to all rows that its slots have; pads zero. */
struct gather_params {
    struct strided_matrix from; /* [T, H] bf16 */
    void *rows;                 /* out: [padded_rows, H] bf16, 16-byte aligned */
    const int32_t *slot_row;    /* [T, K] negative: no row */
    const int32_t *row_token;   /* [padded_rows] negative: a pad */
    uint32_t tokens, top_k, hidden, padded_rows;
};

/* mm_combine: the rows of each token's slots, summed in fp32 in the order of the slots and rounded once; +0 for a token
 * without rows. */
struct combine_params {
    const void *rows;         /* [padded_rows, H] bf16, 16-byte aligned */
    struct strided_matrix to; /* out: [T, H] bf16 */
    const int32_t *slot_row;  /* [T, K] negative: no row */
    uint32_t tokens, top_k, hidden;
};

/* mm_combine_dw: the parts of each slot's row, summed in their order; +0 for a slot without a row. */
struct combine_dw_params {
    const float *parts;       /* [part_count, padded_rows] */
    struct strided_matrix to; /* out: [T, K] fp32 */
    const int32_t *slot_row;  /* [T, K] negative: no row */
    uint32_t tokens, top_k, part_count, padded_rows;
};

/* mm_fill_nan: every element of a matrix. */
struct fill_nan_params {
    struct strided_matrix to; /* [rows, cols] */
    uint32_t rows, cols;
    uint32_t wide; /* 1: fp32; 0: bf16 */
};

#endif
