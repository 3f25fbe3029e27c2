/* Waiting for this rank's device with an ear to the other ranks' hosts: a rank whose device can't say any more that it
 * gives up tells it by its host, and one that has died is missed. */
#ifndef MM_CUDA_LISTEN_H
#define MM_CUDA_LISTEN_H

#include "cuda/state.h"

/* Until the event has come. When a rank has given up the group breaks and everything of it on this device ends. With
 * `all_needed` that is so too when a rank has died: whoever is given, must still do its part. `at`: what this rank does
 * meanwhile. */
mmoe_status mm_cuda_await(struct mmoe_group *group, mm_cu_event event, enum mm_step at, bool all_needed);

/* Before a call is queued: a rank that has died and has not come to it breaks the group, when the calls before have
 * ended or can't any more. */
mmoe_status mm_cuda_check_lives(struct mmoe_group *group);

/* Ends the waits of this device's kernels, now and in later calls: the group is broken. Launches nothing, since they
 * may hold all multiprocessors. The GPU's context is current. */
void mm_cuda_end_waits(const struct mmoe_group *group);

/* Before the group's memory goes: until its last call has ended, or can't any more. The GPU's context is current. */
void mm_cuda_settle(struct mmoe_group *group);

#endif
