/* Set-up and tear-down of a group; see setup.h. */
#include "cuda/setup.h"

#include <stdlib.h>
#include <string.h>

#include "cuda/listen.h"
#include "cuda/pools.h"
#include "kernels/backward_params.h"
#include "kernels/forward_params.h"
#include "kernels/trace_params.h"

/* Each kernel with the most dynamic shared memory that it is launched with. */
static const struct {
    const char *name;
    unsigned shared_bytes;
} kernels[MM_KERNELS] = {
    [MM_KERNEL_CALL_OPEN] = {"mm_call_open", 0},
    [MM_KERNEL_CALL_COPY] = {"mm_call_copy", 0},
    [MM_KERNEL_CALL_ENTER] = {"mm_call_enter", ENTER_SHARED_BYTES},
    [MM_KERNEL_CALL_MEET] = {"mm_call_meet", 0},
    [MM_KERNEL_CALL_STOP] = {"mm_call_stop", 0},
    [MM_KERNEL_COUNT_SLOTS] = {"mm_count_slots", 4 * MMOE_MAX_EXPERTS},
    [MM_KERNEL_PLACE_SLOTS] = {"mm_place_slots", PLAN_PLACE_SHARED_BYTES},
    [MM_KERNEL_FORWARD] = {"mm_forward", FORWARD_SMEM_BYTES},
    [MM_KERNEL_FORWARD_TRACED] = {"mm_forward_traced", TRACED_SMEM_BYTES},
    [MM_KERNEL_FORWARD_GROUPED] = {"mm_forward_grouped", FORWARD_SMEM_BYTES},
    [MM_KERNEL_FORWARD_GROUPED_TRACED] = {"mm_forward_grouped_traced", TRACED_SMEM_BYTES},
    [MM_KERNEL_PLAN_RESUME] = {"mm_plan_resume", 0},
    [MM_KERNEL_BACKWARD] = {"mm_backward", BACKWARD_SMEM_BYTES},
    [MM_KERNEL_BACKWARD_TRACED] = {"mm_backward_traced", TRACED_SMEM_BYTES},
    [MM_KERNEL_BACKWARD_END] = {"mm_backward_end", BACKWARD_END_SHARED_BYTES},
    [MM_KERNEL_BACKWARD_END_TRACED] = {"mm_backward_end_traced", TRACED_SMEM_BYTES},
    [MM_KERNEL_GATE_UP] = {"mm_gate_up", GEMM_SMEM_BYTES},
    [MM_KERNEL_DOWN] = {"mm_down", GEMM_SMEM_BYTES},
    [MM_KERNEL_DGATE_UP] = {"mm_dgate_up", GEMM_SMEM_BYTES},
    [MM_KERNEL_DX] = {"mm_dx", GEMM_SMEM_BYTES},
    [MM_KERNEL_WGRAD_BF16] = {"mm_wgrad_bf16", GEMM_SMEM_BYTES},
    [MM_KERNEL_WGRAD_BF16_TRACED] = {"mm_wgrad_bf16_traced", TRACED_SMEM_BYTES},
    [MM_KERNEL_WGRAD_F32] = {"mm_wgrad_f32", GEMM_SMEM_BYTES},
    [MM_KERNEL_WGRAD_F32_TRACED] = {"mm_wgrad_f32_traced", TRACED_SMEM_BYTES},
    [MM_KERNEL_FILL_NAN] = {"mm_fill_nan", 0},
};

static mmoe_status find_kernels(struct mm_cuda_group *cuda) {
    mmoe_status status = MMOE_OK;
    for (int k = 0; k < MM_KERNELS && status == MMOE_OK; k++) {
        status = mm_kernel_find(&cuda->gpu, kernels[k].name, kernels[k].shared_bytes, &cuda->kernels[k]);
    }
    return status;
}

static mmoe_status make_shared(struct mm_cuda_group *cuda, const struct mmoe_group *group) {
    const int rank = group->rank, world = group->world;
    cuda->layout = mm_cuda_layout(&group->config, world);
    return group->given != NULL ? mm_shared_adopt(&cuda->gpu, &cuda->shared, rank, world, group->given)
                                : mm_shared_make(&cuda->gpu, &cuda->shared, rank, world, cuda->layout.bytes);
}

static mmoe_status make_pinned(struct mm_cuda_group *cuda) {
    static const char doing[] = "making pinned memory for what the host reads";
    const struct mm_driver *driver = &cuda->gpu.driver;
    mmoe_status status = MM_CU(driver, cuMemHostAlloc, doing, (void **)&cuda->summary, sizeof *cuda->summary, 0);
    if (status == MMOE_OK) {
        status = MM_CU(driver, cuMemHostAlloc, doing, (void **)&cuda->told, sizeof *cuda->told, 0);
    }
    return status == MMOE_OK
               ? mm_device_clear(&cuda->gpu, (mm_cu_pointer)(uintptr_t)cuda->told, sizeof *cuda->told, doing)
               : status;
}

static mmoe_status make_events(struct mm_cuda_group *cuda) {
    const struct mm_driver *driver = &cuda->gpu.driver;
    mm_cu_event *plain[] = {&cuda->opened, &cuda->copied, &cuda->planned, &cuda->summed, &cuda->call_ends};
    mm_cu_stream *streams[] = {&cuda->side, &cuda->orders};
    mmoe_status status = MMOE_OK;
    for (size_t i = 0; i < sizeof streams / sizeof streams[0] && status == MMOE_OK; i++) {
        status = MM_CU(driver, cuStreamCreate, "making a stream", streams[i], MM_CU_STREAM_NON_BLOCKING);
    }
    for (size_t i = 0; i < sizeof plain / sizeof plain[0] && status == MMOE_OK; i++) {
        status = MM_CU(driver, cuEventCreate, "making an event", plain[i], MM_CU_EVENT_WITHOUT_TIMING);
    }
    for (int i = 0; i <= MM_CUDA_PHASES && status == MMOE_OK; i++) {
        status = MM_CU(driver, cuEventCreate, "making an event", &cuda->phase_ends[i], MM_CU_EVENT_TIMED);
    }
    return status;
}

/* A current context is the caller's choice, except among threads, which are all opened by one: each has a GPU of its
 * own, by its rank on this host. */
static struct mm_device_wish wish_of(const struct mmoe_group *group) {
    return (struct mm_device_wish){
        .holds = group->given != NULL ? (mm_cu_pointer)(uintptr_t)group->given[group->rank] : 0,
        .current = group->world == 1 || !group->in_threads,
        .number = group->in_threads ? group->rank : mm_group_local_rank(group->rank),
    };
}

static mmoe_status check_spare(const struct mmoe_group *group, const struct mm_gpu *gpu) {
    const int spare = group->config.spare_multiprocessors, all = gpu->device.multiprocessors;
    return spare < all ? MMOE_OK
                       : mm_fail(MMOE_INVALID_ARGUMENT,
                                 "config.spare_multiprocessors is %d, expected 0 .. %d on a GPU of %d multiprocessors",
                                 spare, all - 1, all);
}

mmoe_status mm_cuda_group_open(struct mmoe_group *group) {
    const struct mm_device_wish wish = wish_of(group);
    struct mm_cuda_group *cuda;
    mmoe_status status = mm_alloc_zero((void **)&cuda, sizeof *cuda, "the CUDA backend of a group");
    if (status != MMOE_OK) {
        return status;
    }
    group->backend_state = cuda;
    status = mm_gpu_open(&cuda->gpu, &wish);
    if (status == MMOE_OK) {
        status = check_spare(group, &cuda->gpu);
    }
    if (status == MMOE_OK) {
        status = mm_gpu_enter(&cuda->gpu);
    }
    if (status == MMOE_OK) {
        status = find_kernels(cuda);
        if (status == MMOE_OK) {
            status = make_shared(cuda, group);
        }
        if (status == MMOE_OK) {
            status = mm_cuda_workspace_make(&cuda->gpu, &group->config, group->world, &cuda->workspace);
        }
        if (status == MMOE_OK) {
            status = make_pinned(cuda);
        }
        if (status == MMOE_OK) {
            status = make_events(cuda);
        }
        mm_gpu_leave(&cuda->gpu);
    }
    if (status != MMOE_OK) {
        mm_cuda_group_close(group);
    }
    return status;
}

/* The context is current. Results change nothing: what can't be freed goes with the process. */
static void free_group(struct mm_cuda_group *cuda) {
    const struct mm_gpu *gpu = &cuda->gpu;
    gpu->driver.cuCtxSynchronize();
    mm_cuda_pools_free(cuda);
    mm_shared_free(gpu, &cuda->shared);
    mm_cuda_workspace_free(gpu, &cuda->workspace);
    void *pinned[] = {cuda->summary, cuda->told};
    for (size_t i = 0; i < sizeof pinned / sizeof pinned[0]; i++) {
        if (pinned[i] != NULL) {
            gpu->driver.cuMemFreeHost(pinned[i]);
        }
    }
    for (int i = 0; i <= MM_CUDA_PHASES; i++) {
        if (cuda->phase_ends[i] != NULL) {
            gpu->driver.cuEventDestroy(cuda->phase_ends[i]);
        }
    }
    mm_cu_event plain[] = {cuda->opened, cuda->copied, cuda->planned, cuda->summed, cuda->call_ends};
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) {
        if (plain[i] != NULL) {
            gpu->driver.cuEventDestroy(plain[i]);
        }
    }
    mm_cu_stream streams[] = {cuda->side, cuda->orders};
    for (size_t i = 0; i < sizeof streams / sizeof streams[0]; i++) {
        if (streams[i] != NULL) {
            gpu->driver.cuStreamDestroy(streams[i]);
        }
    }
}

void mm_cuda_group_close(struct mmoe_group *group) {
    struct mm_cuda_group *cuda = group->backend_state;
    if (cuda == NULL) {
        return;
    }
    if (cuda->gpu.context != NULL && mm_gpu_enter(&cuda->gpu) == MMOE_OK) {
        mm_cuda_settle(group);
        free_group(cuda);
        mm_gpu_leave(&cuda->gpu);
    }
    mm_gpu_close(&cuda->gpu);
    mm_free(&group->backend_state);
}

/* ---- The blocks of all ranks ---- */

static mmoe_status offer(struct mmoe_group *group, struct mm_offer *offered) {
    const struct mm_cuda_group *cuda = group->backend_state;
    mmoe_status status = mm_gpu_enter(&cuda->gpu);
    if (status == MMOE_OK) {
        status = mm_shared_offer(&cuda->gpu, &cuda->shared, offered);
        mm_gpu_leave(&cuda->gpu);
    }
    return status;
}

/* A GPU runs the kernels of several processes in turn, so none waits for one that can't run. Those of threads share a
 * context, where a copy or an allocation of one rank may wait for the kernels of all. */
static bool may_share_gpus(const struct mmoe_group *group) {
    const char *wanted = getenv("MEGAMOE_SHARE_GPUS");
    return !group->in_threads && wanted != NULL && strcmp(wanted, "1") == 0;
}

static mmoe_status join(struct mmoe_group *group, const struct mm_offer *offered) {
    struct mm_cuda_group *cuda = group->backend_state;
    mmoe_status status = mm_gpu_enter(&cuda->gpu);
    if (status == MMOE_OK) {
        status = mm_shared_join(&cuda->gpu, &cuda->shared, offered, may_share_gpus(group));
        mm_gpu_leave(&cuda->gpu);
    }
    return status;
}

const struct mm_sharing mm_cuda_sharing = {.offer = offer, .join = join};
