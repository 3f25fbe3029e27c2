/* Checks of one tensor view against what is expected of it. */
#include <stdio.h>

#include "api/check.h"

bool mm_tensor_is_absent(const mmoe_tensor *tensor) {
    return tensor->dims == 0 && tensor->data == NULL && tensor->experts == NULL;
}

bool mm_tensor_is_empty(const mmoe_tensor *tensor) {
    for (int i = 0; i < tensor->dims; i++) {
        if (tensor->shape[i] == 0) {
            return true;
        }
    }
    return false;
}

void mm_shape_text(int32_t dims, const int64_t *shape, char text[MM_SHAPE_BYTES]) {
    size_t used = 0;
    for (int i = 0; i < dims; i++) {
        const char *before = i == 0 ? "[" : ", ";
        used += (size_t)(shape[i] == MM_ANY
                             ? snprintf(text + used, MM_SHAPE_BYTES - used, "%sT", before)
                             : snprintf(text + used, MM_SHAPE_BYTES - used, "%s%lld", before, (long long)shape[i]));
    }
    snprintf(text + used, MM_SHAPE_BYTES - used, "]");
}

static mmoe_status check_present(const mmoe_tensor *tensor, const struct mm_expect *expect) {
    if (!mm_tensor_is_absent(tensor)) {
        return MMOE_OK;
    }
    char shape[MM_SHAPE_BYTES];
    mm_shape_text(expect->dims, expect->shape, shape);
    return mm_fail(MMOE_INVALID_ARGUMENT, "%s is absent, expected a tensor %s", expect->name, shape);
}

static mmoe_status check_dims(const mmoe_tensor *tensor, const struct mm_expect *expect) {
    if (tensor->dims == expect->dims) {
        return MMOE_OK;
    }
    return mm_fail(MMOE_INVALID_ARGUMENT, "%s has dims %d, expected %d", expect->name, tensor->dims, expect->dims);
}

static const char *dtype_name(mmoe_dtype dtype) {
    switch (dtype) {
    case MMOE_BF16:
        return "bf16";
    case MMOE_F32:
        return "fp32";
    case MMOE_I32:
        return "int32";
    case MMOE_I64:
        return "int64";
    }
    return "unknown";
}

static mmoe_status check_dtype(const mmoe_tensor *tensor, const struct mm_expect *expect) {
    int dtype = (int)tensor->dtype;
    if (dtype >= MMOE_BF16 && dtype <= MMOE_I64 && (expect->dtypes & MM_DTYPE(dtype))) {
        return MMOE_OK;
    }
    char accepted[64];
    size_t used = 0;
    for (int each = MMOE_BF16; each <= MMOE_I64; each++) {
        if (expect->dtypes & MM_DTYPE(each)) {
            used += (size_t)snprintf(accepted + used, sizeof accepted - used, "%s%s", used > 0 ? " or " : "",
                                     dtype_name(each));
        }
    }
    return mm_fail(MMOE_INVALID_ARGUMENT, "%s has dtype %d (%s), expected %s", expect->name, dtype,
                   dtype_name(tensor->dtype), accepted);
}

static mmoe_status check_shape(const mmoe_tensor *tensor, const struct mm_expect *expect) {
    bool good = true;
    for (int i = 0; i < expect->dims; i++) {
        good = good && (expect->shape[i] == MM_ANY ? tensor->shape[i] >= 0 : tensor->shape[i] == expect->shape[i]);
    }
    if (good) {
        return MMOE_OK;
    }
    char shape[MM_SHAPE_BYTES], expected[MM_SHAPE_BYTES];
    mm_shape_text(tensor->dims, tensor->shape, shape);
    mm_shape_text(expect->dims, expect->shape, expected);
    return mm_fail(MMOE_INVALID_ARGUMENT, "%s has shape %s, expected %s", expect->name, shape, expected);
}

static mmoe_status check_pointer_of(const void *data, const char *name, const char *field, mmoe_dtype dtype) {
    uintptr_t bytes = (uintptr_t)mm_dtype_bytes(dtype);
    if (data == NULL) {
        return mm_fail(MMOE_INVALID_ARGUMENT, "%s%s is NULL, expected the address of its elements", name, field);
    }
    if ((uintptr_t)data % bytes != 0) {
        return mm_fail(MMOE_INVALID_ARGUMENT, "%s%s is %p, expected a multiple of the %d bytes of an element", name,
                       field, data, (int)bytes);
    }
    return MMOE_OK;
}

/* One pointer, or one an expert; an empty tensor needs none. */
static mmoe_status check_address(const mmoe_tensor *tensor, const struct mm_expect *expect) {
    if (tensor->experts == NULL) {
        return mm_tensor_is_empty(tensor) ? MMOE_OK
                                          : check_pointer_of(tensor->data, expect->name, ".data", tensor->dtype);
    }
    if (tensor->dims != 3) {
        return mm_fail(MMOE_INVALID_ARGUMENT, "%s.experts is set, expected NULL: only a stack has experts",
                       expect->name);
    }
    if (tensor->data != NULL) {
        return mm_fail(MMOE_INVALID_ARGUMENT, "%s has both data and experts, expected one of them", expect->name);
    }
    for (int64_t i = 0; i < tensor->shape[0]; i++) {
        char field[40];
        snprintf(field, sizeof field, ".experts[%lld]", (long long)i);
        mmoe_status status = check_pointer_of(tensor->experts[i], expect->name, field, tensor->dtype);
        if (status != MMOE_OK) {
            return status;
        }
    }
    return MMOE_OK;
}

/* Byte offsets of every element fit into 64 bits: shapes and strides are up to 2^63 here. */
static mmoe_status check_reach(const mmoe_tensor *tensor, const struct mm_expect *expect) {
    __int128 reach = mm_dtype_bytes(tensor->dtype);
    for (int i = tensor->experts != NULL; i < tensor->dims && !mm_tensor_is_empty(tensor); i++) {
        __int128 stride = tensor->stride[i], elements = (stride < 0 ? -stride : stride) * (tensor->shape[i] - 1);
        reach += elements > INT64_MAX ? elements : elements * mm_dtype_bytes(tensor->dtype);
        if (reach > INT64_MAX) {
            return mm_fail(MMOE_INVALID_ARGUMENT,
                           "%s has stride[%d] %lld, expected its elements to lie within 2^63 bytes", expect->name, i,
                           (long long)tensor->stride[i]);
        }
    }
    return MMOE_OK;
}

mmoe_status mm_check_tensor(const mmoe_tensor *tensor, const struct mm_expect *expect) {
    static mmoe_status (*const checks[])(const mmoe_tensor *, const struct mm_expect *) = {
        check_present, check_dims, check_dtype, check_shape, check_address, check_reach,
    };
    mmoe_status status = MMOE_OK;
    for (size_t i = 0; i < sizeof checks / sizeof checks[0] && status == MMOE_OK; i++) {
        status = checks[i](tensor, expect);
    }
    return status;
}
