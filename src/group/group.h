/* The EP group: who the ranks are, where their segments are mapped, and the state of the calls.
 *
 * The protocol itself is in call.h; how segments come to be is in memory.h. docs/protocol.md explains both. */
#ifndef MM_GROUP_GROUP_H
#define MM_GROUP_GROUP_H

#include <pthread.h>

#include "base/error.h"
#include "group/layout.h"
#include "group/memory.h"

struct mm_backend;

/* The places in set-up and in a call where a test may delay, stop or kill a rank. */
enum mm_step {
    MM_STEP_CONNECT, /* set-up: before meeting the peers */
    MM_STEP_MAP,     /* set-up: met, before mapping the peers' segments */
    MM_STEP_MAPPED,  /* set-up: mapped, before the last agreement */
    MM_STEP_BEGIN,   /* call: before waiting for left(n-1) */
    MM_STEP_WRITE,   /* call: before writing the slot, ids and weights */
    MM_STEP_READY,   /* call: before the headers and ready(n) */
    MM_STEP_MEET,    /* call: ready posted, before awaiting the peers' */
    MM_STEP_PULL,    /* call: before pulling from each peer, once a peer */
    MM_STEP_LEFT,    /* call: before posting left(n) to each peer, once a peer */
    MM_STEP_PUSH,    /* call: before posting a peer its arrivals, once a peer */
    MM_STEP_AWAIT,   /* call: before awaiting own arrivals */
    MM_STEP_END,     /* call: result complete */
    MM_STEP_COUNT
};

/* "awaiting ready" and the like, for error texts and tests. */
const char *mm_step_name(enum mm_step step);

/* Tests only: called at every step; a non-OK status, with the thread's error text set, makes the step fail as if the
 * machine had. NULL in products. */
struct mm_hook {
    mmoe_status (*at)(void *context, int rank, enum mm_step step);
    void *context;
};

struct mmoe_group {
    mmoe_group_config config; /* defaults filled in; `name` and `backend` point to memory the group owns */
    char name[64];
    int rank, world;
    struct mm_layout layout;
    unsigned char *segment[MMOE_MAX_WORLD]; /* rank r's segment as mapped here */
    struct mm_memory *memory;               /* keeps the segments mapped; NULL when the caller does */
    bool adopted;                           /* the ranks have not met before their first call */
    bool in_threads;                        /* the ranks are threads of this process */
    void *const *given;                     /* the caller's segments, while an adopted group is made */
    struct mm_hook hook;

    const struct mm_backend *backend;
    void *backend_state;
    int32_t layers_made;

    pthread_mutex_t lock; /* held for the length of a call */
    uint32_t call;        /* n, the number of the current or last call; 0 before the first */
    uint64_t left_posted; /* bit r: rank r has left(n) from here */
    uint32_t rows_target[MMOE_MAX_WORLD], dw_target[MMOE_MAX_WORLD]; /* cumulative arrivals from each rank that end
                                                                        the current call */
    mmoe_status broken;                                              /* MMOE_OK, or the status of the first cause */
    char broken_text[MM_ERROR_BYTES];
};

static inline struct mm_control *mm_control(const struct mmoe_group *group, int rank) {
    return (struct mm_control *)(void *)(group->segment[rank] + group->layout.control);
}

/* Checks every field of a configuration, and fills in defaults. */
mmoe_status mm_group_config_check(const mmoe_group_config *config, int world, mmoe_group_config *out);

/* The public makers with a hook (may be NULL); `backend` was chosen by the caller. They check the configuration, open
 * the backend's part of the group, which mm_group_free closes, and let the ranks share its devices' memory.
 * `rendezvous` is "path:..." or "name:...". See megamoe.h. */
mmoe_status mm_group_make_threads(const mmoe_group_config *config, int world, const struct mm_backend *backend,
                                  const struct mm_hook *hook, struct mmoe_group **groups);
mmoe_status mm_group_make_processes(const mmoe_group_config *config, const char *rendezvous, int rank, int world,
                                    const struct mm_backend *backend, const struct mm_hook *hook,
                                    struct mmoe_group **group);
mmoe_status mm_group_make_adopted(const mmoe_group_config *config, int rank, int world, void *const *segments,
                                  const struct mm_backend *backend, const struct mm_hook *hook,
                                  struct mmoe_group **group);
void mm_group_free(struct mmoe_group *group);

/* A handle with its checked configuration and rank; no segments yet. */
mmoe_status mm_group_new(const mmoe_group_config *config, int rank, int world, const struct mm_backend *backend,
                         const struct mm_hook *hook, struct mmoe_group **group);

/* A failure of set-up, with the thread's error text, as one that says whose it is. MMOE_OK stays. */
mmoe_status mm_group_failed(const struct mmoe_group *group, mmoe_status status);

/* Runs the hook. */
mmoe_status mm_group_step(const struct mmoe_group *group, enum mm_step step);

/* LOCAL_RANK of the environment, as torchrun sets it; without it `rank`. */
int mm_group_local_rank(int rank);

/* Rank, world and the rendezvous text from the environment: "path:..." or "name:...". */
mmoe_status mm_group_environment(int *rank, int *world, char *rendezvous, size_t bytes);

#endif
