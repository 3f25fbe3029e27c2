/* Launches of the products; see products.h. */
#include "cuda/products.h"

#include "cuda/maps.h"
#include "kernels/tile_shape.h"

/* Rows of a box, by what it is for; see kernels/gemm_params.h. */
enum { LOAD_ROWS = 64, PIECE_ROWS = 16, EPILOGUE_ROWS = 128 };

/* As many clusters as run at once. */
static mmoe_status launch(const struct mm_cuda_call *call, enum mm_cuda_kernel which, const void *params) {
    const unsigned clusters = (unsigned)call->gpu->device.multiprocessors / CLUSTER_CTAS;
    const struct mm_cuda_grid grid = {.ctas = (clusters > 0 ? clusters : 1) * CLUSTER_CTAS,
                                      .threads = CTA_THREADS,
                                      .cluster = CLUSTER_CTAS,
                                      .shared_bytes = GEMM_SMEM_BYTES};
    return mm_cuda_launch(call, which, grid, params);
}

static struct row_segments segments_of(const struct mm_cuda_call *call) {
    const struct plan_tables *tables = &call->plan->arrays.tables;
    return (struct row_segments){
        .first_row = tables->expert_offset,
        .used_rows = tables->expert_rows,
        .experts = (uint32_t)call->layer->local_experts,
    };
}

/* ---- The pools as matrices ---- */

static struct mm_pool_view x_of(const struct mm_cuda_call *call) {
    return (struct mm_pool_view){call->x, call->hidden, call->hidden, "the token rows"};
}

static struct mm_pool_view dy_of(const struct mm_cuda_call *call) {
    return (struct mm_pool_view){call->dy, call->hidden, call->hidden, "the gradient rows"};
}

static struct mm_pool_view h_of(const struct mm_cuda_call *call) {
    return (struct mm_pool_view){call->h, call->intermediate, call->intermediate, "the activation rows"};
}

static struct mm_pool_view out_of(const struct mm_cuda_call *call) {
    return (struct mm_pool_view){call->out, call->hidden, call->hidden, "the result rows"};
}

/* One half, or both, of a pool of gate and up. */
enum half { GATE, UP, BOTH };

static struct mm_pool_view halves_of(const struct mm_cuda_call *call, mm_cu_pointer pool, enum half half,
                                     const char *name) {
    const uint32_t width = call->intermediate;
    return (struct mm_pool_view){pool + (half == UP ? width * sizeof(uint16_t) : 0), half == BOTH ? 2 * width : width,
                                 2 * width, name};
}

static struct mm_pool_view gate_up_of(const struct mm_cuda_call *call, enum half half) {
    return halves_of(call, call->gate_up, half, "the gate and up rows");
}

static struct mm_pool_view dgrad_of(const struct mm_cuda_call *call, enum half half) {
    return halves_of(call, call->dgrad, half, "the gate and up gradient rows");
}

/* A map that a kernel's parameters want. */
struct wanted_map {
    struct mm_pool_view view;
    uint32_t box_rows;
    struct tensor_map *map;
};

static mmoe_status map_all(const struct mm_cuda_call *call, const struct wanted_map *wanted, size_t count) {
    mmoe_status status = MMOE_OK;
    for (size_t i = 0; i < count && status == MMOE_OK; i++) {
        status = mm_map_rows(call, &wanted[i].view, wanted[i].box_rows, wanted[i].map);
    }
    return status;
}

#define MAP_ALL(call, wanted) map_all((call), (wanted), sizeof(wanted) / sizeof(wanted)[0])

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
    const struct wanted_map maps[] = {
        {x_of(call), LOAD_ROWS, &params.x},
        {h_of(call), PIECE_ROWS, &params.h},
    };
    const struct wanted_map kept[] = {
        {gate_up_of(call, GATE), PIECE_ROWS, &params.gate_out},
        {gate_up_of(call, UP), PIECE_ROWS, &params.up_out},
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
    const struct wanted_map maps[] = {
        {h_of(call), LOAD_ROWS, &params.h},
        {out_of(call), PIECE_ROWS, &params.y},
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
        .dw_parts = mm_at(call->dw_parts),
        .padded_rows = call->pool_rows,
        .segments = segments_of(call),
        .hidden = call->hidden,
        .intermediate = call->intermediate,
        .clamp = call->layer->config.limit > 0,
        .limit = call->layer->config.limit,
    };
    const struct wanted_map maps[] = {
        {dy_of(call), LOAD_ROWS, &params.dy},
        {gate_up_of(call, GATE), EPILOGUE_ROWS, &params.gate},
        {gate_up_of(call, UP), EPILOGUE_ROWS, &params.up},
        {dgrad_of(call, GATE), PIECE_ROWS, &params.dgate},
        {dgrad_of(call, UP), PIECE_ROWS, &params.dup},
        {h_of(call), PIECE_ROWS, &params.h_weighted},
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
    const struct wanted_map maps[] = {
        {dgrad_of(call, BOTH), LOAD_ROWS, &params.dgate_up},
        {out_of(call), PIECE_ROWS, &params.dx},
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

static mmoe_status multiply(struct mm_cuda_call *call, const struct outer_product *product, int32_t accumulate) {
    const mmoe_tensor *first = product->out[0];
    struct wgrad_params params = {
        .segments = segments_of(call),
        .m = (uint32_t)first->shape[1],
        .n = (uint32_t)first->shape[2],
        .outputs = product->out[1] != NULL ? 2 : 1,
        .accumulate = (uint32_t)accumulate,
    };
    mmoe_status status = mm_map_row_blocks(call, &product->a, &params.a);
    if (status == MMOE_OK) {
        status = mm_map_row_blocks(call, &product->b, &params.b);
    }
    for (uint32_t i = 0; i < params.outputs && status == MMOE_OK; i++) {
        status = mm_map_weight(call, product->out[i], MM_WEIGHT_GRADIENT, product->name[i], &params.out[i]);
    }
    const enum mm_cuda_kernel which = first->dtype == MMOE_F32 ? MM_KERNEL_WGRAD_F32 : MM_KERNEL_WGRAD_BF16;
    return status == MMOE_OK ? launch(call, which, &params) : status;
}

static mmoe_status multiply_half(struct mm_cuda_call *call, enum half half, const mmoe_tensor *out, const char *name,
                                 int32_t accumulate) {
    const struct outer_product product = {dgrad_of(call, half), x_of(call), {out, NULL}, {name, NULL}};
    return mm_wanted(out) ? multiply(call, &product, accumulate) : MMOE_OK;
}

/* Together when that is one kind of output, which reads x once. */
static mmoe_status multiply_gate_up(struct mm_cuda_call *call, const mmoe_backward_args *args) {
    if (mm_wanted(&args->dgate) && mm_wanted(&args->dup) && args->dgate.dtype == args->dup.dtype) {
        const struct outer_product both = {
            dgrad_of(call, BOTH), x_of(call), {&args->dgate, &args->dup}, {"dgate", "dup"}};
        return multiply(call, &both, args->accumulate);
    }
    mmoe_status status = multiply_half(call, GATE, &args->dgate, "dgate", args->accumulate);
    return status == MMOE_OK ? multiply_half(call, UP, &args->dup, "dup", args->accumulate) : status;
}

mmoe_status mm_cuda_wgrad(struct mm_cuda_call *call, const mmoe_backward_args *args) {
    const struct outer_product down = {dy_of(call), h_of(call), {&args->ddown, NULL}, {"ddown", NULL}};
    mmoe_status status = mm_wanted(&args->ddown) ? multiply(call, &down, args->accumulate) : MMOE_OK;
    return status == MMOE_OK ? multiply_gate_up(call, args) : status;
}
