/* Bytes of every buffer; see sizes.h. */
#include "cpu/sizes.h"
#include "cpu/state.h"

struct mm_tiling mm_tiling_of(int64_t cols, int32_t widest) {
    const int32_t vector = 16; /* widths are multiples of it, so that loops over a tile have no remainder */
    int64_t count = (cols + widest - 1) / widest;
    int64_t width = ((cols + count - 1) / count + vector - 1) / vector * vector;
    count = (cols + width - 1) / width;
    return (struct mm_tiling){(int32_t)width, (int32_t)count, (int32_t)(cols - (count - 1) * width)};
}

int32_t mm_tile_width(const struct mm_tiling *tiling, int64_t tile) {
    return tile == tiling->count - 1 ? tiling->last : tiling->width;
}

struct mm_pool_bytes mm_pool_bytes_of(const mmoe_layer_config *layer, int64_t padded_rows) {
    const size_t rows = (size_t)padded_rows, hidden = (size_t)layer->hidden;
    const size_t intermediate = (size_t)layer->intermediate, bf16 = sizeof(uint16_t);
    int64_t dw_cols = layer->weight_on == MMOE_WEIGHT_ON_INPUT ? layer->hidden : layer->intermediate;
    size_t dw_tiles = (size_t)mm_tiling_of(dw_cols, MM_GEMM_COLS).count;
    size_t runs = rows / MM_GEMM_RUN + (size_t)layer->experts; /* a run ends where a source or an expert does */
    return (struct mm_pool_bytes){
        .x = rows * hidden * bf16,
        .dy = rows * hidden * bf16,
        .gate_up = rows * 2 * intermediate * bf16,
        .h = rows * intermediate * bf16,
        .dgrad = rows * 2 * intermediate * bf16,
        .dw = rows * dw_tiles * sizeof(float),
        .runs = runs * sizeof(struct mm_run),
        .links = layer->combine == MMOE_COMBINE_GROUPED ? rows * sizeof(struct mm_row_link) : 0,
    };
}

int64_t mm_workspace_depth(const mmoe_layer_config *layer) {
    return layer->hidden > 2 * layer->intermediate ? layer->hidden : 2 * layer->intermediate;
}

size_t mm_workspace_bytes(const mmoe_layer_config *layer, int threads) {
    int64_t depth = mm_workspace_depth(layer);
    size_t floats = mm_workspace_a(depth) + mm_workspace_b(depth) + mm_workspace_c();
    return (size_t)threads * floats * sizeof(float);
}

/* With a fixed capacity everything is made with the layer; otherwise what the kept rows replace is never made. */
void mm_cpu_sizes(const mmoe_group_config *group, const mmoe_layer_config *layer, int world, int64_t padded_rows,
                  mmoe_keep keep, mmoe_sizes *sizes) {
    struct mm_pool_bytes pools = mm_pool_bytes_of(layer, padded_rows);
    const bool kept = keep == MMOE_KEEP_ROWS;
    const bool replaced = kept && layer->capacity_policy == MMOE_CAPACITY_GROW;
    sizes->rows_x = replaced ? 0 : pools.x;
    sizes->rows_dy = pools.dy;
    sizes->rows_gate_up = replaced ? 0 : pools.gate_up;
    sizes->rows_h = pools.h;
    sizes->rows_dgrad = pools.dgrad;
    sizes->rows_dw = pools.dw;
    sizes->thread_buffers = mm_workspace_bytes(layer, mm_pool_threads(group, world));
    sizes->scratch = sizes->rows_x + sizes->rows_dy + sizes->rows_gate_up + sizes->rows_h + sizes->rows_dgrad +
                     sizes->rows_dw + sizes->thread_buffers + pools.runs + pools.links;
    sizes->kept_x = kept ? pools.x : 0;
    sizes->kept_gate_up = kept ? pools.gate_up : 0;
}
