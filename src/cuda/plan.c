/* Plans in device memory; see plan.h. */
#include "cuda/plan.h"

/* Takes pieces of a block one after another. With a block at 0 it only adds up. */
struct carver {
    uintptr_t begin, next;
};

static void *take(struct carver *carver, int64_t count, size_t element) {
    uintptr_t piece = carver->next;
    carver->next += mm_align((size_t)count * element);
    return (void *)piece;
}

static size_t carve(uintptr_t block, const struct mm_plan_shape *shape, int64_t tokens, int64_t row_room,
                    struct mm_plan_arrays *arrays) {
    const int64_t slots = tokens * shape->top_k, local = shape->experts / shape->world;
    const int64_t blocks = row_room / MMOE_ROW_BLOCK;
    struct carver carver = {block, block};
    arrays->tables = (struct plan_tables){
        .tokens = take(&carver, shape->world, sizeof(int32_t)),
        .counts = take(&carver, (int64_t)shape->world * shape->experts, sizeof(int32_t)),
        .demand = take(&carver, shape->world, sizeof(int64_t)),
        .dropped = take(&carver, shape->world, sizeof(int64_t)),
        .expert_rows = take(&carver, local, sizeof(int32_t)),
        .expert_offset = take(&carver, local + 1, sizeof(int32_t)),
        .slots_on = take(&carver, shape->world, sizeof(uint32_t)),
        .all = take(&carver, 1, sizeof(struct plan_summary)),
    };
    arrays->rows = (struct plan_rows){
        .source = take(&carver, row_room, sizeof(int32_t)),
        .token = take(&carver, row_room, sizeof(int32_t)),
        .slot = take(&carver, row_room, sizeof(int32_t)),
        .primary = take(&carver, row_room, sizeof(int32_t)),
        .weight = take(&carver, row_room, sizeof(float)),
        .block_expert = take(&carver, blocks, sizeof(int32_t)),
        .block_rows = take(&carver, blocks, sizeof(int32_t)),
    };
    arrays->slots = (struct plan_slots){
        .row = take(&carver, slots, sizeof(int32_t)),
        .expert = take(&carver, slots, sizeof(int32_t)),
    };
    arrays->token_rows = take(&carver, shape->world * slots, sizeof(int32_t));
    return carver.next - carver.begin;
}

size_t mm_cuda_plan_bytes(const struct mm_plan_shape *shape, int64_t tokens, int64_t row_room) {
    struct mm_plan_arrays arrays;
    return carve(0, shape, tokens, row_room, &arrays);
}

mmoe_status mm_cuda_plan_reserve(const struct mm_gpu *gpu, mm_cu_stream stream, struct mm_cuda_plan *plan,
                                 const struct mm_plan_shape *shape, int64_t tokens, int64_t row_room) {
    plan->copied = false;
    plan->summary_known = false;
    const size_t bytes = mm_cuda_plan_bytes(shape, tokens, row_room);
    mmoe_status status = mm_device_reserve_in(gpu, stream, &plan->memory, bytes, "a routing plan");
    if (status != MMOE_OK) {
        return status;
    }
    plan->shape = *shape;
    plan->tokens = tokens;
    plan->row_room = row_room;
    carve((uintptr_t)plan->memory.address, shape, tokens, row_room, &plan->arrays);
    return MMOE_OK;
}

void mm_cuda_plan_free(const struct mm_gpu *gpu, mm_cu_stream stream, struct mm_cuda_plan *plan) {
    mm_device_free_in(gpu, stream, &plan->memory);
    mm_buffer_free(&plan->copy);
    *plan = (struct mm_cuda_plan){0};
}

static mmoe_plan view_of(const struct mm_cuda_plan *plan, const struct mm_plan_arrays *host) {
    return (mmoe_plan){
        .rank = plan->shape.rank,
        .world = plan->shape.world,
        .experts = plan->shape.experts,
        .local_experts = plan->shape.experts / plan->shape.world,
        .top_k = plan->shape.top_k,
        .tokens = host->tables.tokens,
        .counts = host->tables.counts,
        .demand = host->tables.demand,
        .dropped = host->tables.dropped,
        .expert_rows = host->tables.expert_rows,
        .expert_offset = host->tables.expert_offset,
        .rows = plan->summary.rows,
        .padded_rows = plan->summary.padded_rows,
        .row_source = host->rows.source,
        .row_token = host->rows.token,
        .row_slot = host->rows.slot,
        .row_primary = host->rows.primary,
        .row_weight = host->rows.weight,
        .slot_row = host->slots.row,
        .slots = plan->summary.slots,
        .slots_dropped = plan->summary.slots_dropped,
    };
}

/* The last array is of no use to the host. */
static mmoe_status copy(const struct mm_gpu *gpu, struct mm_cuda_plan *plan) {
    const size_t bytes = (uintptr_t)plan->arrays.token_rows - (uintptr_t)plan->memory.address;
    mmoe_status status = mm_buffer_reserve(&plan->copy, bytes, "the copy of a routing plan");
    if (status == MMOE_OK) {
        status = mm_copy_to_host(gpu, plan->copy.data, plan->memory.address, bytes, NULL, "reading a routing plan");
    }
    if (status != MMOE_OK) {
        return status;
    }
    struct mm_plan_arrays host;
    carve((uintptr_t)plan->copy.data, &plan->shape, plan->tokens, plan->row_room, &host);
    plan->summary = *host.tables.all;
    plan->summary_known = true;
    plan->view = view_of(plan, &host);
    plan->copied = true;
    return MMOE_OK;
}

mmoe_status mm_cuda_plan_view(const struct mm_gpu *gpu, struct mm_cuda_plan *plan, const mmoe_plan **view) {
    mmoe_status status = plan->copied && !plan->replayed ? MMOE_OK : copy(gpu, plan);
    *view = status == MMOE_OK ? &plan->view : NULL;
    return status;
}
