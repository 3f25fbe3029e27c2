/* Routing on the device; see routing.h. */
#include "cuda/routing.h"

#include "cuda/listen.h"
#include "cuda/pools.h"
#include "kernels/tile_shape.h"

static uint32_t chunks_of(const struct mm_cuda_call *call) {
    const uint32_t multiprocessors = (uint32_t)call->gpu->device.multiprocessors;
    const uint32_t ctas = multiprocessors < MM_CUDA_PLAN_CTAS ? multiprocessors : MM_CUDA_PLAN_CTAS;
    return plan_chunks(ctas, (uint32_t)call->group->world);
}

static struct plan_params plan_params_of(const struct mm_cuda_call *call) {
    const struct mm_plan_shape *shape = &call->plan->shape;
    const struct mm_cuda_workspace *workspace = &call->cuda->workspace;
    const struct mm_layout *layout = &call->cuda->layout;
    const mm_cu_pointer own = call->cuda->shared.base[shape->rank];
    return (struct plan_params){
        .world = (uint32_t)shape->world,
        .rank = (uint32_t)shape->rank,
        .experts = (uint32_t)shape->experts,
        .top_k = (uint32_t)shape->top_k,
        .chunks = chunks_of(call),
        .warps = plan_warps((uint32_t)shape->experts),
        .capacity = shape->capacity < PLAN_NO_CAPACITY ? (uint32_t)shape->capacity : PLAN_NO_CAPACITY,
        .drop = (uint32_t)shape->drop,
        .row_room = (uint32_t)call->plan->row_room,
        .tokens = workspace->state->tokens,
        .ids = mm_at(own + layout->ids),
        .weights = mm_at(own + layout->weights),
        .rank_stride = layout->ids_stride / sizeof(int32_t),
        .chunk_counts = workspace->chunk_counts,
        .tables = call->plan->arrays.tables,
        .rows = call->plan->arrays.rows,
        .slots = call->plan->arrays.slots,
        .token_rows = call->plan->arrays.token_rows,
        .token_stride = (uint64_t)call->group->config.max_tokens,
        .state = workspace->state,
        .work = workspace->work,
        .h_tiles = TILES_OF(2 * call->intermediate),
        .result_tiles = TILES_OF(call->hidden),
    };
}

/* Counting starts early on one rank alone: otherwise it would hold the multiprocessors while a peer is late. */
static mmoe_status launch(const struct mm_cuda_call *call, enum mm_cuda_kernel which, const struct plan_params *params,
                          unsigned shared_bytes) {
    const struct mm_cuda_grid grid = {.ctas = params->world * params->chunks,
                                      .threads = 32 * params->warps,
                                      .shared_bytes = shared_bytes,
                                      .overlapping = which == MM_KERNEL_PLACE_SLOTS || params->world == 1};
    return mm_cuda_launch(call, which, grid, params);
}

static mmoe_status note_plan(const struct mm_cuda_call *call) {
    return MM_CU(&call->gpu->driver, cuEventRecord, "noting the plan", call->cuda->planned, call->stream);
}

/* With a fixed capacity nobody waits for the plan, and the next kernel may begin early. */
static mmoe_status place(const struct mm_cuda_call *call, const struct plan_params *params) {
    mmoe_status status =
        launch(call, MM_KERNEL_PLACE_SLOTS, params, plan_place_shared_bytes(params->experts, params->warps));
    const bool awaited = call->layer->config.capacity_policy != MMOE_CAPACITY_FIXED;
    return status == MMOE_OK && awaited ? note_plan(call) : status;
}

mmoe_status mm_cuda_make_plan(const struct mm_cuda_call *call) {
    const struct plan_params params = plan_params_of(call);
    mmoe_status status = launch(call, MM_KERNEL_COUNT_SLOTS, &params, plan_count_shared_bytes(params.experts));
    return status == MMOE_OK ? place(call, &params) : status;
}

/* ---- Room ---- */

/* The group's own plan is made anew by each call; a graph keeps the memory that it knows. */
static mmoe_status reserve(const struct mm_cuda_call *call, int64_t row_room) {
    const struct mmoe_group *group = call->group;
    const mmoe_layer_config *config = &call->layer->config;
    const struct mm_plan_shape shape = mm_plan_shape_of(config, group->rank, group->world);
    const int64_t tokens = group->config.max_tokens;
    mmoe_status status = MMOE_OK;
    if (call->plan == &call->cuda->plan) {
        const size_t bytes = mm_cuda_plan_bytes(&shape, tokens, row_room);
        status = mm_cuda_reserve(call->cuda, call->stream, &call->plan->memory, bytes, "a routing plan");
    }
    if (status == MMOE_OK) {
        status = mm_cuda_plan_reserve(call->gpu, call->stream, call->plan, &shape, tokens, row_room);
    }
    call->plan->replayed |= call->captured;
    return status;
}

static int64_t most_rows(const struct mmoe_layer *layer) {
    const struct mmoe_group *group = layer->group;
    return mm_padded_rows_bound(mm_most_rows(&layer->config, group->world, group->config.max_tokens),
                                layer->local_experts);
}

size_t mm_cuda_most_plan_bytes(const struct mmoe_layer *layer) {
    const struct mmoe_group *group = layer->group;
    const struct mm_plan_shape shape = mm_plan_shape_of(&layer->config, group->rank, group->world);
    return mm_cuda_plan_bytes(&shape, group->config.max_tokens, most_rows(layer));
}

/* On one rank, and with a fixed capacity, for every row that there can be. Otherwise for a rank's even share and a
 * quarter more, or for what there was room for before: other ranks' tokens are not known yet. */
static int64_t room_wanted(const struct mm_cuda_call *call) {
    const mmoe_layer_config *config = &call->layer->config;
    const int world = call->group->world, local_experts = call->layer->local_experts;
    const int64_t max_tokens = call->group->config.max_tokens;
    if (config->capacity_policy == MMOE_CAPACITY_FIXED) {
        return most_rows(call->layer);
    }
    if (world == 1) {
        return mm_padded_rows_bound(mm_most_rows(config, 1, call->tokens), local_experts);
    }
    const int64_t share = mm_padded_rows_bound(config->top_k * max_tokens * 5 / 4, local_experts);
    return share > call->plan->row_room ? share : call->plan->row_room;
}

mmoe_status mm_cuda_reserve_plan(const struct mm_cuda_call *call) {
    return reserve(call, room_wanted(call));
}

static mmoe_status read_summary(const struct mm_cuda_call *call) {
    static const char doing[] = "awaiting the plan";
    const struct mm_driver *driver = &call->gpu->driver;
    const struct mm_cuda_group *cuda = call->cuda;
    struct plan_summary *read = cuda->summary;
    mmoe_status status = MM_CU(driver, cuStreamWaitEvent, doing, cuda->side, cuda->planned, 0);
    if (status == MMOE_OK) {
        status = mm_copy_to_host(call->gpu, read, (mm_cu_pointer)(uintptr_t)call->plan->arrays.tables.all, sizeof *read,
                                 cuda->side, "reading the sums of the plan");
    }
    if (status == MMOE_OK) {
        status = MM_CU(driver, cuEventRecord, doing, cuda->summed, cuda->side);
    }
    if (status == MMOE_OK) {
        status = mm_cuda_await(call->group, cuda->summed, MM_STEP_MEET, true);
    }
    if (status == MMOE_OK) {
        call->plan->summary = *read;
        call->plan->summary_known = true;
    }
    return status;
}

mmoe_status mm_cuda_look_at_plan(const struct mm_cuda_call *call) {
    const bool known = call->plan->summary_known && !call->plan->replayed;
    mmoe_status status = known ? MMOE_OK : note_plan(call);
    return status == MMOE_OK && !known ? read_summary(call) : status;
}

/* Rows that are placed anew are as many as before. */
mmoe_status mm_cuda_await_plan(const struct mm_cuda_call *call) {
    mmoe_status status = read_summary(call);
    if (status != MMOE_OK || call->plan->summary.padded_rows <= call->plan->row_room) {
        return status;
    }
    status = reserve(call, call->plan->summary.padded_rows);
    if (status == MMOE_OK) {
        const struct plan_params params = plan_params_of(call);
        status = place(call, &params);
    }
    call->plan->summary_known = status == MMOE_OK;
    return status;
}
