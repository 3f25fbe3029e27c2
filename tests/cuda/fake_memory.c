/* The fake driver's memory: allocations of which only the number is kept, and memory that can be mapped by several
 * devices and processes, which is real. Faults of the latter are chosen in the environment:
 *
 *     FAKE_FAIL    see fake.h
 *     FAKE_COARSE  a device that maps memory in larger pieces than the others
 *     FAKE_LOSES   two devices, of which neither's writes reach the other's memory */
#include "fake.h"

#ifndef FAKE_LACKS_SOME

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE ((size_t)2 << 20)
#define TAIL ((size_t)4096) /* after the memory in its file: which device's it is */

/* What a handle stands for. */
struct memory {
    int file, device;
    size_t bytes;
};

struct mapping {
    unsigned char *address; /* NULL: an unused entry */
    size_t bytes;
    int device; /* whose memory it is */
    int user;   /* who may access it; -1: nobody */
};

#define MAPPINGS 256
static struct mapping mappings[MAPPINGS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *at(mm_cu_pointer address) {
    return (void *)(uintptr_t)address;
}

/* The mapping that holds an address; NULL: none. The lock is held. */
static struct mapping *find(const unsigned char *address) {
    for (int i = 0; i < MAPPINGS; i++) {
        if (mappings[i].address != NULL && address >= mappings[i].address &&
            address < mappings[i].address + mappings[i].bytes) {
            return &mappings[i];
        }
    }
    return NULL;
}

static struct mapping find_copy(mm_cu_pointer address) {
    pthread_mutex_lock(&lock);
    const struct mapping *found = find(at(address));
    struct mapping copy = found != NULL ? *found : (struct mapping){.address = NULL};
    pthread_mutex_unlock(&lock);
    return copy;
}

/* ---- Memory that can be shared ---- */

ANSWER(cuMemGetAllocationGranularity, size_t *bytes, const struct mm_cu_memory_kind *kind, int option) {
    *bytes = fake_is_device("FAKE_COARSE", kind->location.id) ? 2 * PIECE : PIECE;
    return option == MM_CU_GRANULARITY_MINIMUM ? fake_failure(__func__) : MM_CUDA_ERROR_INVALID_VALUE;
}

static mm_cu_result make_handle(int file, int device, size_t bytes, mm_cu_memory *handle) {
    struct memory *memory = malloc(sizeof *memory);
    if (memory == NULL) {
        close(file);
        return MM_CUDA_ERROR_OUT_OF_MEMORY;
    }
    *memory = (struct memory){file, device, bytes};
    *handle = (mm_cu_memory)(uintptr_t)memory;
    fake_made(1);
    return MM_CUDA_SUCCESS;
}

ANSWER(cuMemCreate, mm_cu_memory *handle, size_t bytes, const struct mm_cu_memory_kind *kind,
       unsigned long long flags) {
    const int device = kind->location.id;
    const mm_cu_result failure = fake_failure(__func__);
    const int legal = kind->type == MM_CU_MEMORY_PINNED && kind->handle_types == MM_CU_HANDLE_DESCRIPTOR &&
                      kind->location.type == MM_CU_LOCATION_DEVICE && bytes % PIECE == 0 && flags == 0;
    if (failure != MM_CUDA_SUCCESS || !legal) {
        return legal ? failure : MM_CUDA_ERROR_INVALID_VALUE;
    }
    int file = memfd_create("fake GPU memory", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, (off_t)(bytes + TAIL)) != 0 ||
        pwrite(file, &device, sizeof device, (off_t)bytes) != (ssize_t)sizeof device) {
        return MM_CUDA_ERROR_OUT_OF_MEMORY;
    }
    return make_handle(file, device, bytes, handle);
}

ANSWER(cuMemRelease, mm_cu_memory handle) {
    struct memory *memory = at(handle);
    close(memory->file);
    free(memory);
    fake_made(-1);
    return MM_CUDA_SUCCESS;
}

ANSWER(cuMemExportToShareableHandle, void *descriptor, mm_cu_memory handle, int handle_type, unsigned long long flags) {
    const struct memory *memory = at(handle);
    const mm_cu_result failure = fake_failure(__func__);
    if (failure != MM_CUDA_SUCCESS) {
        return failure;
    }
    *(int *)descriptor = dup(memory->file);
    return handle_type == MM_CU_HANDLE_DESCRIPTOR && flags == 0 ? MM_CUDA_SUCCESS : MM_CUDA_ERROR_INVALID_VALUE;
}

ANSWER(cuMemImportFromShareableHandle, mm_cu_memory *handle, void *descriptor, int handle_type) {
    const mm_cu_result failure = fake_failure(__func__);
    struct stat status;
    int device;
    const int file = failure == MM_CUDA_SUCCESS ? dup((int)(intptr_t)descriptor) : -1;
    if (file < 0 || fstat(file, &status) != 0 || handle_type != MM_CU_HANDLE_DESCRIPTOR) {
        return failure != MM_CUDA_SUCCESS ? failure : MM_CUDA_ERROR_INVALID_VALUE;
    }
    const size_t bytes = (size_t)status.st_size - TAIL;
    return pread(file, &device, sizeof device, (off_t)bytes) == (ssize_t)sizeof device
               ? make_handle(file, device, bytes, handle)
               : MM_CUDA_ERROR_INVALID_VALUE;
}

ANSWER(cuMemAddressReserve, mm_cu_pointer *address, size_t bytes, size_t alignment, mm_cu_pointer wished,
       unsigned long long flags) {
    const mm_cu_result failure = fake_failure(__func__);
    if (failure != MM_CUDA_SUCCESS || alignment != 0 || wished != 0 || flags != 0) {
        return failure != MM_CUDA_SUCCESS ? failure : MM_CUDA_ERROR_INVALID_VALUE;
    }
    void *reserved = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    *address = (mm_cu_pointer)(uintptr_t)reserved;
    fake_made(reserved != MAP_FAILED);
    return reserved != MAP_FAILED ? MM_CUDA_SUCCESS : MM_CUDA_ERROR_OUT_OF_MEMORY;
}

ANSWER(cuMemAddressFree, mm_cu_pointer address, size_t bytes) {
    munmap(at(address), bytes);
    fake_made(-1);
    return MM_CUDA_SUCCESS;
}

static mm_cu_result note_mapping(unsigned char *address, size_t bytes, int device) {
    mm_cu_result result = MM_CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MAPPINGS && result != MM_CUDA_SUCCESS; i++) {
        if (mappings[i].address == NULL) {
            mappings[i] = (struct mapping){address, bytes, device, -1};
            result = MM_CUDA_SUCCESS;
        }
    }
    pthread_mutex_unlock(&lock);
    return result;
}

ANSWER(cuMemMap, mm_cu_pointer address, size_t bytes, size_t offset, mm_cu_memory handle, unsigned long long flags) {
    const struct memory *memory = at(handle);
    const mm_cu_result failure = fake_failure(__func__);
    if (failure != MM_CUDA_SUCCESS || bytes != memory->bytes || offset != 0 || flags != 0) {
        return failure != MM_CUDA_SUCCESS ? failure : MM_CUDA_ERROR_INVALID_VALUE;
    }
    if (mmap(at(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, memory->file, 0) == MAP_FAILED) {
        return MM_CUDA_ERROR_UNKNOWN;
    }
    fake_made(1);
    return note_mapping(at(address), bytes, memory->device);
}

ANSWER(cuMemSetAccess, mm_cu_pointer address, size_t bytes, const struct mm_cu_memory_access *access, size_t count) {
    const mm_cu_result failure = fake_failure(__func__);
    const int legal = count == 1 && access->location.type == MM_CU_LOCATION_DEVICE &&
                      access->flags == MM_CU_ACCESS_READ_WRITE &&
                      mprotect(at(address), bytes, PROT_READ | PROT_WRITE) == 0;
    if (failure != MM_CUDA_SUCCESS || !legal) {
        return failure != MM_CUDA_SUCCESS ? failure : MM_CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_lock(&lock);
    find(at(address))->user = access->location.id;
    pthread_mutex_unlock(&lock);
    return MM_CUDA_SUCCESS;
}

ANSWER(cuMemUnmap, mm_cu_pointer address, size_t bytes) {
    pthread_mutex_lock(&lock);
    struct mapping *found = find(at(address));
    const int known = found != NULL && found->address == at(address) && found->bytes == bytes;
    if (known) {
        found->address = NULL;
        mmap(at(address), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    }
    pthread_mutex_unlock(&lock);
    fake_made(-known);
    return known ? MM_CUDA_SUCCESS : MM_CUDA_ERROR_INVALID_VALUE;
}

/* ---- Copies and fills: of such memory alone, the rest has no contents ---- */

static mm_cu_result check_access(const struct mapping *mapping, const char *function) {
    const mm_cu_result failure = fake_failure(function);
    if (failure != MM_CUDA_SUCCESS) {
        return failure;
    }
    return mapping->address == NULL || mapping->user == fake_device() ? MM_CUDA_SUCCESS : MM_CUDA_ERROR_INVALID_VALUE;
}

ANSWER(cuMemsetD8Async, mm_cu_pointer to, unsigned char value, size_t bytes, mm_cu_stream stream) {
    const struct mapping mapping = find_copy(to);
    const mm_cu_result result = check_access(&mapping, __func__);
    (void)stream;
    if (result == MM_CUDA_SUCCESS && mapping.address != NULL &&
        !fake_is_pair("FAKE_LOSES", fake_device(), mapping.device)) {
        memset(at(to), value, bytes);
    }
    return result;
}

ANSWER(cuMemcpyDtoHAsync_v2, void *to, mm_cu_pointer from, size_t bytes, mm_cu_stream stream) {
    const struct mapping mapping = find_copy(from);
    const mm_cu_result result = check_access(&mapping, __func__);
    (void)stream;
    if (result == MM_CUDA_SUCCESS && mapping.address != NULL) {
        memcpy(to, at(from), bytes);
    }
    return result;
}

ANSWER(cuMemcpyHtoDAsync_v2, mm_cu_pointer to, const void *from, size_t bytes, mm_cu_stream stream) {
    const struct mapping mapping = find_copy(to);
    const mm_cu_result result = check_access(&mapping, __func__);
    (void)stream;
    if (result == MM_CUDA_SUCCESS && mapping.address != NULL) {
        memcpy(at(to), from, bytes);
    }
    return result;
}

ANSWER(cuMemHostAlloc, void **pointer, size_t bytes, unsigned flags) {
    const mm_cu_result failure = flags == 0 ? fake_failure(__func__) : MM_CUDA_ERROR_INVALID_VALUE;
    *pointer = failure == MM_CUDA_SUCCESS ? calloc(1, bytes) : NULL;
    fake_made(*pointer != NULL);
    return failure;
}

ANSWER(cuMemFreeHost, void *pointer) {
    free(pointer);
    fake_made(-1);
    return MM_CUDA_SUCCESS;
}

ANSWER(cuPointerGetAttribute, void *value, int attribute, mm_cu_pointer pointer) {
    const struct mapping mapping = find_copy(pointer);
    *(int *)value = attribute == MM_CU_POINTER_MEMORY_TYPE ? MM_CU_MEMORY_DEVICE : mapping.device;
    return mapping.address != NULL ? MM_CUDA_SUCCESS : MM_CUDA_ERROR_INVALID_VALUE;
}

/* ---- Streams and events ---- */

ANSWER(cuStreamSynchronize, mm_cu_stream stream) {
    (void)stream;
    return fake_failure(__func__);
}

ANSWER(cuStreamIsCapturing, mm_cu_stream stream, int *status) {
    (void)stream;
    *status = MM_CU_CAPTURE_NONE;
    return MM_CUDA_SUCCESS;
}

ANSWER(cuStreamCreate, mm_cu_stream *stream, unsigned flags) {
    (void)flags;
    *stream = (mm_cu_stream)(uintptr_t)1;
    fake_made(1);
    return MM_CUDA_SUCCESS;
}

ANSWER(cuStreamDestroy_v2, mm_cu_stream stream) {
    (void)stream;
    fake_made(-1);
    return MM_CUDA_SUCCESS;
}

ANSWER(cuEventCreate, mm_cu_event *event, unsigned flags) {
    (void)flags;
    *event = (mm_cu_event)(uintptr_t)1;
    fake_made(1);
    return MM_CUDA_SUCCESS;
}

ANSWER(cuEventDestroy_v2, mm_cu_event event) {
    (void)event;
    fake_made(-1);
    return MM_CUDA_SUCCESS;
}

#endif
