/* A GPU from opening to closing; see gpu.h. */
#include "cuda/gpu.h"

#include "base/memory.h"
#include "cuda/images.h"

/* A driver loads what compilers of its own major version made, whatever the minor one. */
int mm_gpu_driver_needed(void) {
    const int toolkit = mm_images_toolkit / 1000 * 1000;
    return toolkit > MM_DRIVER_VERSION_NEEDED ? toolkit : MM_DRIVER_VERSION_NEEDED;
}

mmoe_status mm_gpu_check_images(const struct mm_driver *driver) {
    if (mm_images[0].name != NULL || driver->finds_kernels_by_name) {
        return MMOE_OK;
    }
    return mm_fail(MMOE_UNSUPPORTED, "built without nvcc: this library holds no kernels for a GPU");
}

static int count_modules(const struct mm_driver *driver) {
    int count = 0;
    while (!driver->finds_kernels_by_name && mm_images[count].name != NULL) {
        count++;
    }
    return count > 0 ? count : 1;
}

/* The context is current. */
static mmoe_status load_modules(struct mm_gpu *gpu) {
    const int count = count_modules(&gpu->driver);
    mmoe_status status = mm_alloc_zero((void **)&gpu->modules, (size_t)count * sizeof *gpu->modules, "the kernels");
    while (status == MMOE_OK && gpu->module_count < count) {
        const void *image = gpu->driver.finds_kernels_by_name ? NULL : mm_images[gpu->module_count].data;
        status = MM_CU(&gpu->driver, cuModuleLoadData, "loading kernels", &gpu->modules[gpu->module_count], image);
        gpu->module_count += status == MMOE_OK;
    }
    return status;
}

/* The device's own pool may let an allocation wait for whoever freed there last, in any stream of the process: for what
 * may wait for this rank's call on another one. */
static mmoe_status make_pool(struct mm_gpu *gpu) {
    const struct mm_cu_pool_kind kind = {.type = MM_CU_MEMORY_PINNED,
                                         .location = {MM_CU_LOCATION_DEVICE, gpu->device.ordinal}};
    return MM_CU(&gpu->driver, cuMemPoolCreate, "making a pool of memory", &gpu->pool, &kind);
}

static mmoe_status start(struct mm_gpu *gpu, const struct mm_device_wish *wish) {
    mmoe_status status = mm_gpu_check_images(&gpu->driver);
    if (status == MMOE_OK) {
        status = mm_device_choose(&gpu->driver, wish, &gpu->device);
    }
    if (status == MMOE_OK) {
        status = MM_CU(&gpu->driver, cuDevicePrimaryCtxRetain, "taking the context of the GPU", &gpu->context,
                       gpu->device.ordinal);
    }
    if (status == MMOE_OK) {
        status = mm_gpu_enter(gpu);
    }
    if (status == MMOE_OK) {
        status = load_modules(gpu);
        if (status == MMOE_OK) {
            status = make_pool(gpu);
        }
        mm_gpu_leave(gpu);
    }
    return status;
}

mmoe_status mm_gpu_open(struct mm_gpu *gpu, const struct mm_device_wish *wish) {
    *gpu = (struct mm_gpu){0};
    mmoe_status status = mm_driver_open(&gpu->driver, mm_gpu_driver_needed());
    if (status == MMOE_OK) {
        status = start(gpu, wish);
    }
    if (status != MMOE_OK) {
        mm_gpu_close(gpu);
    }
    return status;
}

/* Results of tear-down calls change nothing: what they would free goes with the process. */
void mm_gpu_close(struct mm_gpu *gpu) {
    if (gpu->module_count > 0 && gpu->driver.cuCtxPushCurrent(gpu->context) == MM_CUDA_SUCCESS) {
        if (gpu->pool != NULL) {
            gpu->driver.cuMemPoolDestroy(gpu->pool);
        }
        for (int i = 0; i < gpu->module_count; i++) {
            gpu->driver.cuModuleUnload(gpu->modules[i]);
        }
        mm_gpu_leave(gpu);
    }
    mm_free(&gpu->modules);
    if (gpu->context != NULL) {
        gpu->driver.cuDevicePrimaryCtxRelease(gpu->device.ordinal);
    }
    mm_driver_close(&gpu->driver);
    *gpu = (struct mm_gpu){0};
}

mmoe_status mm_gpu_enter(const struct mm_gpu *gpu) {
    return MM_CU(&gpu->driver, cuCtxPushCurrent, "making the context of the GPU current", gpu->context);
}

/* Fails only when nothing was pushed. */
void mm_gpu_leave(const struct mm_gpu *gpu) {
    mm_cu_context popped;
    gpu->driver.cuCtxPopCurrent(&popped);
}
