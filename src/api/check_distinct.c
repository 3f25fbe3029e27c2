/* Check that no two elements of an output share an address. */
#include "api/check.h"
#include "api/lattice.h"

/* Two different elements at one address are a combination of strides, not all multiples 0, that gives 0. Its first
 * multiple that isn't 0 may be taken as positive; so each dimension in turn is that first one. */
static bool folds(const mmoe_tensor *tensor) {
    for (int first = tensor->experts != NULL; first < tensor->dims; first++) {
        if (tensor->shape[first] == 1) {
            continue;
        }
        if (tensor->stride[first] == 0) {
            return true;
        }
        struct mm_lattice lattice = {0};
        mm_lattice_add(&lattice, tensor->stride[first], 1, tensor->shape[first] - 1);
        for (int i = first + 1; i < tensor->dims; i++) {
            mm_lattice_add(&lattice, tensor->stride[i], 1 - tensor->shape[i], tensor->shape[i] - 1);
        }
        if (mm_lattice_reaches(&lattice, 0, 0)) {
            return true;
        }
    }
    return false;
}

mmoe_status mm_check_distinct(const struct mm_argument *argument) {
    const mmoe_tensor *tensor = argument->tensor;
    if (mm_tensor_is_empty(tensor) || !folds(tensor)) {
        return MMOE_OK;
    }
    char shape[MM_SHAPE_BYTES], stride[MM_SHAPE_BYTES];
    mm_shape_text(tensor->dims, tensor->shape, shape);
    mm_shape_text(tensor->dims, tensor->stride, stride);
    return mm_fail(MMOE_INVALID_ARGUMENT, "%s has strides %s for shape %s, expected no two elements at one address",
                   argument->expect.name, stride, shape);
}
