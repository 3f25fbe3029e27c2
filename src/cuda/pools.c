/* Device memory that grows with the demand; see pools.h. */
#include "cuda/pools.h"

static mmoe_status put_aside(struct mm_cuda_group *cuda, struct mm_device_buffer *buffer) {
    struct mm_cuda_outgrown *outgrown;
    mmoe_status status = mm_alloc((void **)&outgrown, sizeof *outgrown, "the note of a buffer that graphs use");
    if (status == MMOE_OK) {
        *outgrown = (struct mm_cuda_outgrown){*buffer, cuda->outgrown};
        cuda->outgrown = outgrown;
        *buffer = (struct mm_device_buffer){0};
    }
    return status;
}

mmoe_status mm_cuda_reserve(struct mm_cuda_group *cuda, mm_cu_stream stream, struct mm_device_buffer *buffer,
                            size_t bytes, const char *what) {
    const bool in_use = cuda->graphs && buffer->address != 0 && buffer->bytes < bytes;
    mmoe_status status = in_use ? put_aside(cuda, buffer) : MMOE_OK;
    return status == MMOE_OK ? mm_device_reserve_in(&cuda->gpu, stream, buffer, bytes, what) : status;
}

mmoe_status mm_cuda_pools_reserve(struct mm_cuda_group *cuda, mm_cu_stream stream,
                                  const struct mm_cuda_pool_bytes *bytes) {
    struct mm_cuda_pools *pools = &cuda->pools;
    const struct {
        struct mm_device_buffer *buffer;
        size_t bytes;
        const char *what;
    } all[] = {
        {&pools->x, bytes->x, "the token rows"},
        {&pools->dy, bytes->dy, "the gradient rows"},
        {&pools->gate_up, bytes->gate_up, "the gate and up rows"},
        {&pools->h, bytes->h, "the activation rows"},
        {&pools->dgrad, bytes->dgrad, "the gate and up gradient rows"},
        {&pools->dw_parts, bytes->dw_parts, "the parts of the router weights' gradients"},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        mmoe_status status = mm_cuda_reserve(cuda, stream, all[i].buffer, all[i].bytes, all[i].what);
        if (status != MMOE_OK) {
            return status;
        }
    }
    return MMOE_OK;
}

mmoe_status mm_cuda_kept_reserve(const struct mm_gpu *gpu, mm_cu_stream stream, struct mm_cuda_saved *kept,
                                 const struct mm_cuda_pool_bytes *bytes) {
    mmoe_status status = mm_device_reserve_in(gpu, stream, &kept->x, bytes->x, "the kept token rows");
    return status == MMOE_OK
               ? mm_device_reserve_in(gpu, stream, &kept->gate_up, bytes->gate_up, "the kept gate and up rows")
               : status;
}

static void free_outgrown(struct mm_cuda_group *cuda) {
    while (cuda->outgrown != NULL) {
        struct mm_cuda_outgrown *first = cuda->outgrown;
        cuda->outgrown = first->next;
        mm_device_free_in(&cuda->gpu, cuda->side, &first->buffer);
        mm_free(&first);
    }
}

void mm_cuda_pools_free(struct mm_cuda_group *cuda) {
    struct mm_cuda_pools *pools = &cuda->pools;
    struct mm_device_buffer *all[] = {&pools->x,     &pools->dy,       &pools->gate_up,   &pools->h,
                                      &pools->dgrad, &pools->dw_parts, &cuda->weight_maps};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        mm_device_free_in(&cuda->gpu, cuda->side, all[i]);
    }
    mm_cuda_plan_free(&cuda->gpu, cuda->side, &cuda->plan);
    free_outgrown(cuda);
}
