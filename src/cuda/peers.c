/* Pairs of GPUs; see peers.h. */
#include "cuda/peers.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "kernels/call_params.h"

void mm_peers_name(char pair[MM_PAIR_BYTES], int rank, int peer, const struct mm_offer *offered) {
    snprintf(pair, MM_PAIR_BYTES, "from rank %d on GPU %s to rank %d on GPU %s", rank, offered[rank].device, peer,
             offered[peer].device);
}

/* ---- Checks ---- */

static mmoe_status check_distinct(int world, const struct mm_offer *offered) {
    for (int s = 1; s < world; s++) {
        for (int r = 0; r < s; r++) {
            if (strcmp(offered[r].device, offered[s].device) == 0) {
                return mm_fail(MMOE_UNSUPPORTED, "ranks %d and %d are both on GPU %s, expected a GPU for each rank", r,
                               s, offered[r].device);
            }
        }
    }
    return MMOE_OK;
}

static mmoe_status check_bytes(int rank, int peer, const struct mm_offer *offered) {
    return offered[peer].bytes == offered[rank].bytes
               ? MMOE_OK
               : mm_fail(MMOE_MISMATCH,
                         "the shared memory has %" PRIu64 " bytes on rank %d and %" PRIu64 " bytes on rank %d",
                         offered[rank].bytes, rank, offered[peer].bytes, peer);
}

static mmoe_status check_reach(const struct mm_gpu *gpu, int rank, int peer, const struct mm_offer *offered) {
    static const struct {
        int attribute;
        const char *what;
    } needed[] = {{MM_CU_P2P_ACCESS, "peer access"}, {MM_CU_P2P_NATIVE_ATOMICS, "native atomics"}};
    const struct mm_driver *driver = &gpu->driver;
    char pair[MM_PAIR_BYTES];
    mm_cu_device other;
    mm_peers_name(pair, rank, peer, offered);
    if (strcmp(offered[rank].device, offered[peer].device) == 0 ||
        driver->cuDeviceGetByPCIBusId(&other, offered[peer].device) != MM_CUDA_SUCCESS) {
        return MMOE_OK;
    }
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        int value = 0;
        mmoe_status status =
            MM_CU(driver, cuDeviceGetP2PAttribute, pair, &value, needed[i].attribute, gpu->device.ordinal, other);
        if (status != MMOE_OK) {
            return status;
        }
        if (!value) {
            return mm_fail(MMOE_UNSUPPORTED, "no %s %s", needed[i].what, pair);
        }
    }
    return MMOE_OK;
}

mmoe_status mm_peers_check(const struct mm_gpu *gpu, int rank, int world, const struct mm_offer *offered,
                           bool may_share) {
    mmoe_status status = may_share ? MMOE_OK : check_distinct(world, offered);
    for (int r = 0; r < world && status == MMOE_OK; r++) {
        if (r != rank) {
            status = check_bytes(rank, r, offered);
        }
        if (r != rank && status == MMOE_OK) {
            status = check_reach(gpu, rank, r, offered);
        }
    }
    return status;
}

/* ---- Adopted blocks ---- */

/* The name of the GPU that holds a block; "" when that can't be asked: it may be one that the process can't see. */
static void name_holder(const struct mm_driver *driver, mm_cu_pointer block, struct mm_offer *offer) {
    int ordinal = -1;
    mm_cu_device device;
    *offer = MM_NO_OFFER;
    if (driver->cuPointerGetAttribute(&ordinal, MM_CU_POINTER_DEVICE_ORDINAL, block) != MM_CUDA_SUCCESS ||
        driver->cuDeviceGet(&device, ordinal) != MM_CUDA_SUCCESS ||
        driver->cuDeviceGetPCIBusId(offer->device, sizeof offer->device, device) != MM_CUDA_SUCCESS) {
        offer->device[0] = '\0';
    }
}

mmoe_status mm_peers_check_adopted(const struct mm_gpu *gpu, int rank, int world, const mm_cu_pointer *blocks) {
    struct mm_offer offered[MMOE_MAX_WORLD];
    mmoe_status status = MMOE_OK;
    for (int r = 0; r < world; r++) {
        name_holder(&gpu->driver, blocks[r], &offered[r]);
    }
    for (int r = 0; r < world && status == MMOE_OK; r++) {
        if (strcmp(offered[r].device, offered[rank].device) != 0) {
            status = check_reach(gpu, rank, r, offered);
        }
    }
    return status;
}

/* ---- Trying ---- */

#define PATTERN 0xa5

static const char trying[] = "writing and reading in the memory of a peer, ";
#define TRYING_BYTES (MM_PAIR_BYTES + sizeof trying)

/* The flag of a block that `rank` alone writes. */
static mm_cu_pointer flag_of(mm_cu_pointer block, int rank) {
    return block + offsetof(struct call_control, ready) + (size_t)rank * sizeof(struct call_flag);
}

static mmoe_status queue_try(const struct mm_gpu *gpu, mm_cu_pointer flag, uint32_t *back, const char *doing) {
    const struct mm_driver *driver = &gpu->driver;
    mmoe_status status = MM_CU(driver, cuMemsetD8Async, doing, flag, PATTERN, sizeof *back, NULL);
    if (status == MMOE_OK) {
        status = MM_CU(driver, cuMemcpyDtoHAsync, doing, back, flag, sizeof *back, NULL);
    }
    return status == MMOE_OK ? MM_CU(driver, cuMemsetD8Async, doing, flag, 0, sizeof *back, NULL) : status;
}

static bool has_come(uint32_t back) {
    uint32_t pattern;
    memset(&pattern, PATTERN, sizeof pattern);
    return back == pattern;
}

/* All are tried at once. One stream keeps them in order: the first whose value has not come is the culprit. */
static mmoe_status try_all(const struct mm_gpu *gpu, int rank, int world, const mm_cu_pointer *blocks,
                           const struct mm_offer *offered, uint32_t *back) {
    char pair[MM_PAIR_BYTES], doing[TRYING_BYTES];
    for (int r = 0; r < world; r++) {
        mm_peers_name(pair, rank, r, offered);
        snprintf(doing, sizeof doing, "%s%s", trying, pair);
        mmoe_status status = r == rank ? MMOE_OK : queue_try(gpu, flag_of(blocks[r], rank), &back[r], doing);
        if (status != MMOE_OK) {
            return status;
        }
    }
    mm_cu_result result = gpu->driver.cuStreamSynchronize(NULL);
    for (int r = 0; r < world; r++) {
        mm_peers_name(pair, rank, r, offered);
        snprintf(doing, sizeof doing, "%s%s", trying, pair);
        if (r != rank && !has_come(back[r])) {
            return result != MM_CUDA_SUCCESS
                       ? mm_driver_status(&gpu->driver, result, "cuStreamSynchronize", doing)
                       : mm_fail(MMOE_SYSTEM, "%s: what was written there is not what was read back", doing);
        }
    }
    return mm_driver_status(&gpu->driver, result, "cuStreamSynchronize", "trying the memory of the peers");
}

/* Into pinned memory, so that the copies wait in line too. */
mmoe_status mm_peers_try(const struct mm_gpu *gpu, int rank, int world, const mm_cu_pointer *blocks,
                         const struct mm_offer *offered) {
    uint32_t *back;
    const size_t bytes = (size_t)world * sizeof *back;
    mmoe_status status = MM_CU(&gpu->driver, cuMemHostAlloc, "making pinned memory", (void **)&back, bytes, 0);
    if (status != MMOE_OK) {
        return status;
    }
    memset(back, 0, bytes);
    status = try_all(gpu, rank, world, blocks, offered, back);
    gpu->driver.cuMemFreeHost(back);
    return status;
}

mmoe_status mm_peers_check_unused(const struct mm_gpu *gpu, int rank, mm_cu_pointer block) {
    static const char doing[] = "looking whether a segment is used";
    uint32_t posted = 0;
    mmoe_status status =
        MM_CU(&gpu->driver, cuMemcpyDtoHAsync, doing, &posted, flag_of(block, rank), sizeof posted, NULL);
    if (status == MMOE_OK) {
        status = MM_CU(&gpu->driver, cuStreamSynchronize, doing, NULL);
    }
    return status != MMOE_OK || posted == 0
               ? status
               : mm_fail(MMOE_INVALID_ARGUMENT, "segments[%d] holds a group already, expected memory that is zero",
                         rank);
}
