/* Parameters of mm_call_enter: it brings what this rank has for a call to where all ranks look for it. C and C++.
 *
 * It copies the tokens to the own slot, checks and narrows ids and writes them, with the weights, to the slots of all
 * ranks; then it sends the header, with what it found, and says ready. A call that is refused brings no tokens. */
#ifndef MM_KERNELS_ENTER_PARAMS_H
#define MM_KERNELS_ENTER_PARAMS_H

#include "kernels/call_params.h"
#include "kernels/row_params.h"

struct enter_params {
    struct call_group group;
    struct call_header header;       /* as it is sent, but for the fault */
    struct strided_matrix ids;       /* [T, K] int32 or int64 */
    struct strided_matrix weights;   /* [T, K] fp32 */
    struct strided_matrix x;         /* [T, H] bf16; H is a multiple of 8 */
    uint32_t wide;                   /* 1: ids are int64 */
    uint32_t tokens, top_k, hidden;  /* T, K, H; T is the header's */
    uint32_t experts;                /* E */
    uint32_t check_weights;          /* 1: the weight of a used slot must be finite */
    uint32_t copy_x;                 /* 0: peers don't read it, or it is there */
    uint64_t ids_slot, weights_slot; /* offsets in every segment of this rank's part, [T, K] contiguous */
    uint64_t x_slot;                 /* in the own segment, [T, H] contiguous */
    uint32_t *first_faults;          /* scratch, [CTAs] */
    uint32_t *ctas_done;             /* zero before the first launch; each launch leaves it zero */
};

/* Any number of CTAs of ENTER_THREADS, with ENTER_SHARED_BYTES. */
#define ENTER_THREADS 512u
#define ENTER_SHARED_BYTES (ENTER_THREADS / 32u * 4u)

#endif
