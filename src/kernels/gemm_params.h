/* Parameters of the grouped GEMM kernels, shared by the host side and the kernels. C and C++.
 *
 * Rows lie in pools of 128-row blocks; each local expert owns a run of blocks (its segment). H is the hidden size, I
 * the intermediate size, both multiples of 64. The boxes that a map must have are said where it is declared, innermost
 * first; every map has the 128-byte swizzle. "Row box" is {64, 128}: 64 columns of 128 rows of a pool; "piece" is
 * {64, 16}: what a warp stores at a time. */
#ifndef MM_KERNELS_GEMM_PARAMS_H
#define MM_KERNELS_GEMM_PARAMS_H

#include "kernels/tensor_map_desc.h"

/* The segments, as the plan kernel writes them, in device memory. */
struct row_segments {
    const int32_t *first_row; /* [experts + 1] multiples of 128; the last one is the end */
    const int32_t *used_rows; /* [experts] without pads */
    uint32_t experts;         /* local ones */
    const uint32_t *by_rows;  /* [experts] in the order in which gradients of weights are made; NULL: as they are */
};

/* A weight of all local experts: either one map of a whole [El, rows, columns] tensor, or, when `each` is not NULL, a
 * map an expert in device memory, whose last dimension is 1. */
struct weight_map {
    struct tensor_map whole;
    const struct tensor_map *each;
};

/* h = bf16(silu(g) * u), g = bf16(x W1), u = bf16(x W3). */
struct gate_up_params {
    struct tensor_map x;        /* [rows, H] bf16, box {64, 64} */
    struct weight_map gate, up; /* W1, W3 as {H, I, El} bf16, box {64, 128, 1} */
    struct tensor_map h;        /* [rows, I] bf16, piece */
    struct tensor_map gate_out; /* [rows, I] bf16 in the pool of gate and up, piece; used when `keep` */
    struct tensor_map up_out;
    struct row_segments segments;
    uint32_t hidden, intermediate;
    uint32_t keep;  /* 1: g and u are stored too */
    uint32_t clamp; /* 1: g is clipped at `limit`, u at +-limit */
    float limit;
};

/* y row = bf16(w * (h W2)). */
struct down_params {
    struct tensor_map h;     /* [rows, I] bf16, box {64, 64} */
    struct weight_map down;  /* W2 as {I, H, El} bf16, box {64, 128, 1} */
    struct tensor_map y;     /* [rows, H] bf16, piece */
    const float *row_weight; /* [rows], 0 in pads */
    struct row_segments segments;
    uint32_t hidden, intermediate;
};

/* From dy rows: dg, du, w*h, and the parts of dw. */
struct dgate_up_params {
    struct tensor_map dy;         /* [rows, H] bf16, box {64, 64} */
    struct weight_map down;       /* W2 as {64, H, I/64, El} bf16, strides {I, 64, H*I}, box {64, 64, 2, 1} */
    struct tensor_map gate, up;   /* [rows, I] bf16 in the kept pool, row box */
    struct tensor_map dgate, dup; /* [rows, I] bf16 in the pool of dg and du, row box */
    struct tensor_map h_weighted; /* [rows, I] bf16, row box */
    uint16_t *weighted;           /* the same rows */
    const float *row_weight;      /* [rows], 0 in pads */
    float *dw_parts;              /* [ceil(I / 256), padded rows] */
    uint32_t padded_rows;         /* stride of dw_parts */
    struct row_segments segments;
    uint32_t hidden, intermediate;
    uint32_t clamp;
    float limit;
};

/* dx row = bf16(dg W1 + du W3). */
struct dx_params {
    struct tensor_map dgate_up; /* [rows, 2I] bf16, box {64, 64} */
    struct weight_map gate, up; /* W1, W3 as {64, I, H/64, El} bf16, strides {H, 64, I*H}, box {64, 64, 2, 1} */
    struct tensor_map dx;       /* [rows, H] bf16, piece */
    struct row_segments segments;
    uint32_t hidden, intermediate;
};

#endif
