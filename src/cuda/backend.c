/* The CUDA backend's table; see cuda.h. */
#include <stdio.h>

#include "cuda/caller_memory.h"
#include "cuda/calls.h"
#include "cuda/cuda.h"
#include "cuda/describe.h"
#include "cuda/exchange.h"
#include "cuda/failure.h"
#include "cuda/passes.h"
#include "cuda/setup.h"

enum { MULTIPLE = 64 }; /* of H and I: what the copy engine moves at a time */

static bool supports(const mmoe_layer_config *config, char *reason, size_t bytes) {
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = {{"hidden", config->hidden}, {"intermediate", config->intermediate}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (sizes[i].value % MULTIPLE != 0) {
            snprintf(reason, bytes, "%s is %lld, expected a multiple of %d for backend \"cuda\"", sizes[i].name,
                     (long long)sizes[i].value, MULTIPLE);
            return false;
        }
    }
    if (config->weight_on != MMOE_WEIGHT_ON_OUTPUT) {
        snprintf(reason, bytes, "weight_on is %d (the expert's input), expected %d for backend \"cuda\"",
                 (int)config->weight_on, (int)MMOE_WEIGHT_ON_OUTPUT);
        return false;
    }
    return true;
}

/* The stream of the forward is not known here. The default one follows it, and waits for all streams that block. */
static const mmoe_plan *plan(struct mmoe_saved *saved) {
    struct mm_cuda_saved *kept = saved->backend_state;
    const struct mm_cuda_group *cuda = saved->layer->group->backend_state;
    const mmoe_plan *view = NULL;
    if (mm_gpu_enter(&cuda->gpu) == MMOE_OK) {
        if (mm_cuda_follow_calls(cuda, NULL) == MMOE_OK) {
            mm_cuda_plan_view(&cuda->gpu, &kept->plan, &view);
        }
        mm_gpu_leave(&cuda->gpu);
    }
    return view;
}

const struct mm_backend mm_cuda_backend = {
    .name = "cuda",
    .present = mm_cuda_present,
    .describe_device = mm_cuda_describe_device,
    .device_memory = &mm_cuda_device_memory,
    .supports = supports,
    .segments = &mm_host_segments,
    .sharing = &mm_cuda_sharing,
    .layout = mm_cuda_layout,
    .sizes = mm_cuda_sizes,
    .group_open = mm_cuda_group_open,
    .group_close = mm_cuda_group_close,
    .layer_open = mm_cuda_layer_open,
    .layer_close = mm_cuda_layer_close,
    .saved_open = mm_cuda_saved_open,
    .saved_close = mm_cuda_saved_close,
    .plan = plan,
    .forward = mm_cuda_forward,
    .backward = mm_cuda_backward,
    .forward_traced = mm_cuda_forward_traced,
    .backward_traced = mm_cuda_backward_traced,
    .earlier = mm_cuda_failure,
    .refuse = mm_cuda_refuse_whole,
};
