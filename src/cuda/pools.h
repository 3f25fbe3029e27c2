/* Device memory that grows with the demand: the pools that all layers of a group share, and what saved states keep. */
#ifndef MM_CUDA_POOLS_H
#define MM_CUDA_POOLS_H

#include "cuda/state.h"

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

/* Frees what was reserved for the group, behind all calls. The context is current. */
void mm_cuda_pools_free(struct mm_cuda_group *cuda);

#endif
