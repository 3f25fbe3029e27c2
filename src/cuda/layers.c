/* What a layer and a saved state have on a device; see setup.h. */
#include "cuda/setup.h"

#include "cuda/calls.h"
#include "cuda/maps.h"
#include "cuda/pools.h"
#include "cuda/routing.h"
#include "kernels/tile_shape.h"

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
        status = mm_cuda_follow_calls(cuda, cuda->side);
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
        mm_cuda_follow_calls(cuda, cuda->side);
        mm_device_free_in(gpu, cuda->side, &kept->x);
        mm_device_free_in(gpu, cuda->side, &kept->gate_up);
        mm_cuda_plan_free(gpu, cuda->side, &kept->plan);
        mm_gpu_leave(gpu);
    }
    mm_free(&saved->backend_state);
}
