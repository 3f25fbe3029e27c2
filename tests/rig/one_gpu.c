/* Ranks that share a GPU; see one_gpu.h. */
#include "rig/one_gpu.h"

#include <stdlib.h>
#include <string.h>

#include "cuda/device_memory.h"
#include "cuda/state.h"

#define LEFT_FREE 12                    /* multiprocessors */
#define OPERAND_BYTES ((size_t)1 << 30) /* of a rank */
#define STAGING_BYTES ((size_t)16 << 20)
#define ALIGN 256

struct rig_one_gpu {
    struct mm_gpu gpu;
    int world;
    struct mm_device_buffer segment[MMOE_MAX_WORLD], operands[MMOE_MAX_WORLD];
    struct rig_share share[MMOE_MAX_WORLD];
};

static mmoe_status make_share(struct rig_one_gpu *one, int rank, size_t segment_bytes) {
    const struct mm_gpu *gpu = &one->gpu;
    struct rig_share *share = &one->share[rank];
    mmoe_status status = mm_device_reserve(gpu, &one->segment[rank], segment_bytes, "a segment");
    if (status == MMOE_OK)
        status = mm_device_clear(gpu, one->segment[rank].address, segment_bytes, "clearing a segment");
    if (status == MMOE_OK)
        status = mm_device_reserve(gpu, &one->operands[rank], OPERAND_BYTES, "operands");
    if (status == MMOE_OK)
        status = MM_CU(&gpu->driver, cuStreamCreate, "making a stream", &share->stream, MM_CU_STREAM_NON_BLOCKING);
    if (status == MMOE_OK)
        status = MM_CU(&gpu->driver, cuMemHostAlloc, "pinned memory", (void **)&share->staging, STAGING_BYTES, 0);
    share->gpu = gpu;
    share->spare = gpu->device.multiprocessors - (gpu->device.multiprocessors - LEFT_FREE) / one->world;
    share->memory = mm_at(one->operands[rank].address);
    share->bytes = OPERAND_BYTES;
    return status;
}

static mmoe_status make_group(const struct rig_one_gpu *one, const mmoe_group_config *config, int rank,
                              mmoe_group **group) {
    mmoe_group_config own = *config;
    void *segments[MMOE_MAX_WORLD];
    for (int r = 0; r < one->world; r++)
        segments[r] = mm_at(one->segment[r].address);
    own.spare_multiprocessors = one->share[rank].spare;
    return mmoe_group_create_adopted(&own, rank, one->world, segments, group);
}

static mmoe_status make_all(struct rig_one_gpu *one, const mmoe_group_config *config, mmoe_group **groups) {
    const struct mm_device_wish wish = {.number = 0};
    const size_t bytes = mmoe_group_segment_bytes(config, one->world);
    mmoe_status status = mm_gpu_open(&one->gpu, &wish);
    if (status == MMOE_OK)
        status = mm_gpu_enter(&one->gpu);
    if (status != MMOE_OK)
        return status;
    for (int r = 0; r < one->world && status == MMOE_OK; r++)
        status = make_share(one, r, bytes);
    for (int r = 0; r < one->world && status == MMOE_OK; r++)
        status = make_group(one, config, r, &groups[r]);
    mm_gpu_leave(&one->gpu);
    return status;
}

struct rig_one_gpu *rig_one_gpu_open(const struct rig_world *world, mmoe_group **groups, struct rig_share **shares) {
    struct rig_one_gpu *one = calloc(1, sizeof *one);
    one->world = world->world;
    for (int r = 0; r < one->world; r++)
        shares[r] = &one->share[r];
    if (make_all(one, &world->config, groups) == MMOE_OK)
        return one;
    rig_one_gpu_close(one);
    return NULL;
}

void rig_one_gpu_close(struct rig_one_gpu *one) {
    if (one->gpu.context != NULL && mm_gpu_enter(&one->gpu) == MMOE_OK) {
        for (int r = 0; r < one->world; r++) {
            if (one->share[r].stream != NULL)
                one->gpu.driver.cuStreamDestroy(one->share[r].stream);
            if (one->share[r].staging != NULL)
                one->gpu.driver.cuMemFreeHost(one->share[r].staging);
            mm_device_free(&one->gpu, &one->operands[r]);
            mm_device_free(&one->gpu, &one->segment[r]);
        }
        mm_gpu_leave(&one->gpu);
        mm_gpu_close(&one->gpu);
    }
    free(one);
}

/* ---- Copies ---- */

/* One copy by way of pinned memory: copies of other memory may wait for whatever runs in the context. */
static mmoe_status copy(const struct rig_share *share, void *to, const void *from, size_t bytes, bool in) {
    const struct mm_driver *driver = &share->gpu->driver;
    if (in)
        memcpy(share->staging, from, bytes);
    mmoe_status status = in ? MM_CU(driver, cuMemcpyHtoDAsync, "copying in", (mm_cu_pointer)(uintptr_t)to,
                                    share->staging, bytes, share->stream)
                            : MM_CU(driver, cuMemcpyDtoHAsync, "copying out", share->staging,
                                    (mm_cu_pointer)(uintptr_t)from, bytes, share->stream);
    if (status == MMOE_OK)
        status = MM_CU(driver, cuStreamSynchronize, "copying", share->stream);
    if (status == MMOE_OK && !in)
        memcpy(to, share->staging, bytes);
    return status;
}

static mmoe_status copy_in_pieces(const struct rig_share *share, void *to, const void *from, size_t bytes, bool in) {
    mmoe_status status = mm_gpu_enter(share->gpu);
    if (status != MMOE_OK)
        return status;
    for (size_t done = 0; done < bytes && status == MMOE_OK; done += STAGING_BYTES) {
        const size_t piece = bytes - done < STAGING_BYTES ? bytes - done : STAGING_BYTES;
        status = copy(share, (char *)to + done, (const char *)from + done, piece, in);
    }
    mm_gpu_leave(share->gpu);
    return status;
}

mmoe_status rig_share_write(const struct rig_share *share, void *to, const void *from, size_t bytes) {
    return copy_in_pieces(share, to, from, bytes, true);
}

mmoe_status rig_share_read(const struct rig_share *share, void *to, const void *from, size_t bytes) {
    return copy_in_pieces(share, to, from, bytes, false);
}

/* ---- Memory ---- */

void *rig_share_take(struct rig_share *share, size_t bytes) {
    const size_t whole = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    if (whole > share->bytes - share->used)
        return NULL;
    void *piece = share->memory + share->used;
    share->used += whole;
    share->placed++;
    return piece;
}

void rig_share_give(struct rig_share *share) {
    if (--share->placed == 0)
        share->used = 0;
}
