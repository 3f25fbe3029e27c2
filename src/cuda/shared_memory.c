/* Blocks of shared memory; see shared_memory.h. */
#include "cuda/shared_memory.h"

#include <stdio.h>

#include "cuda/peers.h"

#define WHAT_BYTES 64

/* "the shared memory of rank 1" */
static void name_block(char what[WHAT_BYTES], int rank) {
    snprintf(what, WHAT_BYTES, "the shared memory of rank %d", rank);
}

/* ---- Mapping ---- */

static mmoe_status map_at(const struct mm_gpu *gpu, mm_cu_pointer address, size_t bytes, mm_cu_memory memory,
                          const char *doing) {
    const struct mm_cu_memory_access access = {{MM_CU_LOCATION_DEVICE, gpu->device.ordinal}, MM_CU_ACCESS_READ_WRITE};
    mmoe_status status = MM_CU(&gpu->driver, cuMemMap, doing, address, bytes, 0, memory, 0);
    if (status != MMOE_OK) {
        return status;
    }
    status = MM_CU(&gpu->driver, cuMemSetAccess, doing, address, bytes, &access, 1);
    if (status != MMOE_OK) {
        gpu->driver.cuMemUnmap(address, bytes);
    }
    return status;
}

/* At a new address, for this GPU alone. */
static mmoe_status map(const struct mm_gpu *gpu, struct mm_shared_memory *shared, int rank, mm_cu_memory memory,
                       const char *doing) {
    mm_cu_pointer address = 0;
    mmoe_status status = MM_CU(&gpu->driver, cuMemAddressReserve, doing, &address, shared->mapped_bytes, 0, 0, 0);
    if (status != MMOE_OK) {
        return status;
    }
    status = map_at(gpu, address, shared->mapped_bytes, memory, doing);
    if (status != MMOE_OK) {
        gpu->driver.cuMemAddressFree(address, shared->mapped_bytes);
        return status;
    }
    shared->base[rank] = address;
    return MMOE_OK;
}

/* ---- The own block ---- */

static struct mm_cu_memory_kind kind_on(const struct mm_gpu *gpu) {
    return (struct mm_cu_memory_kind){.type = MM_CU_MEMORY_PINNED,
                                      .handle_types = MM_CU_HANDLE_DESCRIPTOR,
                                      .location = {MM_CU_LOCATION_DEVICE, gpu->device.ordinal}};
}

/* Memory is mapped in pieces of a size that the GPU sets. */
static mmoe_status round_up(const struct mm_gpu *gpu, size_t bytes, size_t *rounded) {
    const struct mm_cu_memory_kind kind = kind_on(gpu);
    size_t piece = 0;
    mmoe_status status = MM_CU(&gpu->driver, cuMemGetAllocationGranularity, "asking in what pieces memory is mapped",
                               &piece, &kind, MM_CU_GRANULARITY_MINIMUM);
    if (status == MMOE_OK) {
        *rounded = (bytes + piece - 1) / piece * piece;
    }
    return status;
}

static mmoe_status make_offerable(const struct mm_gpu *gpu, struct mm_shared_memory *shared, size_t bytes,
                                  const char *what) {
    const struct mm_cu_memory_kind kind = kind_on(gpu);
    mmoe_status status = round_up(gpu, bytes, &shared->mapped_bytes);
    if (status != MMOE_OK) {
        return status;
    }
    mm_cu_result result = gpu->driver.cuMemCreate(&shared->own, shared->mapped_bytes, &kind, 0);
    if (result != MM_CUDA_SUCCESS) {
        shared->own = 0;
        return mm_device_memory_status(gpu, result, "cuMemCreate", shared->mapped_bytes, what);
    }
    return map(gpu, shared, shared->rank, shared->own, what);
}

static mmoe_status make_alone(const struct mm_gpu *gpu, struct mm_shared_memory *shared, size_t bytes,
                              const char *what) {
    mmoe_status status = mm_device_reserve(gpu, &shared->alone, bytes, what);
    shared->base[shared->rank] = shared->alone.address;
    return status;
}

mmoe_status mm_shared_make(const struct mm_gpu *gpu, struct mm_shared_memory *shared, int rank, int world,
                           size_t bytes) {
    char what[WHAT_BYTES];
    name_block(what, rank);
    *shared = (struct mm_shared_memory){.rank = rank, .world = world};
    mmoe_status status = world == 1 ? make_alone(gpu, shared, bytes, what) : make_offerable(gpu, shared, bytes, what);
    return status == MMOE_OK ? mm_device_clear(gpu, shared->base[rank], bytes, what) : status;
}

mmoe_status mm_shared_offer(const struct mm_gpu *gpu, const struct mm_shared_memory *shared, struct mm_offer *offer) {
    char doing[WHAT_BYTES + sizeof "offering "], what[WHAT_BYTES];
    name_block(what, shared->rank);
    snprintf(doing, sizeof doing, "offering %s", what);
    *offer = (struct mm_offer){.descriptor = -1, .bytes = shared->mapped_bytes};
    snprintf(offer->device, sizeof offer->device, "%s", gpu->device.bus_id);
    if (shared->own == 0) {
        return MMOE_OK;
    }
    return MM_CU(&gpu->driver, cuMemExportToShareableHandle, doing, &offer->descriptor, shared->own,
                 MM_CU_HANDLE_DESCRIPTOR, 0);
}

/* ---- The peers' ---- */

/* The mapping keeps the memory, so the handle can go. */
static mmoe_status map_peer(const struct mm_gpu *gpu, struct mm_shared_memory *shared, int peer,
                            const struct mm_offer *offered) {
    static const char mapping[] = "mapping the memory of a peer, ";
    char doing[MM_PAIR_BYTES + sizeof mapping], pair[MM_PAIR_BYTES];
    mm_cu_memory memory = 0;
    mm_peers_name(pair, shared->rank, peer, offered);
    snprintf(doing, sizeof doing, "%s%s", mapping, pair);
    mmoe_status status = MM_CU(&gpu->driver, cuMemImportFromShareableHandle, doing, &memory,
                               (void *)(intptr_t)offered[peer].descriptor, MM_CU_HANDLE_DESCRIPTOR);
    if (status == MMOE_OK) {
        status = map(gpu, shared, peer, memory, doing);
        gpu->driver.cuMemRelease(memory);
    }
    return status;
}

mmoe_status mm_shared_join(const struct mm_gpu *gpu, struct mm_shared_memory *shared, const struct mm_offer *offered,
                           bool share_gpus) {
    mmoe_status status = mm_peers_check(gpu, shared->rank, shared->world, offered, share_gpus);
    for (int r = 0; r < shared->world && status == MMOE_OK; r++) {
        if (r != shared->rank) {
            status = map_peer(gpu, shared, r, offered);
        }
    }
    return status == MMOE_OK ? mm_peers_try(gpu, shared->rank, shared->world, shared->base, offered) : status;
}

/* ---- Adopted ---- */

static mmoe_status check_memory(const struct mm_gpu *gpu, int rank, mm_cu_pointer block) {
    int type = 0;
    if (gpu->driver.cuPointerGetAttribute(&type, MM_CU_POINTER_MEMORY_TYPE, block) != MM_CUDA_SUCCESS ||
        type != MM_CU_MEMORY_DEVICE) {
        return mm_fail(MMOE_INVALID_ARGUMENT, "segments[%d] is 0x%llx, expected memory of a GPU", rank,
                       (unsigned long long)block);
    }
    return MMOE_OK;
}

mmoe_status mm_shared_adopt(const struct mm_gpu *gpu, struct mm_shared_memory *shared, int rank, int world,
                            void *const *blocks) {
    mmoe_status status = MMOE_OK;
    *shared = (struct mm_shared_memory){.rank = rank, .world = world, .adopted = true};
    for (int r = 0; r < world && status == MMOE_OK; r++) {
        shared->base[r] = (mm_cu_pointer)(uintptr_t)blocks[r];
        status = check_memory(gpu, r, shared->base[r]);
    }
    if (status == MMOE_OK) {
        status = mm_peers_check_adopted(gpu, rank, world, shared->base);
    }
    return status == MMOE_OK ? mm_peers_check_unused(gpu, rank, shared->base[rank]) : status;
}

/* ---- The end ---- */

/* Results of tear-down calls change nothing: what they would free goes with the process. */
void mm_shared_free(const struct mm_gpu *gpu, struct mm_shared_memory *shared) {
    if (shared->mapped_bytes > 0) {
        gpu->driver.cuCtxSynchronize();
    }
    for (int r = 0; r < shared->world; r++) {
        if (shared->mapped_bytes > 0 && shared->base[r] != 0) {
            gpu->driver.cuMemUnmap(shared->base[r], shared->mapped_bytes);
            gpu->driver.cuMemAddressFree(shared->base[r], shared->mapped_bytes);
        }
    }
    if (shared->own != 0) {
        gpu->driver.cuMemRelease(shared->own);
    }
    mm_device_free(gpu, &shared->alone);
    *shared = (struct mm_shared_memory){0};
}
