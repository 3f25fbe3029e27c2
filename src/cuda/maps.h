/* Tensor maps of the products' operands; kernels/gemm_params.h says which boxes they need. */
#ifndef MM_CUDA_MAPS_H
#define MM_CUDA_MAPS_H

#include "cuda/state.h"
#include "kernels/gemm_params.h"

/* Columns of a pool: `columns` of its `pitch`, from `base` on. */
struct mm_pool_view {
    mm_cu_pointer base;
    uint32_t columns, pitch;
    const char *name;
};

/* All rows of the pools as a matrix, loaded or stored in boxes of 64 columns and `box_rows` rows. */
mmoe_status mm_map_rows(const struct mm_cuda_call *call, const struct mm_pool_view *view, uint32_t box_rows,
                        struct tensor_map *map);

/* A map that a kernel's parameters want. */
struct mm_wanted_map {
    struct mm_pool_view view;
    uint32_t box_rows;
    struct tensor_map *map;
};

mmoe_status mm_map_all(const struct mm_cuda_call *call, const struct mm_wanted_map *wanted, size_t count);

/* The same as 64-column blocks side by side, for an operand whose rows are contracted. */
mmoe_status mm_map_row_blocks(const struct mm_cuda_call *call, const struct mm_pool_view *view, struct tensor_map *map);

/* What a weight is used for decides its map. */
enum mm_weight_use {
    MM_WEIGHT_BY_ROWS,    /* its columns are contracted */
    MM_WEIGHT_BY_COLUMNS, /* its rows are contracted */
    MM_WEIGHT_GRADIENT    /* it is written */
};

/* A weight [El, rows, cols]. One pointer an expert: the maps of all experts go to the group's device memory. */
mmoe_status mm_map_weight(struct mm_cuda_call *call, const mmoe_tensor *weight, enum mm_weight_use use,
                          const char *name, struct weight_map *map);

/* Weights of one call that are given by pointers, at most. */
#define MM_MAPPED_WEIGHTS 8
size_t mm_weight_maps_bytes(int64_t local_experts);

#endif
