/* What the fused kernels of a forward and of a backward are told alike, shared by the host side and the kernels. C and
 * C++.
 *
 * A fused kernel fetches the rows that the plan gives this rank from all ranks' slots, computes them, and pushes each
 * row's result to its token's combine slot on its own rank. Any number of CTAs of FUSED_THREADS, one an SM; it makes
 * progress with any part of them running.
 *
 * Letters: R padded rows of the plan, H, I, El, T, K as everywhere. H and I are multiples of 64. */
#ifndef MM_KERNELS_FUSED_PARAMS_H
#define MM_KERNELS_FUSED_PARAMS_H

#include "kernels/gemm_params.h"
#include "kernels/plan_params.h"
#include "kernels/row_params.h"
#include "kernels/trace_params.h"

/* Rows of tokens that are fetched: this rank's own from where the caller has them. */
struct fetched_rows {
    uint64_t slot;   /* offset in the segments: [T_r, H] bf16 */
    const void *own; /* [T, H] contiguous; NULL: they are in this rank's slot */
    void *rows;      /* out: [R, H] bf16 */
};

#define FETCHED_MOST 2u

struct fused_call {
    struct call_group group;
    struct call_work work;
    struct plan_rows rows; /* the plan */
    struct plan_tables tables;
    struct plan_slots slots;
    const int32_t *token_rows; /* [W, token_stride, K]: row on this rank of each rank's slots; negative: none */
    uint64_t token_stride;     /* tokens */
    struct fetched_rows fetched[FETCHED_MOST];
    uint32_t fetched_count;
    uint64_t combine; /* offset in the segments: [T_r, K, H] bf16 */
    uint32_t hidden, intermediate, top_k, tokens;
    uint32_t clamp; /* 1: g is clipped at `limit`, u at +-limit */
    float limit;
    struct trace_params trace; /* of a traced kernel, which does the same and records what it does */
};

#endif
