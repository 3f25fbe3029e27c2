/* The device memory that the calls of a group work on and that stays from call to call: where counters stand, and
 * scratch of the plan. Made with the group, zero before the first call. */
#ifndef MM_CUDA_WORKSPACE_H
#define MM_CUDA_WORKSPACE_H

#include "cuda/device_memory.h"
#include "kernels/enter_params.h"
#include "kernels/plan_params.h"

struct mm_cuda_workspace {
    struct mm_device_buffer memory;
    struct call_state *state;
    struct call_work work;
    uint32_t *chunk_counts; /* [chunks, E] */
    uint32_t *first_faults; /* [CTAs] */
    uint32_t *ctas_done;    /* of mm_call_enter */
    uint32_t *ctas_copied;  /* of mm_call_copy */
};

/* CTAs of the plan's kernels and of mm_call_enter, at most. */
enum { MM_CUDA_PLAN_CTAS = 132, MM_CUDA_ENTER_CTAS = 264 };

mmoe_status mm_cuda_workspace_make(const struct mm_gpu *gpu, const mmoe_group_config *config, int world,
                                   struct mm_cuda_workspace *workspace);
void mm_cuda_workspace_free(const struct mm_gpu *gpu, struct mm_cuda_workspace *workspace);

size_t mm_cuda_workspace_bytes(const mmoe_group_config *config, int world);

#endif
