/* Proof of life between processes: a lock that the kernel drops when its holder dies. */
#ifndef MM_GROUP_LIFE_H
#define MM_GROUP_LIFE_H

#include <stdbool.h>

#include "megamoe.h"

/* Makes this process's descriptor, to be shown to the peers and kept open until the process is no longer a rank. */
mmoe_status mm_life_begin(int *life);

/* Whether the process that shows this descriptor still holds its lock. */
bool mm_life_lasts(int life);

/* Whether it is this process that does. */
bool mm_life_is_own(int life);

#endif
