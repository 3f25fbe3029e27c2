/* Set-up and tear-down; see setup.h. */
#include "cuda/setup.h"

#include <string.h>

#include "cuda/listen.h"
#include "cuda/maps.h"
#include "cuda/routing.h"
#include "kernels/backward_params.h"
#include "kernels/trace_params.h"

/* ---- Group ---- */

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
    [MM_KERNEL_FORWARD] = {"mm_forward", FUSED_SMEM_BYTES},
    [MM_KERNEL_FORWARD_TRACED] = {"mm_forward_traced", TRACED_SMEM_BYTES},
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
    if (status == MMOE_OK) {
        memset(cuda->told, 0, sizeof *cuda->told);
    }
    return status;
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

static void free_pools(struct mm_cuda_group *cuda) {
    struct mm_cuda_pools *pools = &cuda->pools;
    struct mm_device_buffer *all[] = {&pools->x,     &pools->dy,       &pools->gate_up,   &pools->h,
                                      &pools->dgrad, &pools->dw_parts, &cuda->weight_maps};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        mm_device_free_in(&cuda->gpu, cuda->side, all[i]);
    }
    mm_cuda_plan_free(&cuda->gpu, cuda->side, &cuda->plan);
}

static void free_outgrown(struct mm_cuda_group *cuda) {
    while (cuda->outgrown != NULL) {
        struct mm_cuda_outgrown *first = cuda->outgrown;
        cuda->outgrown = first->next;
        mm_device_free_in(&cuda->gpu, cuda->side, &first->buffer);
        mm_free(&first);
    }
}

/* The context is current. Results change nothing: what can't be freed goes with the process. */
static void free_group(struct mm_cuda_group *cuda) {
    const struct mm_gpu *gpu = &cuda->gpu;
    gpu->driver.cuCtxSynchronize();
    free_pools(cuda);
    free_outgrown(cuda);
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

static mmoe_status join(struct mmoe_group *group, const struct mm_offer *offered) {
    struct mm_cuda_group *cuda = group->backend_state;
    mmoe_status status = mm_gpu_enter(&cuda->gpu);
    if (status == MMOE_OK) {
        status = mm_shared_join(&cuda->gpu, &cuda->shared, offered);
        mm_gpu_leave(&cuda->gpu);
    }
    return status;
}

const struct mm_sharing mm_cuda_sharing = {.offer = offer, .join = join};

/* ---- Pools ---- */

static mmoe_status put_aside(struct mm_cuda_group *cuda, struct mm_device_buffer *buffer) {
    struct mm_cuda_outgrown *outgrown;
    mmoe_status status = mm_alloc((void **)&outgrown, sizeof *outgrown, "the note of a buffer that graphs use");
    if (status == MMOE_OK) {
        *outgrown = (struct mm_cuda_outgrown){*buffer, cuda->outgrown};
        cuda->outgrown = outgrown;
        *buffer = (struct mm_device_buffer){0};
    }
    return status;
}

mmoe_status mm_cuda_reserve(struct mm_cuda_group *cuda, mm_cu_stream stream, struct mm_device_buffer *buffer,
                            size_t bytes, const char *what) {
    const bool in_use = cuda->graphs && buffer->address != 0 && buffer->bytes < bytes;
    mmoe_status status = in_use ? put_aside(cuda, buffer) : MMOE_OK;
    return status == MMOE_OK ? mm_device_reserve_in(&cuda->gpu, stream, buffer, bytes, what) : status;
}

mmoe_status mm_cuda_pools_reserve(struct mm_cuda_group *cuda, mm_cu_stream stream,
                                  const struct mm_cuda_pool_bytes *bytes) {
    struct mm_cuda_pools *pools = &cuda->pools;
    const struct {
        struct mm_device_buffer *buffer;
        size_t bytes;
        const char *what;
    } all[] = {
        {&pools->x, bytes->x, "the token rows"},
        {&pools->dy, bytes->dy, "the gradient rows"},
        {&pools->gate_up, bytes->gate_up, "the gate and up rows"},
        {&pools->h, bytes->h, "the activation rows"},
        {&pools->dgrad, bytes->dgrad, "the gate and up gradient rows"},
        {&pools->dw_parts, bytes->dw_parts, "the parts of the router weights' gradients"},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        mmoe_status status = mm_cuda_reserve(cuda, stream, all[i].buffer, all[i].bytes, all[i].what);
        if (status != MMOE_OK) {
            return status;
        }
    }
    return MMOE_OK;
}

static struct mm_cuda_pool_bytes most_bytes(const struct mmoe_layer *layer) {
    const int64_t rows = mm_most_rows(&layer->config, layer->group->world, layer->group->config.max_tokens);
    return mm_cuda_pool_bytes_of(&layer->config, mm_cuda_pool_rows(mm_padded_rows_bound(rows, layer->local_experts)));
}

/* ---- Layer ---- */

/* Results are counted a row and column tile at a time, and their counters compared through the sign of a difference. */
static mmoe_status check_counters(const struct mmoe_layer *layer) {
    const int64_t tiles = TILES_OF(layer->config.hidden);
    const int64_t results = layer->group->config.max_tokens * layer->config.top_k * tiles;
    if (results <= INT32_MAX) {
        return MMOE_OK;
    }
    return mm_fail(MMOE_UNSUPPORTED,
                   "max_tokens * top_k * ceil(hidden / %d) is %lld, expected at most %d for backend \"cuda\"",
                   TILE_COLUMNS, (long long)results, INT32_MAX);
}

/* Between calls memory is made in the side stream, behind all calls; calls in any stream may use it when that has been
 * awaited. */
static mmoe_status follow_calls(const struct mm_cuda_group *cuda) {
    return cuda->any_call ? MM_CU(&cuda->gpu.driver, cuStreamWaitEvent, "waiting for the calls before", cuda->side,
                                  cuda->call_ends, 0)
                          : MMOE_OK;
}

static mmoe_status await_memory(const struct mm_cuda_group *cuda) {
    return MM_CU(&cuda->gpu.driver, cuStreamSynchronize, "waiting for memory", cuda->side);
}

/* With a fixed capacity calls allocate nothing. */
static mmoe_status reserve_layer(struct mm_cuda_group *cuda, const struct mmoe_layer *layer) {
    mmoe_status status = mm_cuda_reserve(cuda, cuda->side, &cuda->weight_maps,
                                         mm_weight_maps_bytes(layer->local_experts), "the tensor maps of weights");
    if (status != MMOE_OK || layer->config.capacity_policy != MMOE_CAPACITY_FIXED) {
        return status;
    }
    const struct mm_cuda_pool_bytes bytes = most_bytes(layer);
    status = mm_cuda_reserve(cuda, cuda->side, &cuda->plan.memory, mm_cuda_most_plan_bytes(layer), "a routing plan");
    return status == MMOE_OK ? mm_cuda_pools_reserve(cuda, cuda->side, &bytes) : status;
}

mmoe_status mm_cuda_layer_open(struct mmoe_layer *layer) {
    struct mm_cuda_group *cuda = layer->group->backend_state;
    mmoe_status status = check_counters(layer);
    if (status == MMOE_OK) {
        status = mm_gpu_enter(&cuda->gpu);
    }
    if (status == MMOE_OK) {
        status = follow_calls(cuda);
        if (status == MMOE_OK) {
            status = reserve_layer(cuda, layer);
        }
        if (status == MMOE_OK) {
            status = await_memory(cuda);
        }
        mm_gpu_leave(&cuda->gpu);
    }
    return status;
}

/* A layer has nothing of its own. */
void mm_cuda_layer_close(struct mmoe_layer *layer) {
    (void)layer;
}

/* ---- Saved state ---- */

mmoe_status mm_cuda_kept_reserve(const struct mm_gpu *gpu, mm_cu_stream stream, struct mm_cuda_saved *kept,
                                 const struct mm_cuda_pool_bytes *bytes) {
    mmoe_status status = mm_device_reserve_in(gpu, stream, &kept->x, bytes->x, "the kept token rows");
    return status == MMOE_OK
               ? mm_device_reserve_in(gpu, stream, &kept->gate_up, bytes->gate_up, "the kept gate and up rows")
               : status;
}

/* With a fixed capacity. The plan is one of nothing until a call, which may be replayed only later, has made it. */
static mmoe_status reserve_saved(const struct mm_cuda_group *cuda, const struct mmoe_saved *saved,
                                 struct mm_cuda_saved *kept) {
    const struct mm_gpu *gpu = &cuda->gpu;
    const struct mm_cuda_pool_bytes bytes = most_bytes(saved->layer);
    struct mm_device_buffer *plan = &kept->plan.memory;
    mmoe_status status =
        mm_device_reserve_in(gpu, cuda->side, plan, mm_cuda_most_plan_bytes(saved->layer), "a routing plan");
    if (status == MMOE_OK) {
        status =
            MM_CU(&gpu->driver, cuMemsetD8Async, "clearing a routing plan", plan->address, 0, plan->bytes, cuda->side);
    }
    if (status == MMOE_OK && saved->keep == MMOE_KEEP_ROWS) {
        status = mm_cuda_kept_reserve(gpu, cuda->side, kept, &bytes);
    }
    return status == MMOE_OK ? await_memory(cuda) : status;
}

mmoe_status mm_cuda_saved_open(struct mmoe_saved *saved) {
    const struct mmoe_layer *layer = saved->layer;
    struct mm_cuda_group *cuda = layer->group->backend_state;
    struct mm_cuda_saved *kept;
    mmoe_status status = mm_alloc_zero((void **)&kept, sizeof *kept, "the kept rows of a saved state");
    if (status != MMOE_OK) {
        return status;
    }
    saved->backend_state = kept;
    if (layer->config.capacity_policy == MMOE_CAPACITY_FIXED) {
        status = mm_gpu_enter(&cuda->gpu);
        if (status == MMOE_OK) {
            status = reserve_saved(cuda, saved, kept);
            mm_gpu_leave(&cuda->gpu);
        }
    }
    if (status != MMOE_OK) {
        mm_cuda_saved_close(saved);
    }
    return status;
}

/* Calls may still use it, and graphs in streams that nobody here knows. */
void mm_cuda_saved_close(struct mmoe_saved *saved) {
    struct mm_cuda_saved *kept = saved->backend_state;
    if (kept == NULL) {
        return;
    }
    const struct mm_cuda_group *cuda = saved->layer->group->backend_state;
    const struct mm_gpu *gpu = &cuda->gpu;
    if (mm_gpu_enter(gpu) == MMOE_OK) {
        if (cuda->graphs) {
            gpu->driver.cuCtxSynchronize();
        }
        if (cuda->any_call) {
            gpu->driver.cuStreamWaitEvent(cuda->side, cuda->call_ends, 0);
        }
        mm_device_free_in(gpu, cuda->side, &kept->x);
        mm_device_free_in(gpu, cuda->side, &kept->gate_up);
        mm_cuda_plan_free(gpu, cuda->side, &kept->plan);
        mm_gpu_leave(gpu);
    }
    mm_free(&saved->backend_state);
}
