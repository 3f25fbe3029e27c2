/* Proof of life between processes: a lock that the kernel drops when its holder dies. */
#ifndef MM_GROUP_LIFE_H
#define MM_GROUP_LIFE_H

#include <stdbool.h>

#include "megamoe.h"

/* `shown` goes to the peers; `held` stays here and carries the lock. */
struct mm_life {
    int shown, held;
};

mmoe_status mm_life_begin(struct mm_life *life);

/* Whether the process that shows this descriptor still holds its lock. */
bool mm_life_lasts(int shown);

#endif
