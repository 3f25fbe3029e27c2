/* Parameters of the fused forward kernel, shared by the host side and the kernel. C and C++.
 *
 * mm_forward fetches rows of x, computes them, pushes the results, and sums this rank's tokens. mm_forward_grouped sums
 * what it computed of a token before it pushes. They take FORWARD_SMEM_BYTES. */
#ifndef MM_KERNELS_FORWARD_PARAMS_H
#define MM_KERNELS_FORWARD_PARAMS_H

#include "kernels/fused_params.h"
#include "kernels/fused_shape.h"

/* Behind what every fused kernel has: a list of rows; see grouped_sums.cuh. */
#define GROUPED_LIST_OFFSET FUSED_SMEM_BYTES
#define FORWARD_SMEM_BYTES (GROUPED_LIST_OFFSET + 4 * CARRY_ROWS)

struct forward_params {
    struct fused_call call;

    struct tensor_map x;        /* [R, H] bf16, box {64, 128} */
    struct weight_map gate, up; /* W1, W3 as {H, I, El} bf16, box {64, 128, 1} */
    struct tensor_map h;        /* [R, I] bf16, box {64, 128} */
    struct tensor_map h_out;    /* the same, box {64, 16} */
    struct tensor_map gate_out; /* [R, I] bf16 in the pool of gate and up, box {64, 16}; used when `keep` */
    struct tensor_map up_out;
    struct weight_map down; /* W2 as {I, H, El} bf16, box {64, 128, 1} */

    struct strided_matrix y; /* out: [T, H] bf16 */

    uint32_t local_experts; /* El: expert e lies on rank e / El */
    unsigned char *to_sum;  /* grouped: [R, H] bf16, for rows whose token has others on this rank */

    uint32_t tentative; /* 1: does nothing at all unless the call is good and has at most `row_room` padded rows */
    uint32_t row_room;
    uint32_t keep; /* 1: g and u are stored too */
};

#endif
