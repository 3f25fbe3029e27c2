/* Bytes of the backend's buffers: one place that both the allocations and mmoe_sizes_of() read. */
#ifndef MM_CPU_SIZES_H
#define MM_CPU_SIZES_H

#include "megamoe.h"

/* The pools of state.h for `padded_rows` rows. */
struct mm_pool_bytes {
    size_t x, dy, gate_up, h, dgrad, dw, runs, links;
};

struct mm_pool_bytes mm_pool_bytes_of(const mmoe_layer_config *layer, int64_t padded_rows);

/* Depth of the deepest product of a layer. */
int64_t mm_workspace_depth(const mmoe_layer_config *layer);

/* Workspaces of `threads` threads. */
size_t mm_workspace_bytes(const mmoe_layer_config *layer, int threads);

/* See struct mm_backend. */
void mm_cpu_sizes(const mmoe_group_config *group, const mmoe_layer_config *layer, int world, int64_t padded_rows,
                  mmoe_keep keep, mmoe_sizes *sizes);

#endif
