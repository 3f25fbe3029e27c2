/* Why a call failed, as the device that found it has told this host. */
#ifndef MM_CUDA_FAILURE_H
#define MM_CUDA_FAILURE_H

#include "cuda/state.h"

/* MMOE_OK, or why the first call that failed and has not been asked for did so, as far as the device has told; one that
 * stopped breaks the group. */
mmoe_status mm_cuda_failure(struct mmoe_group *group);

/* The same of a call alone that is the last one so far, and that the device has told of: it has the number `call`, or
 * has ended. What is not known yet of calls before it stays to be asked for. */
mmoe_status mm_cuda_failure_of(struct mmoe_group *group, uint32_t call);
mmoe_status mm_cuda_failure_of_ended(struct mmoe_group *group);

/* Whether the device has told of a call that was stopped, and with it of what had been added by then. */
bool mm_cuda_has_stopped(const struct mm_cuda_group *cuda);

/* The last failure's sentence, and that gradients of weights have a part of what was to be added to them. Not
 * `certain`: that they may have one, since the host does not know how far the device has come. */
mmoe_status mm_cuda_spoilt(mmoe_status status, bool certain);

#endif
