/* Parameters of the kernels of a backward over the rows of tokens, shared by the host side and the kernels. C and C++.
 *
 * mm_plan_resume makes ready for the plan of an earlier forward what a plan kernel makes ready for a new one.
 * mm_backward fetches rows of dy, and of x when gate and up are computed again, computes the gradients of the rows, and
 * pushes those of tokens, and of router weights, to the ranks that own them. The gradients of weights come next,
 * mm_wgrad_bf16 and mm_wgrad_f32, when all rows are there: they hide what is still on its way, and sum the tokens that
 * are complete. mm_backward_end sums the rest of this rank's tokens and ends the call. */
#ifndef MM_KERNELS_BACKWARD_PARAMS_H
#define MM_KERNELS_BACKWARD_PARAMS_H

#include "kernels/fused_params.h"
#include "kernels/fused_shape.h"

struct resume_params {
    struct call_group group;
    struct call_work work;
    struct plan_tables tables;
    uint32_t h_tiles, dgrad_tiles; /* of a block: of gate and up computed again, 0: they are not; of their gradients */
    uint32_t result_tiles;         /* of a row of dx: so often it arrives; 0: this rank wants none */
    uint32_t wants_dw;             /* 1: this rank wants the gradients of its router weights */
    uint32_t local_experts;
};

/* At least a thread for each local expert. */
#define RESUME_THREADS 512u

struct backward_params {
    struct fused_call call; /* fetched: dy; then x, when `redo` */

    /* Gate and up, when `redo` */
    struct tensor_map x;        /* [R, H] bf16, box {64, 128} */
    struct weight_map gate, up; /* W1, W3 as {H, I, El} bf16, box {64, 128, 1} */
    struct tensor_map gate_out; /* [R, I] bf16 in the pool of gate and up, box {64, 16} */
    struct tensor_map up_out;

    /* dA */
    struct tensor_map dy;             /* [R, H] bf16, box {64, 128} */
    struct weight_map down;           /* W2 as {64, H, I/64, El} bf16, box {64, 64, 2, 1} */
    struct tensor_map gate_in, up_in; /* [R, I] bf16 in the pool of gate and up, box {64, 128} */
    struct tensor_map dgate_out;      /* [R, I] bf16 in the pool of their gradients, box {64, 128} */
    struct tensor_map dup_out;
    struct tensor_map h_weighted; /* [R, I] bf16, box {64, 128} */
    float *dw_parts;              /* [ceil(I / 256), part_rows] */
    uint32_t part_rows;
    uint64_t dw; /* offset in the segments: [T_r, K] fp32 */

    /* dX */
    struct tensor_map dgate_up;        /* [R, 2I] bf16, box {64, 128} */
    struct weight_map gate_by_columns; /* W1, W3 as {64, I, H/64, El} bf16, box {64, 64, 2, 1} */
    struct weight_map up_by_columns;

    uint32_t redo;          /* 1: gate and up were not kept */
    uint32_t wants_weights; /* 1: this rank wants gradients of weights */
};

/* A barrier for each part of a tile of dA', behind what every fused kernel has: its gradients lie in their stage. */
#define GIVEN_OFFSET FUSED_SMEM_BYTES
#define BACKWARD_SMEM_BYTES (GIVEN_OFFSET + 8 * (TILE_COLUMNS / 64))

/* Weight gradients a^T b over an expert's rows: dW2 = dy^T (w*h), [H, I]; dW1 and dW3 = (dg, du)^T x, [I, H] each. */
struct wgrad_params {
    struct tensor_map a;      /* [R, M] bf16 as {64, R, M/64}, strides {M, 64}, box {64, 64, 2} */
    struct tensor_map b;      /* [R, N] bf16, likewise, box {64, 64, 2} */
    struct weight_map out[2]; /* {N, m, El}, bf16: box {64, 16, 1}, fp32: {32, 16, 1}; the second one: of dW3 */
    struct row_segments segments;
    uint32_t m;          /* rows of one output: H, or I */
    uint32_t n;          /* columns: I, or H */
    uint32_t outputs;    /* 1: dW2; 2: dW1 and dW3, whose a lie side by side in the pool */
    uint32_t accumulate; /* 1: added to what is there; 0: overwritten */

    uint32_t in_call;         /* 0: the rest is not used. Of a call that has failed nothing is made */
    uint32_t closing;         /* 1: behind the end of the call: NaN in what a failed one would overwrite, or nothing */
    struct fused_call call;   /* warps without work meanwhile sum tokens whose results have all come to */
    struct strided_matrix dx; /* out: [T, H] bf16; data NULL: none wanted */
};

struct backward_end_params {
    struct fused_call call;
    struct strided_matrix dx;       /* out: [T, H] bf16; data NULL: not wanted */
    struct strided_matrix dweights; /* out: [T, K] fp32; likewise */
    uint64_t dw;                    /* offset in the own segment: [T, K] fp32 */
};

/* Any number of CTAs. */
#define BACKWARD_END_THREADS 384u
#define BACKWARD_END_SHARED_BYTES 4u

#endif
