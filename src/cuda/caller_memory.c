/* Device memory for callers; see caller_memory.h. */
#include "cuda/caller_memory.h"

#include "cuda/state.h"

static const struct mm_gpu *gpu_of(const struct mmoe_group *group) {
    return &((const struct mm_cuda_group *)group->backend_state)->gpu;
}

static int device(const struct mmoe_group *group) {
    return gpu_of(group)->device.ordinal;
}

static mmoe_status make(struct mmoe_group *group, size_t bytes, void **memory) {
    const struct mm_gpu *gpu = gpu_of(group);
    struct mm_device_buffer made = {0};
    mmoe_status status = mm_gpu_enter(gpu);
    if (status == MMOE_OK) {
        status = mm_device_reserve(gpu, &made, bytes > 0 ? bytes : 1, "a caller's tensor");
        mm_gpu_leave(gpu);
    }
    *memory = mm_at(made.address);
    return status;
}

static void release(struct mmoe_group *group, void *memory) {
    const struct mm_gpu *gpu = gpu_of(group);
    struct mm_device_buffer made = {(mm_cu_pointer)(uintptr_t)memory, 0};
    if (mm_gpu_enter(gpu) == MMOE_OK) {
        mm_device_free(gpu, &made);
        mm_gpu_leave(gpu);
    }
}

/* The default stream waits for the work of all streams that block, and is awaited by them. */
static mmoe_status finish(const struct mm_gpu *gpu, mmoe_status status) {
    return status == MMOE_OK ? MM_CU(&gpu->driver, cuStreamSynchronize, "awaiting a copy", NULL) : status;
}

static mmoe_status write(struct mmoe_group *group, void *to, const void *from, size_t bytes) {
    const struct mm_gpu *gpu = gpu_of(group);
    mmoe_status status = mm_gpu_enter(gpu);
    if (status == MMOE_OK) {
        status = mm_copy_to_device(gpu, (mm_cu_pointer)(uintptr_t)to, from, bytes, NULL, "copying to the device");
        status = finish(gpu, status);
        mm_gpu_leave(gpu);
    }
    return status;
}

static mmoe_status read(struct mmoe_group *group, void *to, const void *from, size_t bytes) {
    const struct mm_gpu *gpu = gpu_of(group);
    mmoe_status status = mm_gpu_enter(gpu);
    if (status == MMOE_OK) {
        status = mm_copy_to_host(gpu, to, (mm_cu_pointer)(uintptr_t)from, bytes, NULL, "copying from the device");
        status = finish(gpu, status);
        mm_gpu_leave(gpu);
    }
    return status;
}

const struct mm_device_memory mm_cuda_device_memory = {
    .device = device, .make = make, .free = release, .write = write, .read = read};
