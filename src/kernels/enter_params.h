/* Parameters of the kernels that bring what this rank has for a call to where all ranks look for it. C and C++.
 *
 * mm_call_enter checks and narrows the ids and writes them, with the weights, to the slots of all ranks; then it sends
 * the header, with what it found, and says ready. A call that is refused brings no tokens. mm_call_copy copies the
 * tokens, and what else belongs to them, to the own slots and says that they are there. It may run beside mm_call_enter
 * and what follows, but has to be done before this rank's fused kernel begins, which leaves no room for it. */
#ifndef MM_KERNELS_ENTER_PARAMS_H
#define MM_KERNELS_ENTER_PARAMS_H

#include "kernels/call_params.h"
#include "kernels/row_params.h"

struct enter_params {
    struct call_group group;
    struct call_header header;       /* as it is sent, but for the fault, and in a backward for a word of `agreed`: */
    const uint32_t *forward_call;    /* number of the forward, which may have been a replay; NULL: in a forward */
    uint32_t forward_word;           /* where it stands */
    struct strided_matrix ids;       /* [T, K] int32 or int64 */
    struct strided_matrix weights;   /* [T, K] fp32 */
    uint32_t wide;                   /* 1: ids are int64 */
    uint32_t tokens, top_k;          /* T, K; T is the header's */
    uint32_t experts;                /* E */
    uint32_t check_weights;          /* 1: the weight of a used slot must be finite */
    uint64_t ids_slot, weights_slot; /* offsets in every segment of this rank's part, [T, K] contiguous */
    uint32_t *first_faults;          /* scratch, [CTAs] */
    uint32_t *ctas_done;             /* zero before the first launch; each launch leaves it zero */
};

/* One matrix to where all ranks read it. */
struct slot_copy {
    struct strided_matrix from; /* [T, H] bf16; H is a multiple of 8 */
    uint64_t slot;              /* in the own segment, [T, H] contiguous */
};

struct copy_params {
    struct call_group group;
    struct slot_copy copies[2];
    uint32_t count; /* of them */
    uint32_t tokens, hidden;
    uint32_t *ctas_done; /* as above, another one */
};

/* Both: any number of CTAs of ENTER_THREADS; the first with ENTER_SHARED_BYTES. */
#define ENTER_THREADS 512u
#define ENTER_SHARED_BYTES (ENTER_THREADS / 32u * 4u)

#endif
