/* Checks of tensors; see inputs.h. */
#include "cuda/inputs.h"

#include <stdio.h>

static int64_t element_bytes(const mmoe_tensor *tensor) {
    return tensor->dtype == MMOE_BF16 ? 2 : tensor->dtype == MMOE_I64 ? 8 : 4;
}

static bool is_empty(const mmoe_tensor *tensor) {
    for (int i = 0; i < tensor->dims; i++) {
        if (tensor->shape[i] == 0) {
            return true;
        }
    }
    return tensor->dims == 0;
}

mmoe_status mm_cuda_check_captured(const struct mm_cuda_input *weights, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (weights[i].tensor->experts != NULL) {
            return mm_fail(MMOE_UNSUPPORTED,
                           "%s is given by a pointer an expert in a stream that is being captured, "
                           "expected one tensor",
                           weights[i].name);
        }
    }
    return MMOE_OK;
}

void *mm_expert_data(const mmoe_tensor *tensor, int64_t expert) {
    if (tensor->experts != NULL) {
        return tensor->experts[expert];
    }
    return (char *)tensor->data + expert * tensor->stride[0] * element_bytes(tensor);
}

/* The driver knows no address that it has not handed out. */
static mmoe_status check_address(const struct mm_gpu *gpu, const char *name, const void *data) {
    int type = 0, ordinal = -1;
    const mm_cu_pointer address = (mm_cu_pointer)(uintptr_t)data;
    if (gpu->driver.cuPointerGetAttribute(&type, MM_CU_POINTER_MEMORY_TYPE, address) != MM_CUDA_SUCCESS ||
        type != MM_CU_MEMORY_DEVICE) {
        return mm_fail(MMOE_INVALID_ARGUMENT, "%s lies at %p, expected memory of GPU %d", name, data,
                       gpu->device.ordinal);
    }
    if (gpu->driver.cuPointerGetAttribute(&ordinal, MM_CU_POINTER_DEVICE_ORDINAL, address) == MM_CUDA_SUCCESS &&
        ordinal != gpu->device.ordinal) {
        return mm_fail(MMOE_INVALID_ARGUMENT, "%s lies on GPU %d, expected the group's GPU %d", name, ordinal,
                       gpu->device.ordinal);
    }
    return MMOE_OK;
}

mmoe_status mm_cuda_check_tokens(const struct mm_gpu *gpu, const char *name, const mmoe_tensor *tensor) {
    return is_empty(tensor) ? MMOE_OK : check_address(gpu, name, tensor->data);
}

/* Strides of the copy engine are positive multiples of 16 bytes. A stride over one matrix is not used. */
static mmoe_status check_strides(const char *name, const mmoe_tensor *tensor) {
    if (tensor->shape[2] > 1 && tensor->stride[2] != 1) {
        return mm_fail(MMOE_UNSUPPORTED, "%s has stride[2] %lld, expected 1 on a GPU", name,
                       (long long)tensor->stride[2]);
    }
    const int64_t multiple = 16 / element_bytes(tensor);
    for (int i = tensor->experts != NULL; i < 2; i++) {
        const int64_t stride = tensor->stride[i];
        if (tensor->shape[i] > 1 && (stride <= 0 || stride % multiple != 0)) {
            return mm_fail(MMOE_UNSUPPORTED, "%s has stride[%d] %lld, expected a positive multiple of %lld on a GPU",
                           name, i, (long long)stride, (long long)multiple);
        }
    }
    return MMOE_OK;
}

static mmoe_status check_matrix(const struct mm_gpu *gpu, const char *name, const void *data) {
    if ((uintptr_t)data % 16 != 0) {
        return mm_fail(MMOE_UNSUPPORTED, "%s lies at %p, expected a multiple of 16 on a GPU", name, data);
    }
    return check_address(gpu, name, data);
}

mmoe_status mm_cuda_check_weight(const struct mm_gpu *gpu, const char *name, const mmoe_tensor *tensor) {
    if (is_empty(tensor)) {
        return MMOE_OK;
    }
    mmoe_status status = check_strides(name, tensor);
    if (tensor->experts == NULL) {
        return status == MMOE_OK ? check_matrix(gpu, name, tensor->data) : status;
    }
    for (int64_t e = 0; e < tensor->shape[0] && status == MMOE_OK; e++) {
        char field[64];
        snprintf(field, sizeof field, "%s.experts[%lld]", name, (long long)e);
        status = check_matrix(gpu, field, tensor->experts[e]);
    }
    return status;
}

mmoe_status mm_cuda_check_inputs(const struct mm_gpu *gpu, const struct mm_cuda_input *inputs, size_t count) {
    mmoe_status status = MMOE_OK;
    for (size_t i = 0; i < count && status == MMOE_OK; i++) {
        status = inputs[i].check(gpu, inputs[i].name, inputs[i].tensor);
    }
    return status;
}
