/* What the ranks of a group share in device memory to make calls together, and the parameters of the kernels that begin
 * a call: mm_call_open, mm_call_copy and mm_call_enter (enter_params.h), mm_call_meet. docs/protocol.md explains the
 * protocol. C and C++.
 *
 * A rank's shared device memory begins with a struct call_control; every other part is found by its offset. All of it
 * is zero before the first call. Counters only grow and are compared wrap-safe; entry [s] is written by rank s alone.
 */
#ifndef MM_KERNELS_CALL_PARAMS_H
#define MM_KERNELS_CALL_PARAMS_H

#include "kernels/work_params.h"

#define CALL_MAX_WORLD 64
#define NOBODY 0xffffffffu   /* no rank */
#define CALL_AGREED_WORDS 42 /* of 32 bits: struct mm_agreement of the host */
#define CALL_REASON_BYTES 384
#define CALL_HELLO_WORDS 44 /* of 32 bits: struct mm_hello of the host */

enum ids_fault_kind { IDS_GOOD, IDS_BAD_ID, IDS_BAD_WEIGHT };

/* The first slot, in the order of tokens and slots, that must not be computed. */
struct ids_fault {
    uint32_t kind; /* enum ids_fault_kind; the rest is written unless it is IDS_GOOD */
    uint32_t token, slot;
    uint32_t weight; /* bits of the float; of IDS_BAD_WEIGHT */
    int64_t id;      /* of IDS_BAD_ID */
};

/* What a rank tells each peer at the start of a call. */
struct call_header {
    alignas(16) uint32_t agreed[CALL_AGREED_WORDS]; /* equal on all ranks */
    int32_t tokens;                                 /* T of this rank */
    int32_t wants_dx, wants_dw;                     /* backward: what this rank wants to receive */
    int32_t status;                                 /* not 0: the rank refuses the call, with this mmoe_status */
    struct ids_fault fault;                         /* not IDS_GOOD: the rank refuses the call for this */
    char reason[CALL_REASON_BYTES];                 /* why, with a status */
};

/* What a rank was doing when it gave up a call. */
enum call_step {
    CALL_AWAITS_LEFT = 1, /* the peers to leave the call before */
    CALL_AWAITS_READY,    /* the peers to come to this call */
    CALL_AWAITS_TOKENS,   /* a peer's slot to be complete */
    CALL_AWAITS_ROWS,     /* token rows, which this rank fetches itself */
    CALL_AWAITS_H,        /* activations of this rank, or its gate and up */
    CALL_AWAITS_DGRAD,    /* gradients of its gate and up */
    CALL_AWAITS_RESULTS,  /* result rows of a peer */
    CALL_GAVE_UP          /* nothing: its host could not go on */
};

/* A rank's last word. */
struct call_stop {
    alignas(128) uint32_t call;
    uint32_t step;    /* enum call_step */
    uint32_t culprit; /* the rank that was awaited in vain */
};

/* What a rank of an adopted group, whose hosts can't ask one another, says of itself before its first call. It lies in
 * its own memory alone. */
struct call_introduction {
    struct call_flag posted;
    alignas(128) uint32_t hello[CALL_HELLO_WORDS]; /* without the rank; equal on all ranks of a group */
};

/* The introductions come first: ranks that differ in anything else find them. */
struct call_control {
    struct call_introduction introduction[CALL_MAX_WORLD];
    struct call_flag ready[CALL_MAX_WORLD], left[CALL_MAX_WORLD];
    struct call_flag tokens_there[CALL_MAX_WORLD]; /* the number of the call for which a rank's slot is complete */
    struct call_flag rows_arrived[CALL_MAX_WORLD], dw_arrived[CALL_MAX_WORLD];
    struct call_flag stopped; /* 0, or 1 + the rank whose stop was the first to be told here */
    struct call_stop stop[CALL_MAX_WORLD];
    struct call_header header[CALL_MAX_WORLD];
};

/* How a call went on this rank. */
enum call_outcome {
    CALL_GOOD,
    CALL_REFUSED,    /* by `rank`: see its header */
    CALL_MISMATCH,   /* the headers of `rank` and of this rank differ */
    CALL_CAPACITY,   /* more rows were routed to `rank` than it may keep: see the plan's summary */
    CALL_STOPPED,    /* the group is broken: `rank` gave up first */
    CALL_NO_FORWARD, /* a backward's: the forward that it belongs to failed, as the plan of `rank` tells */
    CALL_STRANGER    /* `rank` is of another group: see its introduction. No call of this one can be made */
};

struct call_result {
    uint32_t outcome; /* enum call_outcome */
    uint32_t rank;
    uint32_t rows; /* CALL_CAPACITY: routed to `rank` */
    uint32_t call;
};

/* A call that failed without being stopped. */
struct call_failure {
    struct call_result result;        /* call 0: there is none. The rest belongs to it: */
    uint32_t number;                  /* of failures, this one among them */
    struct call_header header[2];     /* CALL_REFUSED, CALL_MISMATCH: of `result.rank`; CALL_MISMATCH, CALL_CAPACITY: of
                                         this rank */
    uint32_t hello[CALL_HELLO_WORDS]; /* CALL_STRANGER: of `result.rank` */
};

/* What the host learns of calls, in its memory. */
struct call_told {
    uint32_t ended;             /* the last call that has ended, well or not */
    uint32_t seen;              /* by the host: the last one of `first` that it has taken note of */
    uint32_t failures;          /* so many calls have failed, those that were stopped not counted: */
    struct call_failure first;  /* the first one that came after `seen`, of which those behind it may have failed */
    struct call_failure last;   /* and the last one */
    struct call_result stopped; /* the first call that was stopped, if the outcome says so. The rest belongs to it: */
    struct call_stop stop;      /* the last word of `stopped.rank` */
    uint32_t spoilt;            /* 1: gradients of weights have a part of what was to be added */
};

/* A rank's own, on its device. */
struct call_state {
    uint32_t call;             /* n: the current or last one */
    uint32_t introduced;       /* 1: all ranks have been found to be of one group, where that had to be asked */
    uint32_t opened;           /* 1: all ranks have left call n-1: this rank may write where they read */
    struct call_result result; /* of call n before its main kernel */
    uint32_t gave_up;          /* 1: the last call was given up after the ranks had met */
    uint32_t adding;           /* the last call that has begun to add to gradients of weights */
    int32_t tokens[CALL_MAX_WORLD];
    uint64_t wants_dx, wants_dw; /* backward: the ranks that want results, a bit each */
    uint32_t rows_target[CALL_MAX_WORLD], dw_target[CALL_MAX_WORLD]; /* arrivals from each rank that end call n */
    uint32_t stopping; /* 1: one of this rank's threads tells all ranks that it gives up */
};

/* The group, as every kernel of a call gets it. */
struct call_group {
    uint32_t world, rank;
    uint64_t arrive_ns, progress_ns;        /* time limits: for peers to come to a call; for everything else */
    unsigned char *segment[CALL_MAX_WORLD]; /* each rank's shared memory, as mapped on this device */
    struct call_state *state;               /* of this rank */
    struct call_told *told;                 /* in memory of the host */
};

/* Of mm_call_open, one CTA of CALL_THREADS: takes the next number and waits until all peers have left the call before.
 */
struct open_params {
    struct call_group group;
    uint32_t introduces; /* 1: before the first call the ranks compare their hellos */
    uint32_t hello[CALL_HELLO_WORDS];
};

/* Of mm_call_meet, one CTA of CALL_THREADS: waits for the headers of all ranks, compares them and notes how many tokens
 * each brings: none, when the call can't be made. And of mm_call_stop. */
struct call_params {
    struct call_group group;
};

#define CALL_THREADS 32u

#endif
