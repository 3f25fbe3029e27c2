/* Guarded tensors: memory of a caller with canaries on both sides and in every gap of its strides, so that a write
 * outside the elements, or a read that matters, shows. */
#ifndef RIG_TENSOR_H
#define RIG_TENSOR_H

#include <stdbool.h>

#include "megamoe.h"

enum rig_layout {
    RIG_CONTIGUOUS,
    RIG_OFFSET,       /* starts one element past an aligned address */
    RIG_TRANSPOSED,   /* columns next to one another */
    RIG_SLICED,       /* rows further apart than they are long */
    RIG_SPREAD,       /* every second element of a row */
    RIG_NEGATIVE,     /* every stride negative */
    RIG_REPEATED_ROW, /* inputs only: row stride 0 */
    RIG_REPEATED,     /* inputs only: every stride 0 */
    RIG_SCATTERED     /* stacks only: one pointer an expert, in reverse order */
};

struct rig_tensor {
    mmoe_tensor view;
    void **experts;          /* of a scattered stack */
    unsigned char *memory;   /* guard, elements with gaps, guard */
    unsigned char *snapshot; /* what `memory` was before the call */
    size_t bytes;
};

size_t rig_element_bytes(mmoe_dtype dtype);

/* A matrix when `count` is 0, a stack otherwise. */
struct rig_tensor rig_tensor_make(enum rig_layout layout, mmoe_dtype dtype, int64_t count, int64_t rows, int64_t cols);
void rig_tensor_free(struct rig_tensor *tensor);

/* Writes contiguous `values` of the tensor's dtype into the elements. */
void rig_tensor_put(struct rig_tensor *tensor, const void *values);

/* Fills the elements with bytes `poison`: 0xff is NaN, 0x7f a large finite number. */
void rig_tensor_poison(struct rig_tensor *tensor, int poison);

/* Reads the elements into contiguous `values`. False when a byte outside the elements has changed. */
bool rig_tensor_take(struct rig_tensor *tensor, void *values);

/* True while no byte has changed since put or poison. */
bool rig_tensor_intact(const struct rig_tensor *tensor);

#endif
