/* Parameters of the fused forward kernel, shared by the host side and the kernel. C and C++.
 *
 * mm_forward fetches the rows that the plan gives this rank, from all ranks' x slots, computes them, pushes each row's
 * result to its token's combine slot on its own rank, and sums this rank's tokens. Any number of CTAs of FUSED_THREADS
 * with FUSED_SMEM_BYTES, one an SM; it makes progress with any part of them running.
 *
 * Letters: R padded rows of the plan, H, I, El, T, K as everywhere. H and I are multiples of 64. */
#ifndef MM_KERNELS_FORWARD_PARAMS_H
#define MM_KERNELS_FORWARD_PARAMS_H

#include "kernels/gemm_params.h"
#include "kernels/plan_params.h"
#include "kernels/row_params.h"
#include "kernels/trace_params.h"

struct forward_params {
    struct call_group group;
    struct call_work work;

    struct tensor_map x;        /* [R, H] bf16, box {64, 128} */
    struct weight_map gate, up; /* W1, W3 as {H, I, El} bf16, box {64, 128, 1} */
    struct tensor_map h;        /* [R, I] bf16, box {64, 128} */
    struct tensor_map h_out;    /* the same, box {64, 16} */
    struct tensor_map gate_out; /* [R, I] bf16 in the pool of gate and up, box {64, 16}; used when `keep` */
    struct tensor_map up_out;
    struct weight_map down; /* W2 as {I, H, El} bf16, box {64, 128, 1} */

    void *x_rows;          /* the pool behind `x` */
    struct plan_rows rows; /* the plan */
    struct plan_tables tables;
    struct plan_slots slots;
    const int32_t *token_rows; /* [W, token_stride, K]: row on this rank of each rank's slots; negative: none */
    uint64_t token_stride;     /* tokens */
    uint64_t x_slot, combine;  /* offsets in the segments: [T_r, H] and [T_r, K, H] bf16, of this layer's H and K */
    const void *own_x;         /* this rank's tokens, [T, H] contiguous; NULL: they are in its x slot */
    struct strided_matrix y;   /* out: [T, H] bf16 */
    uint32_t hidden, intermediate, top_k, tokens;
    uint32_t tentative; /* 1: does nothing at all unless the call is good and has at most `row_room` padded rows */
    uint32_t row_room;
    uint32_t keep;  /* 1: g and u are stored too */
    uint32_t clamp; /* 1: g is clipped at `limit`, u at +-limit */
    float limit;
    struct trace_params trace; /* of mm_forward_traced, which does the same and records what it does */
};

#endif
