/* A call without a layer, step by step through call.h, with values that say whence they come.
 *
 * Every slot of every token is routed by a hash of (call, rank, token, slot). Its row travels from the slot of its
 * source to the rank it was routed to and back into the source's combine slot, and carries its call, rank and token, so
 * that one stale or swapped row shows. */
#ifndef GROUP_DRIVE_H
#define GROUP_DRIVE_H

#include "group/call.h"
#include "rig/world.h"

/* One call. MMOE_OK when it went through; then every row was right, or `rank` has failed. */
mmoe_status drive_call(struct rig_rank *rank, mmoe_group *group);

/* Until a call fails, at most `calls`. */
mmoe_status drive_calls(struct rig_rank *rank, mmoe_group *group, int calls);

/* A header of a forward of layer 0. */
struct mm_header drive_header(const mmoe_group *group);

#endif
