/* Bytes of the backend's buffers: one place that both the allocations and mmoe_sizes_of() read. */
#ifndef MM_CUDA_SIZES_H
#define MM_CUDA_SIZES_H

#include "group/layout.h"

/* The pools of state.h for `rows` rows, pads included. */
struct mm_cuda_pool_bytes {
    size_t x, dy, gate_up, h, dgrad, dw_parts;
};

struct mm_cuda_pool_bytes mm_cuda_pool_bytes_of(const mmoe_layer_config *layer, int64_t rows);

/* Rows that pools have for a plan of `padded_rows`: a tensor map can't be empty. */
int64_t mm_cuda_pool_rows(int64_t padded_rows);

/* Columns that one part of dw sums. */
#define MM_CUDA_DW_COLUMNS 256
int64_t mm_cuda_dw_parts(const mmoe_layer_config *layer);

/* See struct mm_backend. */
struct mm_layout mm_cuda_layout(const mmoe_group_config *config, int world);
void mm_cuda_sizes(const mmoe_group_config *group, const mmoe_layer_config *layer, int world, int64_t padded_rows,
                   mmoe_keep keep, mmoe_sizes *sizes);

#endif
