/* The launch of the fused forward; see fused.h. */
#include "cuda/fused.h"

#include "cuda/inputs.h"
#include "cuda/trace.h"
#include "cuda/views.h"
#include "kernels/forward_params.h"

static struct forward_params params_of(const struct mm_cuda_call *call, const mmoe_forward_args *args,
                                       enum mm_fused_when when) {
    return (struct forward_params){
        .call = mm_cuda_fused_call(call, &call->x),
        .y = mm_strided(&args->y),
        .local_experts = (uint32_t)call->layer->local_experts,
        .to_sum = mm_at(call->out),
        .tentative = when == MM_FUSED_IF_ROOM,
        .row_room = call->pool_rows,
        .keep = call->gate_up != 0,
    };
}

static mmoe_status map_pools(const struct mm_cuda_call *call, struct forward_params *params) {
    enum { LOAD = TILE_ROWS, STORE = 16 };
    const struct mm_wanted_map maps[] = {
        {mm_x_view(call), LOAD, &params->x},
        {mm_h_view(call), LOAD, &params->h},
        {mm_h_view(call), STORE, &params->h_out},
        {mm_gate_up_view(call, MM_GATE), STORE, &params->gate_out},
        {mm_gate_up_view(call, MM_UP), STORE, &params->up_out},
    };
    return mm_map_all(call, maps, params->keep ? 5 : 3);
}

static mmoe_status map_weights(struct mm_cuda_call *call, struct forward_params *params) {
    mmoe_status status = mm_map_weight(call, call->gate, MM_WEIGHT_BY_ROWS, "gate", &params->gate);
    if (status == MMOE_OK) {
        status = mm_map_weight(call, call->up, MM_WEIGHT_BY_ROWS, "up", &params->up);
    }
    if (status == MMOE_OK) {
        status = mm_map_weight(call, call->down, MM_WEIGHT_BY_ROWS, "down", &params->down);
    }
    return status;
}

mmoe_status mm_cuda_fused_forward(struct mm_cuda_call *call, const mmoe_forward_args *args, enum mm_fused_when when) {
    struct forward_params params = params_of(call, args, when);
    params.call.trace = mm_cuda_trace_part(call, MM_TRACE_ROWS, 0);
    mmoe_status status = map_pools(call, &params);
    if (status == MMOE_OK) {
        status = map_weights(call, &params);
    }
    const struct mm_cuda_grid grid = {.ctas = mm_cuda_multiprocessors(call),
                                      .threads = FUSED_THREADS,
                                      .shared_bytes = FORWARD_SMEM_BYTES,
                                      .overlapping = true};
    const enum mm_cuda_kernel kernel = mm_cuda_is_grouped(call) ? MM_KERNEL_FORWARD_GROUPED : MM_KERNEL_FORWARD;
    return status == MMOE_OK ? mm_cuda_launch_part(call, kernel, grid, &params) : status;
}
