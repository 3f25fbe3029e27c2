/* Launches of the products; see products.h. */
#include "cuda/products.h"

#include "cuda/fused.h"
#include "cuda/inputs.h"
#include "cuda/maps.h"
#include "cuda/trace.h"
#include "cuda/views.h"
#include "kernels/tile_shape.h"

/* Rows of a box, by what it is for; see kernels/gemm_params.h. */
enum { LOAD_ROWS = 64, PIECE_ROWS = 16, EPILOGUE_ROWS = 128 };

/* As many clusters as run at once. */
static struct mm_cuda_grid grid_of(const struct mm_cuda_call *call) {
    const unsigned clusters = mm_cuda_multiprocessors(call) / CLUSTER_CTAS;
    return (struct mm_cuda_grid){.ctas = (clusters > 0 ? clusters : 1) * CLUSTER_CTAS,
                                 .threads = CTA_THREADS,
                                 .cluster = CLUSTER_CTAS,
                                 .shared_bytes = GEMM_SMEM_BYTES};
}

static mmoe_status launch(const struct mm_cuda_call *call, enum mm_cuda_kernel which, const void *params) {
    return mm_cuda_launch(call, which, grid_of(call), params);
}

static struct row_segments segments_of(const struct mm_cuda_call *call) {
    const struct plan_tables *tables = &call->plan->arrays.tables;
    return (struct row_segments){
        .first_row = tables->expert_offset,
        .used_rows = tables->expert_rows,
        .experts = (uint32_t)call->layer->local_experts,
    };
}

#define MAP_ALL(call, wanted) mm_map_all((call), (wanted), sizeof(wanted) / sizeof(wanted)[0])

/* ---- Forward ---- */

mmoe_status mm_cuda_gate_up(struct mm_cuda_call *call, bool keep) {
    struct gate_up_params params = {
        .segments = segments_of(call),
        .hidden = call->hidden,
        .intermediate = call->intermediate,
        .keep = keep,
        .clamp = call->layer->config.limit > 0,
        .limit = call->layer->config.limit,
    };
    const struct mm_wanted_map maps[] = {
        {mm_x_view(call), LOAD_ROWS, &params.x},
        {mm_h_view(call), PIECE_ROWS, &params.h},
    };
    const struct mm_wanted_map kept[] = {
        {mm_gate_up_view(call, MM_GATE), PIECE_ROWS, &params.gate_out},
        {mm_gate_up_view(call, MM_UP), PIECE_ROWS, &params.up_out},
    };
    mmoe_status status = MAP_ALL(call, maps);
    if (status == MMOE_OK && keep) {
        status = MAP_ALL(call, kept);
    }
    if (status == MMOE_OK) {
        status = mm_map_weight(call, call->gate, MM_WEIGHT_BY_ROWS, "gate", &params.gate);
    }
    if (status == MMOE_OK) {
        status = mm_map_weight(call, call->up, MM_WEIGHT_BY_ROWS, "up", &params.up);
    }
    return status == MMOE_OK ? launch(call, MM_KERNEL_GATE_UP, &params) : status;
}

mmoe_status mm_cuda_down(struct mm_cuda_call *call) {
    struct down_params params = {
        .row_weight = call->plan->arrays.rows.weight,
        .segments = segments_of(call),
        .hidden = call->hidden,
        .intermediate = call->intermediate,
    };
    const struct mm_wanted_map maps[] = {
        {mm_h_view(call), LOAD_ROWS, &params.h},
        {mm_out_view(call), PIECE_ROWS, &params.y},
    };
    mmoe_status status = MAP_ALL(call, maps);
    if (status == MMOE_OK) {
        status = mm_map_weight(call, call->down, MM_WEIGHT_BY_ROWS, "down", &params.down);
    }
    return status == MMOE_OK ? launch(call, MM_KERNEL_DOWN, &params) : status;
}

/* ---- Backward ---- */

mmoe_status mm_cuda_dgate_up(struct mm_cuda_call *call) {
    struct dgate_up_params params = {
        .row_weight = call->plan->arrays.rows.weight,
        .weighted = mm_at(call->h),
        .dw_parts = mm_at(call->dw_parts),
        .padded_rows = call->pool_rows,
        .segments = segments_of(call),
        .hidden = call->hidden,
        .intermediate = call->intermediate,
        .clamp = call->layer->config.limit > 0,
        .limit = call->layer->config.limit,
    };
    const struct mm_wanted_map maps[] = {
        {mm_dy_view(call), LOAD_ROWS, &params.dy},
        {mm_gate_up_view(call, MM_GATE), EPILOGUE_ROWS, &params.gate},
        {mm_gate_up_view(call, MM_UP), EPILOGUE_ROWS, &params.up},
        {mm_dgrad_view(call, MM_GATE), EPILOGUE_ROWS, &params.dgate},
        {mm_dgrad_view(call, MM_UP), EPILOGUE_ROWS, &params.dup},
        {mm_h_view(call), EPILOGUE_ROWS, &params.h_weighted},
    };
    mmoe_status status = MAP_ALL(call, maps);
    if (status == MMOE_OK) {
        status = mm_map_weight(call, call->down, MM_WEIGHT_BY_COLUMNS, "down", &params.down);
    }
    return status == MMOE_OK ? launch(call, MM_KERNEL_DGATE_UP, &params) : status;
}

mmoe_status mm_cuda_dx(struct mm_cuda_call *call) {
    struct dx_params params = {
        .segments = segments_of(call), .hidden = call->hidden, .intermediate = call->intermediate};
    const struct mm_wanted_map maps[] = {
        {mm_dgrad_view(call, MM_BOTH), LOAD_ROWS, &params.dgate_up},
        {mm_out_view(call), PIECE_ROWS, &params.dx},
    };
    mmoe_status status = MAP_ALL(call, maps);
    if (status == MMOE_OK) {
        status = mm_map_weight(call, call->gate, MM_WEIGHT_BY_COLUMNS, "gate", &params.gate);
    }
    if (status == MMOE_OK) {
        status = mm_map_weight(call, call->up, MM_WEIGHT_BY_COLUMNS, "up", &params.up);
    }
    return status == MMOE_OK ? launch(call, MM_KERNEL_DX, &params) : status;
}

/* ---- Gradients of the weights ---- */

/* One launch: a^T b over each expert's rows, into one output, or into two whose operands `a` lie side by side. */
struct outer_product {
    struct mm_pool_view a, b;
    const mmoe_tensor *out[2]; /* the second one may be NULL */
    const char *name[2];
};

static mmoe_status add_launch(struct mm_cuda_call *call, const struct outer_product *product, int32_t accumulate,
                              struct mm_cuda_wgrads *wgrads) {
    const mmoe_tensor *first = product->out[0];
    struct mm_cuda_wgrad_launch *next = &wgrads->launches[wgrads->count++];
    struct wgrad_params *params = &next->params;
    next->kernel = first->dtype == MMOE_F32 ? MM_KERNEL_WGRAD_F32 : MM_KERNEL_WGRAD_BF16;
    *params = (struct wgrad_params){
        .segments = segments_of(call),
        .m = (uint32_t)first->shape[1],
        .n = (uint32_t)first->shape[2],
        .outputs = product->out[1] != NULL ? 2 : 1,
        .accumulate = (uint32_t)accumulate,
    };
    mmoe_status status = mm_map_row_blocks(call, &product->a, &params->a);
    if (status == MMOE_OK) {
        status = mm_map_row_blocks(call, &product->b, &params->b);
    }
    for (uint32_t i = 0; i < params->outputs && status == MMOE_OK; i++) {
        status = mm_map_weight(call, product->out[i], MM_WEIGHT_GRADIENT, product->name[i], &params->out[i]);
    }
    return status;
}

static mmoe_status add_half(struct mm_cuda_call *call, enum mm_half half, const mmoe_tensor *out, const char *name,
                            int32_t accumulate, struct mm_cuda_wgrads *wgrads) {
    const struct outer_product product = {mm_dgrad_view(call, half), mm_x_view(call), {out, NULL}, {name, NULL}};
    return mm_wanted(out) ? add_launch(call, &product, accumulate, wgrads) : MMOE_OK;
}

/* When that is one kind of output, which reads x once. */
static bool together(const mmoe_backward_args *args) {
    return mm_wanted(&args->dgate) && mm_wanted(&args->dup) && args->dgate.dtype == args->dup.dtype;
}

static mmoe_status add_gate_up(struct mm_cuda_call *call, const mmoe_backward_args *args,
                               struct mm_cuda_wgrads *wgrads) {
    if (together(args)) {
        const struct outer_product both = {
            mm_dgrad_view(call, MM_BOTH), mm_x_view(call), {&args->dgate, &args->dup}, {"dgate", "dup"}};
        return add_launch(call, &both, args->accumulate, wgrads);
    }
    mmoe_status status = add_half(call, MM_GATE, &args->dgate, "dgate", args->accumulate, wgrads);
    return status == MMOE_OK ? add_half(call, MM_UP, &args->dup, "dup", args->accumulate, wgrads) : status;
}

mmoe_status mm_cuda_wgrads_of(struct mm_cuda_call *call, const mmoe_backward_args *args,
                              struct mm_cuda_wgrads *wgrads) {
    const struct outer_product down = {mm_dy_view(call), mm_h_view(call), {&args->ddown, NULL}, {"ddown", NULL}};
    *wgrads = (struct mm_cuda_wgrads){.count = 0};
    mmoe_status status = mm_wanted(&args->ddown) ? add_launch(call, &down, args->accumulate, wgrads) : MMOE_OK;
    return status == MMOE_OK ? add_gate_up(call, args, wgrads) : status;
}

int mm_cuda_wgrad_count(const mmoe_backward_args *args) {
    const int gate_up = together(args) ? 1 : mm_wanted(&args->dgate) + mm_wanted(&args->dup);
    return mm_wanted(&args->ddown) + gate_up;
}

/* Of an expert, as the kernel counts them. */
static uint32_t tiles_of(const struct wgrad_params *params) {
    const uint32_t rows = (params->m + TILE_ROWS - 1) / TILE_ROWS, pairs = (params->outputs * rows + 1) / 2;
    return 2 * pairs * TILES_OF(params->n);
}

void mm_cuda_wgrads_in_call(const struct mm_cuda_call *call, const mmoe_backward_args *args,
                            struct mm_cuda_wgrads *wgrads) {
    uint32_t tiles = 0;
    for (int i = 0; i < wgrads->count; i++) {
        struct wgrad_params *params = &wgrads->launches[i].params;
        params->segments.by_rows = call->cuda->workspace.work.by_rows;
        params->in_call = 1;
        params->call = mm_cuda_fused_call(call, NULL);
        params->call.trace = mm_cuda_trace_part(call, MM_TRACE_WGRAD + i, tiles);
        tiles += tiles_of(params);
        params->dx = mm_wanted_matrix(&args->dx);
    }
}

mmoe_status mm_cuda_wgrad(const struct mm_cuda_call *call, const struct mm_cuda_wgrads *wgrads, bool closing) {
    mmoe_status status = MMOE_OK;
    for (int i = 0; i < wgrads->count && status == MMOE_OK; i++) {
        struct wgrad_params params = wgrads->launches[i].params;
        params.closing = closing;
        status = closing ? launch(call, wgrads->launches[i].kernel, &params)
                         : mm_cuda_launch_part(call, wgrads->launches[i].kernel, grid_of(call), &params);
    }
    return status;
}
