/* Rows in and out; see rows.h. */
#include "cuda/rows.h"

#include "cuda/inputs.h"

/* Enough warps on each multiprocessor to keep the memory busy. */
static struct mm_cuda_grid grid_of(const struct mm_cuda_call *call) {
    return (struct mm_cuda_grid){.ctas = 2 * (unsigned)call->gpu->device.multiprocessors, .threads = ROW_THREADS};
}

mmoe_status mm_cuda_gather(const struct mm_cuda_call *call, const mmoe_tensor *from, mm_cu_pointer rows) {
    const struct gather_params params = {
        .from = mm_strided(from),
        .rows = mm_at(rows),
        .slot_row = call->plan->arrays.slots.row,
        .row_token = call->plan->arrays.rows.token,
        .tokens = call->tokens,
        .top_k = call->top_k,
        .hidden = call->hidden,
        .padded_rows = call->plan->summary.padded_rows,
    };
    return mm_cuda_launch(call, MM_KERNEL_GATHER, grid_of(call), &params);
}

mmoe_status mm_cuda_combine(const struct mm_cuda_call *call, const mmoe_tensor *to) {
    const struct combine_params params = {
        .rows = mm_at(call->out),
        .to = mm_strided(to),
        .slot_row = call->plan->arrays.slots.row,
        .tokens = call->tokens,
        .top_k = call->top_k,
        .hidden = call->hidden,
    };
    return mm_cuda_launch(call, MM_KERNEL_COMBINE, grid_of(call), &params);
}

mmoe_status mm_cuda_combine_dw(const struct mm_cuda_call *call, const mmoe_tensor *to) {
    const struct combine_dw_params params = {
        .parts = mm_at(call->dw_parts),
        .to = mm_strided(to),
        .slot_row = call->plan->arrays.slots.row,
        .tokens = call->tokens,
        .top_k = call->top_k,
        .part_count = (uint32_t)mm_cuda_dw_parts(&call->layer->config),
        .padded_rows = call->pool_rows,
    };
    return mm_cuda_launch(call, MM_KERNEL_COMBINE_DW, grid_of(call), &params);
}

static mmoe_status fill_matrix(const struct mm_cuda_call *call, const mmoe_tensor *to, void *data) {
    const int first = to->dims - 2;
    const struct fill_nan_params params = {
        .to = {data, {to->stride[first], to->stride[first + 1]}},
        .rows = (uint32_t)to->shape[first],
        .cols = (uint32_t)to->shape[first + 1],
        .wide = to->dtype == MMOE_F32,
    };
    return mm_cuda_launch(call, MM_KERNEL_FILL_NAN, grid_of(call), &params);
}

mmoe_status mm_cuda_fill_nan(const struct mm_cuda_call *call, const mmoe_tensor *to) {
    if (!mm_wanted(to)) {
        return MMOE_OK;
    }
    if (to->dims == 2) {
        return fill_matrix(call, to, to->data);
    }
    mmoe_status status = MMOE_OK;
    for (int64_t e = 0; e < to->shape[0] && status == MMOE_OK; e++) {
        status = fill_matrix(call, to, mm_expert_data(to, e));
    }
    return status;
}
