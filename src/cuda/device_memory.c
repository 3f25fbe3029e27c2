/* Device memory; see device_memory.h. */
#include "cuda/device_memory.h"

static mmoe_status complain_memory(const struct mm_gpu *gpu, size_t bytes, const char *what) {
    size_t available = 0, total = 0;
    mmoe_status status =
        MM_CU(&gpu->driver, cuMemGetInfo, "asking how much memory of the GPU is free", &available, &total);
    if (status != MMOE_OK) {
        return status;
    }
    return mm_fail(MMOE_OUT_OF_MEMORY, "no memory on GPU %d, %s, for %s: %zu bytes asked, %zu of %zu free",
                   gpu->device.ordinal, gpu->device.name, what, bytes, available, total);
}

mmoe_status mm_device_memory_status(const struct mm_gpu *gpu, mm_cu_result result, const char *function, size_t bytes,
                                    const char *what) {
    return result == MM_CUDA_ERROR_OUT_OF_MEMORY ? complain_memory(gpu, bytes, what)
                                                 : mm_driver_status(&gpu->driver, result, function, what);
}

mmoe_status mm_device_reserve(const struct mm_gpu *gpu, struct mm_device_buffer *buffer, size_t bytes,
                              const char *what) {
    if (buffer->bytes >= bytes) {
        return MMOE_OK;
    }
    mm_device_free(gpu, buffer);
    mm_cu_result result = gpu->driver.cuMemAlloc(&buffer->address, bytes);
    if (result == MM_CUDA_SUCCESS) {
        buffer->bytes = bytes;
        return MMOE_OK;
    }
    buffer->address = 0;
    return mm_device_memory_status(gpu, result, "cuMemAlloc", bytes, what);
}

/* Waits for what still uses the memory. */
void mm_device_free(const struct mm_gpu *gpu, struct mm_device_buffer *buffer) {
    if (buffer->address != 0) {
        gpu->driver.cuMemFree(buffer->address);
    }
    *buffer = (struct mm_device_buffer){0};
}

/* What has been freed is at hand for certain when the stream has come to it. */
static mm_cu_result allocate_in(const struct mm_gpu *gpu, mm_cu_stream stream, mm_cu_pointer *address, size_t bytes) {
    const struct mm_driver *driver = &gpu->driver;
    mm_cu_result result = driver->cuMemAllocFromPoolAsync(address, bytes, gpu->pool, stream);
    if (result != MM_CUDA_ERROR_OUT_OF_MEMORY) {
        return result;
    }
    result = driver->cuStreamSynchronize(stream);
    return result == MM_CUDA_SUCCESS ? driver->cuMemAllocFromPoolAsync(address, bytes, gpu->pool, stream) : result;
}

mmoe_status mm_device_reserve_in(const struct mm_gpu *gpu, mm_cu_stream stream, struct mm_device_buffer *buffer,
                                 size_t bytes, const char *what) {
    if (buffer->bytes >= bytes) {
        return MMOE_OK;
    }
    mm_device_free_in(gpu, stream, buffer);
    mm_cu_pointer address;
    mm_cu_result result = allocate_in(gpu, stream, &address, bytes);
    if (result == MM_CUDA_SUCCESS) {
        *buffer = (struct mm_device_buffer){address, bytes};
        return MMOE_OK;
    }
    return mm_device_memory_status(gpu, result, "cuMemAllocFromPoolAsync", bytes, what);
}

void mm_device_free_in(const struct mm_gpu *gpu, mm_cu_stream stream, struct mm_device_buffer *buffer) {
    if (buffer->address != 0) {
        gpu->driver.cuMemFreeAsync(buffer->address, stream);
    }
    *buffer = (struct mm_device_buffer){0};
}

mmoe_status mm_device_clear(const struct mm_gpu *gpu, mm_cu_pointer memory, size_t bytes, const char *doing) {
    mmoe_status status = MM_CU(&gpu->driver, cuMemsetD8Async, doing, memory, 0, bytes, NULL);
    return status == MMOE_OK ? MM_CU(&gpu->driver, cuStreamSynchronize, doing, NULL) : status;
}

mmoe_status mm_copy_to_device(const struct mm_gpu *gpu, mm_cu_pointer to, const void *from, size_t bytes,
                              mm_cu_stream stream, const char *doing) {
    return bytes == 0 ? MMOE_OK : MM_CU(&gpu->driver, cuMemcpyHtoDAsync, doing, to, from, bytes, stream);
}

mmoe_status mm_copy_to_host(const struct mm_gpu *gpu, void *to, mm_cu_pointer from, size_t bytes, mm_cu_stream stream,
                            const char *doing) {
    return bytes == 0 ? MMOE_OK : MM_CU(&gpu->driver, cuMemcpyDtoHAsync, doing, to, from, bytes, stream);
}
