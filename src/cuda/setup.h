/* Making and freeing what the backend keeps for a group, a layer and a saved state; see struct mm_backend. */
#ifndef MM_CUDA_SETUP_H
#define MM_CUDA_SETUP_H

#include "cuda/state.h"

extern const struct mm_sharing mm_cuda_sharing;

mmoe_status mm_cuda_group_open(struct mmoe_group *group);
void mm_cuda_group_close(struct mmoe_group *group);
mmoe_status mm_cuda_layer_open(struct mmoe_layer *layer);
void mm_cuda_layer_close(struct mmoe_layer *layer);
mmoe_status mm_cuda_saved_open(struct mmoe_saved *saved);
void mm_cuda_saved_close(struct mmoe_saved *saved);

/* Room for `bytes`, made in a stream that is behind all calls so far, in a buffer that calls of several layers use. One
 * that a graph may use stays beside the new one. */
mmoe_status mm_cuda_reserve(struct mm_cuda_group *cuda, mm_cu_stream stream, struct mm_device_buffer *buffer,
                            size_t bytes, const char *what);

/* In the same way, room for as many bytes in each pool; 0 leaves a pool as it is. */
mmoe_status mm_cuda_pools_reserve(struct mm_cuda_group *cuda, mm_cu_stream stream,
                                  const struct mm_cuda_pool_bytes *bytes);

/* Room for the rows that a saved state keeps. */
mmoe_status mm_cuda_kept_reserve(const struct mm_gpu *gpu, mm_cu_stream stream, struct mm_cuda_saved *kept,
                                 const struct mm_cuda_pool_bytes *bytes);

#endif
