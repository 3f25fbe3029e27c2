/* Where everything lies in a rank's symmetric segment.
 *
 *     control | x slot [Tmax,H] | dy slot [Tmax,H] | ids [W,Tmax,K] | weights [W,Tmax,K]
 *             | combine slots [Tmax,K,H] | dw slots [Tmax,K]
 *
 * Capital letters are the group's maxima; a smaller layer uses the front of each part with its own contiguous
 * pitch: slot x[t,h] of a layer at x + t*H_layer + h. Parts start at multiples of MM_ALIGN. */
#ifndef MM_GROUP_LAYOUT_H
#define MM_GROUP_LAYOUT_H

#include <stdatomic.h>

#include "base/memory.h"
#include "group/hello.h"

/* A counter that another rank writes, alone on its cache lines. Counters only grow and are compared wrap-safe. */
struct mm_flag {
    _Alignas(MM_ALIGN) _Atomic uint32_t value;
};

/* What the ranks must agree on at a call; compared field by field, a difference is shown with both values. */
struct mm_agreement {
    int64_t version, max_tokens, max_hidden, max_top_k, max_experts; /* of the group */
    int64_t call, kind, layer, forward_call, recompute;              /* of the call */
    int64_t hidden, intermediate, experts, top_k, weight_on, activation, capacity_policy, capacity, drop;
    int64_t combine;
    double limit;
};

#define MM_REASON_BYTES 384

/* What a rank tells each peer at the start of a call. */
struct mm_header {
    struct mm_agreement agreed;
    int64_t tokens;               /* T of this rank */
    int32_t wants_dx, wants_dw;   /* backward: what this rank wants to receive */
    int32_t status;               /* not MMOE_OK: the rank refuses the call */
    char reason[MM_REASON_BYTES]; /* of a refusal */
};

/* A rank's last word. Written once; `posted` turns 1 after the other fields are complete. */
struct mm_abort {
    _Alignas(MM_ALIGN) _Atomic uint32_t posted;
    uint32_t call;
    int32_t status;
    char reason[MM_REASON_BYTES]; /* names the culprit rank and the step */
};

/* How a rank of an adopted group makes itself known; `posted` turns 1 after the hello is complete. */
struct mm_introduction {
    struct mm_flag posted;
    struct mm_hello hello;
};

/* Index [s] is written by rank s alone.
 *
 * Everything up to the introductions lies at the same place in all versions of the library, so that ranks that disagree
 * on anything at all can still wait for one another and be told. */
struct mm_control {
    struct mm_flag doorbell; /* bumped after every other flag here, so that a sleeper on it wakes */
    struct mm_flag progress; /* bumped by this rank itself while it works: a peer that waits for a rank that still
                                works does not count that time against it */
    struct mm_flag pulse;    /* bumped by this rank itself while it waits for others: of several peers that are late,
                                the one that has been silent for longest is to blame */
    struct mm_abort abort[MMOE_MAX_WORLD];
    struct mm_introduction introduction[MMOE_MAX_WORLD];

    struct mm_flag rows_arrived[MMOE_MAX_WORLD], dw_arrived[MMOE_MAX_WORLD]; /* cumulative over calls */
    struct mm_flag ready[MMOE_MAX_WORLD];
    struct mm_flag left[MMOE_MAX_WORLD];
    struct mm_header header[MMOE_MAX_WORLD];
};

/* Byte offsets from the start of a segment. */
struct mm_layout {
    size_t control, x, dy, ids, weights, combine, dw, bytes;
    size_t ids_stride, weights_stride; /* bytes between the parts of two source ranks: Tmax*K elements */
};

/* The configuration must have been checked. */
struct mm_layout mm_layout_of(const mmoe_group_config *config, int world);

#endif
