/* Launches of a backward's kernels over rows; see fused.h. */
#include "cuda/exchange.h"
#include "cuda/fused.h"
#include "cuda/inputs.h"
#include "cuda/trace.h"
#include "cuda/views.h"
#include "kernels/backward_params.h"

mmoe_status mm_cuda_resume_plan(const struct mm_cuda_call *call, const mmoe_backward_args *args) {
    const struct resume_params params = {
        .group = mm_cuda_call_group(call),
        .work = call->cuda->workspace.work,
        .tables = call->plan->arrays.tables,
        .h_tiles = call->recompute ? TILES_OF(2 * call->intermediate) : 0,
        .dgrad_tiles = TILES_OF(call->intermediate),
        .result_tiles = mm_wanted(&args->dx) ? TILES_OF(call->hidden) : 0,
        .wants_dw = mm_wanted(&args->dweights),
        .local_experts = (uint32_t)call->layer->local_experts,
    };
    const struct mm_cuda_grid grid = {.ctas = (params.local_experts + RESUME_THREADS - 1) / RESUME_THREADS,
                                      .threads = RESUME_THREADS};
    return mm_cuda_launch(call, MM_KERNEL_PLAN_RESUME, grid, &params);
}

/* ---- Rows ---- */

static mmoe_status map_pools(const struct mm_cuda_call *call, struct backward_params *params) {
    enum { BLOCK = TILE_ROWS, PIECE = 16 };
    const struct mm_wanted_map maps[] = {
        {mm_dy_view(call), BLOCK, &params->dy},
        {mm_gate_up_view(call, MM_GATE), BLOCK, &params->gate_in},
        {mm_gate_up_view(call, MM_UP), BLOCK, &params->up_in},
        {mm_dgrad_view(call, MM_GATE), BLOCK, &params->dgate_out},
        {mm_dgrad_view(call, MM_UP), BLOCK, &params->dup_out},
        {mm_h_view(call), BLOCK, &params->h_weighted},
        {mm_dgrad_view(call, MM_BOTH), BLOCK, &params->dgate_up},
        {mm_x_view(call), BLOCK, &params->x},
        {mm_gate_up_view(call, MM_GATE), PIECE, &params->gate_out},
        {mm_gate_up_view(call, MM_UP), PIECE, &params->up_out},
    };
    return mm_map_all(call, maps, sizeof maps / sizeof maps[0]);
}

static mmoe_status map_weights(struct mm_cuda_call *call, struct backward_params *params) {
    const struct {
        const mmoe_tensor *weight;
        enum mm_weight_use use;
        const char *name;
        struct weight_map *map;
    } all[] = {
        {call->down, MM_WEIGHT_BY_COLUMNS, "down", &params->down},
        {call->gate, MM_WEIGHT_BY_COLUMNS, "gate", &params->gate_by_columns},
        {call->up, MM_WEIGHT_BY_COLUMNS, "up", &params->up_by_columns},
        {call->gate, MM_WEIGHT_BY_ROWS, "gate", &params->gate},
        {call->up, MM_WEIGHT_BY_ROWS, "up", &params->up},
    };
    const size_t count = call->recompute ? 5 : 3;
    mmoe_status status = MMOE_OK;
    for (size_t i = 0; i < count && status == MMOE_OK; i++) {
        status = mm_map_weight(call, all[i].weight, all[i].use, all[i].name, all[i].map);
    }
    return status;
}

mmoe_status mm_cuda_fused_backward(struct mm_cuda_call *call) {
    const mm_cu_pointer rows[] = {call->dy, call->x};
    struct backward_params params = {
        .call = mm_cuda_fused_call(call, rows),
        .dw_parts = mm_at(call->dw_parts),
        .part_rows = call->pool_rows,
        .dw = call->cuda->layout.dw,
        .redo = call->recompute,
        .wants_weights = call->wants_weights,
    };
    params.call.trace = mm_cuda_trace_part(call, MM_TRACE_ROWS, 0);
    mmoe_status status = map_pools(call, &params);
    if (status == MMOE_OK) {
        status = map_weights(call, &params);
    }
    const struct mm_cuda_grid grid = {.ctas = mm_cuda_multiprocessors(call),
                                      .threads = FUSED_THREADS,
                                      .shared_bytes = BACKWARD_SMEM_BYTES,
                                      .overlapping = true};
    return status == MMOE_OK ? mm_cuda_launch_part(call, MM_KERNEL_BACKWARD, grid, &params) : status;
}

/* ---- End ---- */

mmoe_status mm_cuda_end_backward(const struct mm_cuda_call *call, const mmoe_backward_args *args) {
    struct backward_end_params params = {
        .call = mm_cuda_fused_call(call, NULL),
        .dx = mm_wanted_matrix(&args->dx),
        .dweights = mm_wanted_matrix(&args->dweights),
        .dw = call->cuda->layout.dw,
    };
    params.call.trace = mm_cuda_trace_part(call, MM_TRACE_END, 0);
    const struct mm_cuda_grid grid = {.ctas = mm_cuda_multiprocessors(call),
                                      .threads = BACKWARD_END_THREADS,
                                      .shared_bytes = BACKWARD_END_SHARED_BYTES};
    return mm_cuda_launch_part(call, MM_KERNEL_BACKWARD_END, grid, &params);
}
