/* Kernels; see kernel.h. */
#include "cuda/kernel.h"

#include <stdio.h>

#define DOING_BYTES 128

/* A kernel's name tells nothing of the image it is in. */
static mm_cu_result search(const struct mm_gpu *gpu, const char *name, mm_cu_function *function) {
    mm_cu_result result = MM_CUDA_ERROR_NOT_FOUND;
    for (int i = 0; i < gpu->module_count && result == MM_CUDA_ERROR_NOT_FOUND; i++) {
        result = gpu->driver.cuModuleGetFunction(function, gpu->modules[i], name);
    }
    return result;
}

mmoe_status mm_kernel_find(const struct mm_gpu *gpu, const char *name, unsigned shared_bytes,
                           struct mm_kernel *kernel) {
    char doing[DOING_BYTES];
    *kernel = (struct mm_kernel){.name = name, .shared_bytes = shared_bytes};
    snprintf(doing, sizeof doing, "finding kernel %s", name);
    mmoe_status status =
        mm_driver_status(&gpu->driver, search(gpu, name, &kernel->function), "cuModuleGetFunction", doing);
    if (status != MMOE_OK) {
        return status;
    }
    snprintf(doing, sizeof doing, "allowing kernel %s %u bytes of shared memory", name, shared_bytes);
    return MM_CU(&gpu->driver, cuFuncSetAttribute, doing, kernel->function, MM_CU_MAX_DYNAMIC_SHARED_MEMORY,
                 (int)shared_bytes);
}

static unsigned set_attributes(const struct mm_launch *launch, struct mm_cu_launch_attribute attributes[2]) {
    unsigned count = 0;
    if (launch->cluster > 1) {
        attributes[count].id = MM_CU_LAUNCH_CLUSTER_DIMENSION;
        attributes[count].value.cluster.x = launch->cluster;
        attributes[count].value.cluster.y = 1;
        attributes[count++].value.cluster.z = 1;
    }
    if (launch->overlapping) {
        attributes[count].id = MM_CU_LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION;
        attributes[count++].value.programmatic_serialization = 1;
    }
    return count;
}

mmoe_status mm_kernel_launch(const struct mm_gpu *gpu, const struct mm_kernel *kernel, const struct mm_launch *launch,
                             const void *parameters) {
    struct mm_cu_launch_attribute attributes[2] = {0};
    const struct mm_cu_launch_config config = {
        .grid_x = launch->ctas,
        .grid_y = 1,
        .grid_z = 1,
        .block_x = launch->threads,
        .block_y = 1,
        .block_z = 1,
        .shared_bytes = kernel->shared_bytes,
        .stream = launch->stream,
        .attributes = attributes,
        .attribute_count = set_attributes(launch, attributes),
    };
    void *arguments[] = {(void *)parameters}; /* the driver only reads them */
    mm_cu_result result = gpu->driver.cuLaunchKernelEx(&config, kernel->function, arguments, NULL);
    if (result == MM_CUDA_SUCCESS) {
        return MMOE_OK;
    }
    char doing[DOING_BYTES];
    snprintf(doing, sizeof doing, "launching kernel %s with %u CTAs of %u threads in clusters of %u", kernel->name,
             launch->ctas, launch->threads, launch->cluster > 1 ? launch->cluster : 1);
    return mm_driver_status(&gpu->driver, result, "cuLaunchKernelEx", doing);
}

/* ---- Tensor maps ---- */

static int type_of(enum tensor_element element) {
    return element == TENSOR_BF16 ? MM_CU_TENSOR_BF16 : MM_CU_TENSOR_F32;
}

static int swizzle_of(enum tensor_swizzle swizzle) {
    return swizzle == TENSOR_SWIZZLE_128B ? MM_CU_SWIZZLE_128B : MM_CU_SWIZZLE_NONE;
}

mmoe_status mm_tensor_map_encode(const struct mm_gpu *gpu, const struct tensor_map_desc *description, const char *what,
                                 struct tensor_map *map) {
    static const uint32_t every_element[TENSOR_MAP_MAX_DIMS] = {1, 1, 1, 1, 1};
    mm_cu_result result = gpu->driver.cuTensorMapEncodeTiled(
        map, type_of(description->element), description->dims, description->base, description->size,
        description->stride, description->box, every_element, MM_CU_INTERLEAVE_NONE, swizzle_of(description->swizzle),
        MM_CU_PROMOTION_L2_256B, MM_CU_FILL_ZERO);
    if (result == MM_CUDA_SUCCESS) {
        return MMOE_OK;
    }
    char doing[DOING_BYTES];
    snprintf(doing, sizeof doing, "making the tensor map of %s", what);
    return mm_driver_status(&gpu->driver, result, "cuTensorMapEncodeTiled", doing);
}
