/* The one way in which a rank waits for others, and how it wakes them. */
#ifndef MM_GROUP_WAIT_H
#define MM_GROUP_WAIT_H

#include "group/group.h"

/* How long a peer may take, from the start of the wait or the last time it was seen to work in a call. */
enum mm_patience {
    MM_UNTIL_ARRIVED, /* arrive_timeout: it may be busy with something that is no call of the group */
    MM_WHILE_WORKING  /* progress_timeout */
};

/* What is awaited of each rank r: that flag[r] reaches target[r]. */
struct mm_awaited {
    const struct mm_flag *flag[MMOE_MAX_WORLD];
    uint32_t target[MMOE_MAX_WORLD];
    const char *doing; /* "awaiting ready" and the like, for the error text */
    enum mm_patience patience;
};

/* Fails with MMOE_PEER_LOST or MMOE_TIMEOUT and a sentence that names the rank to blame and what was awaited, or as
 * some rank's abort says. */
mmoe_status mm_wait(const struct mmoe_group *group, const struct mm_awaited *awaited);

/* Wakes rank `peer` to look at its flags. */
void mm_ring(const struct mmoe_group *group, int peer);

/* This rank shows its peers that it works; costs next to nothing when repeated. */
void mm_show_progress(const struct mmoe_group *group);

/* The lowest rank that has aborted, or -1. */
int mm_aborted_rank(const struct mmoe_group *group);

/* Fails as the abort of that rank says. */
mmoe_status mm_abort_status(const struct mmoe_group *group, int rank);

static inline bool mm_reached(uint32_t value, uint32_t target) {
    return (int32_t)(value - target) >= 0;
}

#endif
