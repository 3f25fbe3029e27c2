/* What the fused kernels are told alike; see fused.h. */
#include "cuda/fused.h"

#include "cuda/exchange.h"

struct fused_call mm_cuda_fused_call(const struct mm_cuda_call *call, const mm_cu_pointer *rows) {
    const struct mm_plan_arrays *plan = &call->plan->arrays;
    struct fused_call fused = {
        .group = mm_cuda_call_group(call),
        .work = call->cuda->workspace.work,
        .rows = plan->rows,
        .tables = plan->tables,
        .slots = plan->slots,
        .token_rows = plan->token_rows,
        .token_stride = (uint64_t)call->group->config.max_tokens,
        .fetched_count = rows != NULL ? call->slot_count : 0,
        .combine = call->cuda->layout.combine,
        .hidden = call->hidden,
        .intermediate = call->intermediate,
        .top_k = call->top_k,
        .tokens = call->tokens,
        .clamp = call->layer->config.limit > 0,
        .limit = call->layer->config.limit,
    };
    for (uint32_t i = 0; i < fused.fetched_count; i++) {
        const struct mm_cuda_slot *slot = &call->slots[i];
        fused.fetched[i] = (struct fetched_rows){slot->offset, mm_at(slot->own), mm_at(rows[i])};
    }
    return fused;
}
