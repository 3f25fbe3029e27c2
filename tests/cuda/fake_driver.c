/* A libcuda.so for tests: it answers as the definitions below say, which CMakeLists.txt sets for each of the faults
 * that the host side must tell in a sentence. Functions that no test needs are in fake_rest.c. */
#include <stdio.h>
#include <string.h>

#include "cuda/driver_api.h"

#ifndef FAKE_VERSION
#define FAKE_VERSION 13000
#endif
#ifndef FAKE_INIT
#define FAKE_INIT MM_CUDA_SUCCESS
#endif
#ifndef FAKE_CAPABILITIES /* of each device, 10 * major + minor */
#define FAKE_CAPABILITIES 90
#endif
#ifndef FAKE_CURRENT /* device of the current context; -1: there is none */
#define FAKE_CURRENT (-1)
#endif
#ifndef FAKE_ALLOC
#define FAKE_ALLOC MM_CUDA_SUCCESS
#endif
#ifndef FAKE_LOAD
#define FAKE_LOAD MM_CUDA_SUCCESS
#endif

static const int capabilities[] = {FAKE_CAPABILITIES};
#define DEVICES ((int)(sizeof capabilities / sizeof capabilities[0]))

/* Contexts, pushes, modules and allocations that live. */
static int living;

int fake_living(void);
int fake_living(void) {
    return living;
}

#define ANSWER(name, ...)                                                                                              \
    mm_cu_result name(__VA_ARGS__);                                                                                    \
    mm_cu_result name(__VA_ARGS__)

#ifdef FAKE_BY_NAME
ANSWER(megamoe_kernels_by_name, void) {
    return MM_CUDA_SUCCESS;
}
#endif

ANSWER(cuInit, unsigned flags) {
    return flags == 0 ? FAKE_INIT : MM_CUDA_ERROR_INVALID_VALUE;
}

ANSWER(cuDriverGetVersion, int *version) {
    *version = FAKE_VERSION;
    return MM_CUDA_SUCCESS;
}

ANSWER(cuGetErrorName, mm_cu_result result, const char **name) {
    *name = result == MM_CUDA_ERROR_NO_DEVICE ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_FAKE";
    return MM_CUDA_SUCCESS;
}

ANSWER(cuGetErrorString, mm_cu_result result, const char **text) {
    *text = "a fake error";
    return result == 1000 ? MM_CUDA_ERROR_INVALID_VALUE : MM_CUDA_SUCCESS;
}

ANSWER(cuDeviceGetCount, int *count) {
    *count = DEVICES;
    return MM_CUDA_SUCCESS;
}

ANSWER(cuDeviceGet, mm_cu_device *device, int ordinal) {
    *device = ordinal;
    return ordinal < DEVICES ? MM_CUDA_SUCCESS : MM_CUDA_ERROR_INVALID_DEVICE;
}

ANSWER(cuDeviceGetName, char *name, int bytes, mm_cu_device device) {
    snprintf(name, (size_t)bytes, "FAKE %d", capabilities[device]);
    return MM_CUDA_SUCCESS;
}

ANSWER(cuDeviceGetPCIBusId, char *id, int bytes, mm_cu_device device) {
    snprintf(id, (size_t)bytes, "0000:%02X:00.0", device);
    return MM_CUDA_SUCCESS;
}

ANSWER(cuDeviceTotalMem_v2, size_t *bytes, mm_cu_device device) {
    *bytes = ((size_t)device + 1) << 30;
    return MM_CUDA_SUCCESS;
}

ANSWER(cuDeviceGetAttribute, int *value, int attribute, mm_cu_device device) {
    *value = attribute == MM_CU_COMPUTE_CAPABILITY_MAJOR   ? capabilities[device] / 10
             : attribute == MM_CU_COMPUTE_CAPABILITY_MINOR ? capabilities[device] % 10
                                                           : 132;
    return MM_CUDA_SUCCESS;
}

/* Access between neighbours alone; the others are not told. */
ANSWER(cuDeviceGetP2PAttribute, int *value, int attribute, mm_cu_device from, mm_cu_device to) {
    *value = attribute == MM_CU_P2P_PERFORMANCE_RANK ? 0 : from - to == 1 || to - from == 1;
    return from + to == 2 ? MM_CUDA_ERROR_INVALID_DEVICE : MM_CUDA_SUCCESS;
}

ANSWER(cuCtxGetDevice, mm_cu_device *device) {
    *device = FAKE_CURRENT;
    return FAKE_CURRENT < 0 ? MM_CUDA_ERROR_INVALID_CONTEXT : MM_CUDA_SUCCESS;
}

ANSWER(cuDevicePrimaryCtxRetain, mm_cu_context *context, mm_cu_device device) {
    *context = (mm_cu_context)(uintptr_t)(device + 1);
    living++;
    return MM_CUDA_SUCCESS;
}

ANSWER(cuDevicePrimaryCtxRelease_v2, mm_cu_device device) {
    (void)device;
    living--;
    return MM_CUDA_SUCCESS;
}

ANSWER(cuCtxPushCurrent_v2, mm_cu_context context) {
    living++;
    return context != NULL ? MM_CUDA_SUCCESS : MM_CUDA_ERROR_INVALID_CONTEXT;
}

ANSWER(cuCtxPopCurrent_v2, mm_cu_context *context) {
    *context = NULL;
    living--;
    return MM_CUDA_SUCCESS;
}

ANSWER(cuModuleLoadData, mm_cu_module *module, const void *image) {
    (void)image;
    *module = (mm_cu_module)(uintptr_t)1;
    living += FAKE_LOAD == MM_CUDA_SUCCESS;
    return FAKE_LOAD;
}

ANSWER(cuModuleUnload, mm_cu_module module) {
    (void)module;
    living--;
    return MM_CUDA_SUCCESS;
}

ANSWER(cuModuleGetFunction, mm_cu_function *function, mm_cu_module module, const char *name) {
    (void)module;
    *function = (mm_cu_function)(uintptr_t)1;
    return strcmp(name, "known") == 0 ? MM_CUDA_SUCCESS : MM_CUDA_ERROR_NOT_FOUND;
}

ANSWER(cuFuncSetAttribute, mm_cu_function function, int attribute, int value) {
    (void)function;
    return attribute == MM_CU_MAX_DYNAMIC_SHARED_MEMORY && value <= 232448 ? MM_CUDA_SUCCESS
                                                                           : MM_CUDA_ERROR_INVALID_VALUE;
}

/* Succeeds only for what the test asks: see launches in device.c. */
ANSWER(cuLaunchKernelEx, const struct mm_cu_launch_config *config, mm_cu_function function, void **parameters,
       void **extra) {
    (void)function;
    const struct mm_cu_launch_attribute *attributes = config->attributes;
    const int good = config->grid_x == 132 && config->grid_y == 1 && config->block_x == 384 && config->block_z == 1 &&
                     config->shared_bytes == 1024 && config->attribute_count == 2 && extra == NULL &&
                     attributes[0].id == MM_CU_LAUNCH_CLUSTER_DIMENSION && attributes[0].value.cluster.x == 2 &&
                     attributes[0].value.cluster.z == 1 &&
                     attributes[1].id == MM_CU_LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION &&
                     attributes[1].value.programmatic_serialization == 1 && *(const int *)parameters[0] == 42;
    return good ? MM_CUDA_SUCCESS : MM_CUDA_ERROR_INVALID_VALUE;
}

ANSWER(cuMemGetInfo_v2, size_t *available, size_t *total) {
    *available = 1000;
    *total = 2000;
    return MM_CUDA_SUCCESS;
}

ANSWER(cuMemAlloc_v2, mm_cu_pointer *pointer, size_t bytes) {
    *pointer = bytes;
    living += FAKE_ALLOC == MM_CUDA_SUCCESS;
    return FAKE_ALLOC;
}

ANSWER(cuMemFree_v2, mm_cu_pointer pointer) {
    (void)pointer;
    living--;
    return MM_CUDA_SUCCESS;
}
