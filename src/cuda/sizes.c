/* Bytes of every buffer; see sizes.h. */
#include "cuda/sizes.h"

#include <stdbool.h>

#include "cuda/plan.h"
#include "cuda/workspace.h"
#include "kernels/call_params.h"

int64_t mm_cuda_pool_rows(int64_t padded_rows) {
    return padded_rows > 0 ? padded_rows : MMOE_ROW_BLOCK;
}

int64_t mm_cuda_dw_parts(const mmoe_layer_config *layer) {
    return (layer->intermediate + MM_CUDA_DW_COLUMNS - 1) / MM_CUDA_DW_COLUMNS;
}

struct mm_cuda_pool_bytes mm_cuda_pool_bytes_of(const mmoe_layer_config *layer, int64_t rows) {
    const size_t count = (size_t)rows, bf16 = sizeof(uint16_t);
    const size_t hidden = (size_t)layer->hidden, intermediate = (size_t)layer->intermediate;
    return (struct mm_cuda_pool_bytes){
        .x = count * hidden * bf16,
        .dy = count * hidden * bf16,
        .gate_up = count * 2 * intermediate * bf16,
        .h = count * intermediate * bf16,
        .dgrad = count * 2 * intermediate * bf16,
        .dw_parts = count * (size_t)mm_cuda_dw_parts(layer) * sizeof(float),
    };
}

/* The devices' own control takes the place of the host's. */
struct mm_layout mm_cuda_layout(const mmoe_group_config *config, int world) {
    struct mm_layout layout = mm_layout_of(config, world);
    const size_t more = mm_align(sizeof(struct call_control)) - layout.x;
    size_t *parts[] = {&layout.x, &layout.dy, &layout.ids, &layout.weights, &layout.combine, &layout.dw, &layout.bytes};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        *parts[i] += more;
    }
    return layout;
}

/* The pools are all made at the first backward, whatever is kept; what is kept comes besides. */
void mm_cuda_sizes(const mmoe_group_config *group, const mmoe_layer_config *layer, int world, int64_t padded_rows,
                   mmoe_keep keep, mmoe_sizes *sizes) {
    const struct mm_cuda_pool_bytes pools = mm_cuda_pool_bytes_of(layer, mm_cuda_pool_rows(padded_rows));
    const bool kept = keep == MMOE_KEEP_ROWS;
    sizes->rows_x = kept ? 0 : pools.x;
    sizes->rows_dy = pools.dy;
    sizes->rows_gate_up = kept ? 0 : pools.gate_up;
    sizes->rows_h = pools.h;
    sizes->rows_dgrad = pools.dgrad;
    sizes->rows_dw = pools.dw_parts;
    sizes->thread_buffers = 0;
    sizes->scratch = sizes->rows_x + sizes->rows_dy + sizes->rows_gate_up + sizes->rows_h + sizes->rows_dgrad +
                     sizes->rows_dw + mm_cuda_workspace_bytes(group, world);
    sizes->kept_x = kept ? pools.x : 0;
    sizes->kept_gate_up = kept ? pools.gate_up : 0;
}
