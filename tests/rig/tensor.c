/* Guarded tensors. */
#include "rig/tensor.h"

#include <stdlib.h>
#include <string.h>

#define GUARD_BYTES 256

size_t rig_element_bytes(mmoe_dtype dtype) {
    switch (dtype) {
    case MMOE_BF16:
        return 2;
    case MMOE_I64:
        return 8;
    default:
        return 4;
    }
}

/* Bytes of guards and gaps: NaN among numbers, an expert out of range among ids. */
static int guard_byte(mmoe_dtype dtype) {
    return dtype == MMOE_BF16 || dtype == MMOE_F32 ? 0xff : 0x7f;
}

static void *allocate(size_t bytes) {
    void *memory = NULL;
    if (posix_memalign(&memory, 128, bytes))
        abort();
    return memory;
}

/* Strides of [count, rows, cols], the first element's offset, and the elements spanned. */
struct placement {
    int64_t stride[3], offset, span;
};

static struct placement place(enum rig_layout layout, int64_t count, int64_t rows, int64_t cols) {
    int64_t matrix = rows * cols, all = count * matrix;
    switch (layout) {
    case RIG_OFFSET:
        return (struct placement){{matrix, cols, 1}, 1, all + 1};
    case RIG_TRANSPOSED:
        return (struct placement){{matrix, 1, rows}, 0, all};
    case RIG_SLICED:
        return (struct placement){{rows * (cols + 3) + 5, cols + 3, 1}, 2, count * (rows * (cols + 3) + 5) + 2};
    case RIG_SPREAD:
        return (struct placement){{2 * matrix, 2 * cols, 2}, 0, 2 * all};
    case RIG_NEGATIVE:
        return (struct placement){{-matrix, -cols, -1}, all > 0 ? all - 1 : 0, all};
    case RIG_REPEATED_ROW:
        return (struct placement){{matrix, 0, 1}, 0, all};
    case RIG_REPEATED:
        return (struct placement){{0, 0, 0}, 0, 1};
    case RIG_SCATTERED:
        return (struct placement){{matrix + 8, cols, 1}, 0, count * (matrix + 8)}; /* 16-byte alignment is kept */
    default:
        return (struct placement){{matrix, cols, 1}, 0, all};
    }
}

struct rig_tensor rig_tensor_make(enum rig_layout layout, mmoe_dtype dtype, int64_t count, int64_t rows, int64_t cols) {
    struct placement at = place(layout, count ? count : 1, rows, cols);
    size_t size = rig_element_bytes(dtype);
    struct rig_tensor tensor = {.bytes = 2 * GUARD_BYTES + (size_t)at.span * size};
    tensor.memory = allocate(tensor.bytes);
    tensor.snapshot = allocate(tensor.bytes);
    memset(tensor.memory, guard_byte(dtype), tensor.bytes);
    memcpy(tensor.snapshot, tensor.memory, tensor.bytes);
    unsigned char *first = tensor.memory + GUARD_BYTES + (size_t)at.offset * size;
    if (count == 0) {
        tensor.view = mmoe_matrix(first, dtype, rows, cols);
        tensor.view.stride[0] = at.stride[1];
        tensor.view.stride[1] = at.stride[2];
        return tensor;
    }
    if (layout == RIG_SCATTERED) {
        tensor.experts = allocate((size_t)count * sizeof *tensor.experts);
        for (int64_t e = 0; e < count; e++)
            tensor.experts[e] = first + (size_t)((count - 1 - e) * at.stride[0]) * size;
        tensor.view = mmoe_stack_of(tensor.experts, dtype, count, rows, cols);
        return tensor;
    }
    tensor.view = mmoe_stack(first, dtype, count, rows, cols);
    memcpy(tensor.view.stride, at.stride, sizeof at.stride);
    return tensor;
}

void rig_tensor_free(struct rig_tensor *tensor) {
    free(tensor->experts);
    free(tensor->memory);
    free(tensor->snapshot);
    *tensor = (struct rig_tensor){0};
}

/* Calls `each` with the address and the bytes of every run of elements that lie next to one another, in contiguous
 * order. */
static void walk(const mmoe_tensor *view, void (*each)(void *context, unsigned char *run, size_t bytes),
                 void *context) {
    int64_t size = (int64_t)rig_element_bytes(view->dtype);
    bool stack = view->dims == 3;
    int64_t count = stack ? view->shape[0] : 1, rows = view->shape[stack], cols = view->shape[stack + 1];
    int64_t run = view->stride[stack + 1] == 1 && cols > 0 ? cols : 1;
    for (int64_t e = 0; e < count; e++) {
        unsigned char *matrix = view->experts ? view->experts[e] : view->data;
        int64_t skip = stack && !view->experts ? e * view->stride[0] : 0;
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < cols; j += run)
                each(context, matrix + (skip + i * view->stride[stack] + j * view->stride[stack + 1]) * size,
                     (size_t)(run * size));
    }
}

static void put_run(void *context, unsigned char *run, size_t bytes) {
    const unsigned char **next = context;
    memcpy(run, *next, bytes);
    *next += bytes;
}

void rig_tensor_put(struct rig_tensor *tensor, const void *values) {
    walk(&tensor->view, put_run, &values);
    memcpy(tensor->snapshot, tensor->memory, tensor->bytes);
}

static void poison_run(void *context, unsigned char *run, size_t bytes) {
    const int *poison = context;
    memset(run, *poison, bytes);
}

void rig_tensor_poison(struct rig_tensor *tensor, int poison) {
    walk(&tensor->view, poison_run, &poison);
    memcpy(tensor->snapshot, tensor->memory, tensor->bytes);
}

struct take {
    const struct rig_tensor *tensor;
    unsigned char *next;
};

/* Reads the run, then puts back what it was before the call. */
static void take_run(void *context, unsigned char *run, size_t bytes) {
    struct take *take = context;
    memcpy(take->next, run, bytes);
    take->next += bytes;
    memcpy(run, take->tensor->snapshot + (run - take->tensor->memory), bytes);
}

bool rig_tensor_take(struct rig_tensor *tensor, void *values) {
    struct take take = {tensor, values};
    walk(&tensor->view, take_run, &take);
    return rig_tensor_intact(tensor);
}

bool rig_tensor_intact(const struct rig_tensor *tensor) {
    return memcmp(tensor->memory, tensor->snapshot, tensor->bytes) == 0;
}
