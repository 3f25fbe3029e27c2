/* Checks of what can be told from the arguments' descriptions, before anything is written.
 *
 * Each returns MMOE_OK, or MMOE_INVALID_ARGUMENT with a sentence that names the argument, its value and what was
 * expected. */
#ifndef MM_API_CHECK_H
#define MM_API_CHECK_H

#include "backend/backend.h"

/* Bytes of an element; 0 for a number that is no dtype. */
static inline int64_t mm_dtype_bytes(mmoe_dtype dtype) {
    switch (dtype) {
    case MMOE_BF16:
        return 2;
    case MMOE_F32:
    case MMOE_I32:
        return 4;
    case MMOE_I64:
        return 8;
    }
    return 0;
}

/* check_value.c: plain numbers and pointers. */
mmoe_status mm_check_range(const char *name, int64_t value, int64_t low, int64_t high);
mmoe_status mm_check_pointer(const char *name, const void *pointer, const char *expected);
mmoe_status mm_check_struct_size(const char *name, size_t given, size_t expected, const char *maker);

/* check_layer.c: a layer's configuration, by itself and in a group of these maxima. */
mmoe_status mm_check_layer(const mmoe_layer_config *config, int world);
mmoe_status mm_check_layer_in_group(const mmoe_layer_config *config, const mmoe_group_config *group, int world);
mmoe_status mm_check_row_numbers(int64_t rows, int64_t local_experts);

/* What is expected of a tensor. */
#define MM_ANY INT64_MIN /* a length that is not fixed: T */
#define MM_DTYPE(d) (1u << (d))

struct mm_expect {
    const char *name;
    int32_t dims;
    int64_t shape[3];
    unsigned dtypes; /* MM_DTYPE of each that is accepted */
};

/* check_tensor.c: dims, dtype, shape, where the data lies, alignment, reach. */
mmoe_status mm_check_tensor(const mmoe_tensor *tensor, const struct mm_expect *expect);
bool mm_tensor_is_absent(const mmoe_tensor *tensor);
bool mm_tensor_is_empty(const mmoe_tensor *tensor);

/* "[4, 63]"; MM_ANY is shown as T. */
#define MM_SHAPE_BYTES 72
void mm_shape_text(int32_t dims, const int64_t *shape, char text[MM_SHAPE_BYTES]);

/* An argument of a call. */
struct mm_argument {
    struct mm_expect expect;
    const mmoe_tensor *tensor;
    bool optional;
    bool output;
};

#define MM_MOST_ARGUMENTS 11

/* check_distinct.c: no two elements of an output share an address. */
mmoe_status mm_check_distinct(const struct mm_argument *argument);

/* check_overlap.c: outputs overlap neither inputs nor one another. `scratch` holds mm_overlap_bytes(El). */
mmoe_status mm_check_overlap(const struct mm_argument *arguments, int count, void *scratch);
size_t mm_overlap_bytes(int local_experts);

/* check_call.c: everything about the arguments of a call. */
mmoe_status mm_check_forward(struct mmoe_layer *layer, const mmoe_forward_args *args);
mmoe_status mm_check_backward(struct mmoe_layer *layer, const mmoe_backward_args *args);

/* calls.c: the stream of a call that may have been refused; NULL when nothing in `args` can be trusted. */
void *mm_stream_of_forward(const mmoe_forward_args *args);
void *mm_stream_of_backward(const mmoe_backward_args *args);

#endif
