/* Routing on the device; see routing.h. */
#include "cuda/routing.h"

#include <string.h>

#include "cuda/inputs.h"
#include "plan/ids.h"

/* CTAs that count, at most, and that read ids. */
enum { MOST_CHUNKS = 132, IDS_IN_CTAS = 64 };

/* The pieces of the group's block for this. */
struct workspace {
    int32_t *ids;   /* [Tmax, K] */
    float *weights; /* likewise */
    int32_t *tokens;
    uint32_t *chunk_counts; /* [chunks, E] */
    uint32_t *first_faults; /* [CTAs] */
    uint32_t *ctas_done;    /* zero between launches */
    struct ids_fault *fault;
};

static size_t carve(uintptr_t block, const mmoe_group_config *config, int world, struct workspace *workspace) {
    const size_t slots = (size_t)(config->max_tokens * config->max_top_k), ranks = (size_t)world;
    uintptr_t next = block;
    const struct {
        void *member;
        size_t bytes;
    } pieces[] = {
        {&workspace->ids, ranks * slots * sizeof *workspace->ids},
        {&workspace->weights, ranks * slots * sizeof *workspace->weights},
        {&workspace->tokens, ranks * sizeof *workspace->tokens},
        {&workspace->chunk_counts, MOST_CHUNKS * (size_t)config->max_experts * sizeof *workspace->chunk_counts},
        {&workspace->first_faults, IDS_IN_CTAS * sizeof *workspace->first_faults},
        {&workspace->ctas_done, sizeof *workspace->ctas_done},
        {&workspace->fault, sizeof *workspace->fault},
    };
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        memcpy(pieces[i].member, &next, sizeof next);
        next += mm_align(pieces[i].bytes);
    }
    return next - block;
}

size_t mm_cuda_routing_bytes(const mmoe_group_config *config, int world) {
    struct workspace workspace;
    return carve(0, config, world, &workspace);
}

static mmoe_status read_ids(const struct mm_cuda_call *call, const struct workspace *workspace, const mmoe_tensor *ids,
                            const mmoe_tensor *weights) {
    const struct ids_in_params params = {
        .ids = mm_strided(ids),
        .weights = mm_strided(weights),
        .wide = ids->dtype == MMOE_I64,
        .tokens = call->tokens,
        .top_k = call->top_k,
        .experts = (uint32_t)call->layer->config.experts,
        .check_weights = (uint32_t)call->layer->config.check_weights,
        .world = 1,
        .ids_out = {workspace->ids},
        .weights_out = {workspace->weights},
        .first_faults = workspace->first_faults,
        .ctas_done = workspace->ctas_done,
        .fault = workspace->fault,
    };
    const struct mm_cuda_grid grid = {
        .ctas = IDS_IN_CTAS, .threads = IDS_IN_THREADS, .shared_bytes = IDS_IN_SHARED_BYTES};
    return mm_cuda_launch(call, MM_KERNEL_IDS_IN, grid, &params);
}

static struct plan_params plan_params_of(const struct mm_cuda_call *call, const struct workspace *workspace) {
    const struct mm_plan_shape *shape = &call->plan->shape;
    uint32_t chunks = plan_chunks((uint32_t)call->gpu->device.multiprocessors, (uint32_t)shape->world);
    return (struct plan_params){
        .world = (uint32_t)shape->world,
        .rank = (uint32_t)shape->rank,
        .experts = (uint32_t)shape->experts,
        .top_k = (uint32_t)shape->top_k,
        .chunks = chunks < MOST_CHUNKS ? chunks : MOST_CHUNKS,
        .warps = plan_warps((uint32_t)shape->experts),
        .capacity = shape->capacity < PLAN_NO_CAPACITY ? (uint32_t)shape->capacity : PLAN_NO_CAPACITY,
        .drop = (uint32_t)shape->drop,
        .row_room = (uint32_t)call->plan->row_room,
        .tokens = workspace->tokens,
        .ids = workspace->ids,
        .weights = workspace->weights,
        .rank_stride = 0,
        .chunk_counts = workspace->chunk_counts,
        .tables = call->plan->arrays.tables,
        .rows = call->plan->arrays.rows,
        .slots = call->plan->arrays.slots,
    };
}

static mmoe_status make_plan(const struct mm_cuda_call *call, const struct workspace *workspace) {
    const struct plan_params params = plan_params_of(call, workspace);
    const int32_t tokens = (int32_t)call->tokens;
    struct mm_cuda_grid grid = {.ctas = params.world * params.chunks, .threads = 32 * params.warps};
    mmoe_status status = mm_copy_to_device(call->gpu, (mm_cu_pointer)(uintptr_t)workspace->tokens, &tokens,
                                           sizeof tokens, call->stream, "writing the number of tokens");
    if (status == MMOE_OK) {
        grid.shared_bytes = plan_count_shared_bytes(params.experts);
        status = mm_cuda_launch(call, MM_KERNEL_COUNT_SLOTS, grid, &params);
    }
    if (status == MMOE_OK) {
        grid.shared_bytes = plan_place_shared_bytes(params.experts, params.warps);
        status = mm_cuda_launch(call, MM_KERNEL_PLACE_SLOTS, grid, &params);
    }
    return status;
}

static mmoe_status read_verdict(const struct mm_cuda_call *call, const struct workspace *workspace) {
    struct mm_cuda_verdict *verdict = call->cuda->verdict;
    mmoe_status status =
        mm_copy_to_host(call->gpu, &verdict->summary, (mm_cu_pointer)(uintptr_t)call->plan->arrays.tables.all,
                        sizeof verdict->summary, call->stream, "reading the sums of the plan");
    if (status == MMOE_OK) {
        status = mm_copy_to_host(call->gpu, &verdict->fault, (mm_cu_pointer)(uintptr_t)workspace->fault,
                                 sizeof verdict->fault, call->stream, "reading whether all ids are good");
    }
    return status == MMOE_OK ? MM_CU(&call->gpu->driver, cuStreamSynchronize, "awaiting the plan", call->stream)
                             : status;
}

static mmoe_status check_fault(const struct mm_cuda_call *call) {
    const struct ids_fault *fault = &call->cuda->verdict->fault;
    float weight;
    switch (fault->kind) {
    case IDS_BAD_ID:
        return mm_id_check(fault->id, call->layer->config.experts, "ids", fault->token, fault->slot);
    case IDS_BAD_WEIGHT:
        memcpy(&weight, &fault->weight, sizeof weight);
        return mm_fail(MMOE_INVALID_ARGUMENT, "weights has %g at token %u, slot %u, expected a finite number",
                       (double)weight, fault->token, fault->slot);
    default:
        return MMOE_OK;
    }
}

static mmoe_status check_capacity(const struct mm_cuda_call *call) {
    const struct plan_summary *summary = &call->cuda->verdict->summary;
    if (summary->over_rank < 0) {
        return MMOE_OK;
    }
    return mm_fail(MMOE_CAPACITY, "rank %d was routed %u rows, expected at most its capacity of %lld",
                   summary->over_rank, summary->over_demand, (long long)call->plan->shape.capacity);
}

/* The plan has room for every row that the slots can need, so that the host needn't look before the rows are placed. */
static mmoe_status reserve_plan(const struct mm_cuda_call *call) {
    const struct mmoe_group *group = call->group;
    const mmoe_layer_config *config = &call->layer->config;
    const struct mm_plan_shape shape = mm_plan_shape_of(config, group->rank, group->world);
    const int64_t tokens =
        config->capacity_policy == MMOE_CAPACITY_FIXED ? group->config.max_tokens : (int64_t)call->tokens;
    const int64_t rows = mm_most_rows(config, group->world, tokens);
    return mm_cuda_plan_reserve(call->gpu, call->plan, &shape, tokens,
                                mm_padded_rows_bound(rows, call->layer->local_experts));
}

mmoe_status mm_cuda_route(struct mm_cuda_call *call, const mmoe_tensor *ids, const mmoe_tensor *weights) {
    struct workspace workspace;
    carve((uintptr_t)call->cuda->routing.address, &call->group->config, call->group->world, &workspace);
    mmoe_status status = reserve_plan(call);
    if (status == MMOE_OK) {
        status = read_ids(call, &workspace, ids, weights);
    }
    if (status == MMOE_OK) {
        status = make_plan(call, &workspace);
    }
    if (status == MMOE_OK) {
        status = read_verdict(call, &workspace);
    }
    if (status == MMOE_OK) {
        status = check_fault(call);
    }
    if (status == MMOE_OK) {
        status = check_capacity(call);
    }
    call->plan->summary = call->cuda->verdict->summary;
    return status;
}
