/* Tensor maps; see maps.h. */
#include "cuda/maps.h"

#include "base/memory.h"
#include "cuda/inputs.h"

enum { BLOCK = 64 }; /* columns of bf16 that the 128-byte swizzle spans */

mmoe_status mm_map_rows(const struct mm_cuda_call *call, const struct mm_pool_view *view, uint32_t box_rows,
                        struct tensor_map *map) {
    const struct tensor_map_desc desc = {
        .base = mm_at(view->base),
        .dims = 2,
        .element = TENSOR_BF16,
        .swizzle = TENSOR_SWIZZLE_128B,
        .size = {view->columns, call->pool_rows},
        .stride = {(uint64_t)view->pitch * sizeof(uint16_t)},
        .box = {BLOCK, box_rows},
    };
    return mm_tensor_map_encode(call->gpu, &desc, view->name, map);
}

mmoe_status mm_map_all(const struct mm_cuda_call *call, const struct mm_wanted_map *wanted, size_t count) {
    mmoe_status status = MMOE_OK;
    for (size_t i = 0; i < count && status == MMOE_OK; i++) {
        status = mm_map_rows(call, &wanted[i].view, wanted[i].box_rows, wanted[i].map);
    }
    return status;
}

mmoe_status mm_map_row_blocks(const struct mm_cuda_call *call, const struct mm_pool_view *view,
                              struct tensor_map *map) {
    const struct tensor_map_desc desc = {
        .base = mm_at(view->base),
        .dims = 3,
        .element = TENSOR_BF16,
        .swizzle = TENSOR_SWIZZLE_128B,
        .size = {BLOCK, call->pool_rows, view->columns / BLOCK},
        .stride = {(uint64_t)view->pitch * sizeof(uint16_t), BLOCK * sizeof(uint16_t)},
        .box = {BLOCK, BLOCK, 2},
    };
    return mm_tensor_map_encode(call->gpu, &desc, view->name, map);
}

/* ---- Weights ---- */

/* `count` experts from `data` on. */
static struct tensor_map_desc describe(const mmoe_tensor *weight, void *data, uint64_t count, enum mm_weight_use use) {
    const bool wide = weight->dtype == MMOE_F32;
    const uint64_t element = wide ? sizeof(float) : sizeof(uint16_t);
    const uint64_t rows = (uint64_t)weight->shape[1], cols = (uint64_t)weight->shape[2];
    const uint64_t row = (uint64_t)weight->stride[1] * element;
    const uint64_t expert = count > 1 ? (uint64_t)weight->stride[0] * element : rows * row; /* of one: any */
    struct tensor_map_desc desc = {
        .base = data, .element = wide ? TENSOR_F32 : TENSOR_BF16, .swizzle = TENSOR_SWIZZLE_128B};
    if (use == MM_WEIGHT_BY_COLUMNS) {
        desc.dims = 4;
        desc.size[0] = BLOCK, desc.size[1] = rows, desc.size[2] = cols / BLOCK, desc.size[3] = count;
        desc.stride[0] = row, desc.stride[1] = BLOCK * element, desc.stride[2] = expert;
        desc.box[0] = BLOCK, desc.box[1] = BLOCK, desc.box[2] = 2, desc.box[3] = 1;
    } else {
        desc.dims = 3;
        desc.size[0] = cols, desc.size[1] = rows, desc.size[2] = count;
        desc.stride[0] = row, desc.stride[1] = expert;
        desc.box[0] = wide ? BLOCK / 2 : BLOCK;
        desc.box[1] = use == MM_WEIGHT_GRADIENT ? 16 : 128;
        desc.box[2] = 1;
    }
    return desc;
}

size_t mm_weight_maps_bytes(int64_t local_experts) {
    return MM_MAPPED_WEIGHTS * (size_t)local_experts * sizeof(struct tensor_map);
}

static mmoe_status encode_each(const struct mm_cuda_call *call, const mmoe_tensor *weight, enum mm_weight_use use,
                               const char *name, struct tensor_map *maps) {
    mmoe_status status = MMOE_OK;
    for (int64_t e = 0; e < weight->shape[0] && status == MMOE_OK; e++) {
        const struct tensor_map_desc desc = describe(weight, weight->experts[e], 1, use);
        status = mm_tensor_map_encode(call->gpu, &desc, name, &maps[e]);
    }
    return status;
}

/* The copy has read the maps when it returns: they lie in ordinary memory. */
static mmoe_status map_each(struct mm_cuda_call *call, const mmoe_tensor *weight, enum mm_weight_use use,
                            const char *name, struct weight_map *map) {
    const size_t bytes = (size_t)weight->shape[0] * sizeof(struct tensor_map);
    const mm_cu_pointer place = call->cuda->weight_maps.address + call->maps_used++ * bytes;
    struct tensor_map *maps;
    mmoe_status status = mm_alloc((void **)&maps, bytes, "the tensor maps of a weight");
    if (status == MMOE_OK) {
        status = encode_each(call, weight, use, name, maps);
    }
    if (status == MMOE_OK) {
        status = mm_copy_to_device(call->gpu, place, maps, bytes, call->stream, "writing tensor maps");
    }
    mm_free(&maps);
    map->each = mm_at(place);
    return status;
}

mmoe_status mm_map_weight(struct mm_cuda_call *call, const mmoe_tensor *weight, enum mm_weight_use use,
                          const char *name, struct weight_map *map) {
    *map = (struct weight_map){.each = NULL};
    if (weight->experts != NULL) {
        return map_each(call, weight, use, name, map);
    }
    const struct tensor_map_desc desc = describe(weight, weight->data, (uint64_t)weight->shape[0], use);
    return mm_tensor_map_encode(call->gpu, &desc, name, &map->whole);
}
