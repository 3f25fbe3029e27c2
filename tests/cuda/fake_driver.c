/* A libcuda.so for tests: it answers as the definitions below say, which CMakeLists.txt sets for each of the faults
 * that the host side must tell in a sentence, and as the environment says, where several ranks use one driver.
 * fake_memory.c has its memory; functions that no test needs are in fake_rest.c. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

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

/* Contexts, pushes, modules, allocations and the like that live. */
static atomic_int living;

void fake_made(int objects) {
    living += objects;
}

int fake_living(void);
int fake_living(void) {
    return living;
}

/* Devices of the contexts that the calling thread has pushed. The model: the leak checker stumbles over thread-local
 * memory that libraries get when they are opened. */
static _Thread_local int pushed[8] __attribute__((tls_model("initial-exec")));
static _Thread_local int depth __attribute__((tls_model("initial-exec")));

int fake_device(void) {
    return depth > 0 ? pushed[depth - 1] : FAKE_CURRENT;
}

/* ---- What the environment says ---- */

mm_cu_result fake_failure(const char *function) {
    const char *text = getenv("FAKE_FAIL");
    char name[64];
    int device, result;
    const int fails = text != NULL && sscanf(text, "%63[^@]@%d=%d", name, &device, &result) == 3 &&
                      strcmp(name, function) == 0 && device == fake_device();
    return fails ? result : MM_CUDA_SUCCESS;
}

int fake_is_pair(const char *variable, int a, int b) {
    const char *text = getenv(variable);
    int first, second;
    return text != NULL && sscanf(text, "%d-%d", &first, &second) == 2 &&
           ((a == first && b == second) || (a == second && b == first));
}

int fake_is_device(const char *variable, int device) {
    const char *text = getenv(variable);
    return text != NULL && atoi(text) == device;
}

/* ---- The driver and its devices ---- */

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

/* With FAKE_HIDES_PEERS in the environment a process finds its own device alone. */
ANSWER(cuDeviceGetByPCIBusId, mm_cu_device *device, const char *id) {
    unsigned number;
    const int known = sscanf(id, "0000:%X:00.0", &number) == 1 && (int)number < DEVICES &&
                      (getenv("FAKE_HIDES_PEERS") == NULL || (int)number == fake_device());
    *device = known ? (int)number : -1;
    return known ? MM_CUDA_SUCCESS : MM_CUDA_ERROR_INVALID_DEVICE;
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

#ifdef FAKE_ALL_PEERS
/* All but those that the environment names. */
ANSWER(cuDeviceGetP2PAttribute, int *value, int attribute, mm_cu_device from, mm_cu_device to) {
    *value = attribute == MM_CU_P2P_ACCESS           ? !fake_is_pair("FAKE_NO_ACCESS", from, to)
             : attribute == MM_CU_P2P_NATIVE_ATOMICS ? !fake_is_pair("FAKE_NO_ATOMICS", from, to)
                                                     : 0;
    return from != to ? MM_CUDA_SUCCESS : MM_CUDA_ERROR_INVALID_DEVICE;
}
#else
/* Access between neighbours alone; the others are not told. */
ANSWER(cuDeviceGetP2PAttribute, int *value, int attribute, mm_cu_device from, mm_cu_device to) {
    *value = attribute == MM_CU_P2P_PERFORMANCE_RANK ? 0 : from - to == 1 || to - from == 1;
    return from + to == 2 ? MM_CUDA_ERROR_INVALID_DEVICE : MM_CUDA_SUCCESS;
}
#endif

/* ---- Contexts ---- */

ANSWER(cuCtxGetDevice, mm_cu_device *device) {
    *device = fake_device();
    return *device < 0 ? MM_CUDA_ERROR_INVALID_CONTEXT : MM_CUDA_SUCCESS;
}

ANSWER(cuCtxSynchronize, void) {
    return fake_device() < 0 ? MM_CUDA_ERROR_INVALID_CONTEXT : MM_CUDA_SUCCESS;
}

ANSWER(cuDevicePrimaryCtxRetain, mm_cu_context *context, mm_cu_device device) {
    *context = (mm_cu_context)(uintptr_t)(device + 1);
    fake_made(1);
    return MM_CUDA_SUCCESS;
}

ANSWER(cuDevicePrimaryCtxRelease_v2, mm_cu_device device) {
    (void)device;
    fake_made(-1);
    return MM_CUDA_SUCCESS;
}

ANSWER(cuCtxPushCurrent_v2, mm_cu_context context) {
    fake_made(1);
    pushed[depth++] = (int)(uintptr_t)context - 1;
    return context != NULL ? MM_CUDA_SUCCESS : MM_CUDA_ERROR_INVALID_CONTEXT;
}

ANSWER(cuCtxPopCurrent_v2, mm_cu_context *context) {
    *context = NULL;
    depth--;
    fake_made(-1);
    return MM_CUDA_SUCCESS;
}

/* ---- Kernels ---- */

ANSWER(cuModuleLoadData, mm_cu_module *module, const void *image) {
    (void)image;
    *module = (mm_cu_module)(uintptr_t)1;
    fake_made(FAKE_LOAD == MM_CUDA_SUCCESS);
    return FAKE_LOAD;
}

ANSWER(cuModuleUnload, mm_cu_module module) {
    (void)module;
    fake_made(-1);
    return MM_CUDA_SUCCESS;
}

ANSWER(cuModuleGetFunction, mm_cu_function *function, mm_cu_module module, const char *name) {
    (void)module;
    *function = (mm_cu_function)(uintptr_t)1;
    return strcmp(name, "known") == 0 || strncmp(name, "mm_", 3) == 0 ? MM_CUDA_SUCCESS : MM_CUDA_ERROR_NOT_FOUND;
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

/* ---- Plain memory ---- */

ANSWER(cuMemGetInfo_v2, size_t *available, size_t *total) {
    *available = 1000;
    *total = 2000;
    return MM_CUDA_SUCCESS;
}

ANSWER(cuMemAlloc_v2, mm_cu_pointer *pointer, size_t bytes) {
    *pointer = bytes;
    fake_made(FAKE_ALLOC == MM_CUDA_SUCCESS);
    return FAKE_ALLOC;
}

ANSWER(cuMemFree_v2, mm_cu_pointer pointer) {
    (void)pointer;
    fake_made(-1);
    return MM_CUDA_SUCCESS;
}

ANSWER(cuMemPoolCreate, mm_cu_pool *pool, const struct mm_cu_pool_kind *kind) {
    (void)kind;
    static int any;
    *pool = (mm_cu_pool)(void *)&any;
    fake_made(1);
    return MM_CUDA_SUCCESS;
}

ANSWER(cuMemPoolDestroy, mm_cu_pool pool) {
    (void)pool;
    fake_made(-1);
    return MM_CUDA_SUCCESS;
}

ANSWER(cuMemAllocFromPoolAsync, mm_cu_pointer *pointer, size_t bytes, mm_cu_pool pool, mm_cu_stream stream) {
    (void)pool;
    (void)stream;
    return cuMemAlloc_v2(pointer, bytes);
}

ANSWER(cuMemFreeAsync, mm_cu_pointer pointer, mm_cu_stream stream) {
    (void)stream;
    return cuMemFree_v2(pointer);
}
