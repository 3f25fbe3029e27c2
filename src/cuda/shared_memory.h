/* Memory that the GPUs of a group share: a block on the GPU of each rank, which every rank maps on its own GPU.
 *
 * One way for ranks that are threads and ranks that are processes: a block is memory of CUDA's virtual memory
 * management, and travels as a file descriptor. The caller's blocks can be adopted instead. The GPU's context is
 * current in every call. */
#ifndef MM_CUDA_SHARED_MEMORY_H
#define MM_CUDA_SHARED_MEMORY_H

#include "cuda/device_memory.h"
#include "group/memory.h"

struct mm_shared_memory {
    int rank, world;
    bool adopted;                       /* the blocks are the caller's, and nobody has compared the ranks */
    mm_cu_pointer base[MMOE_MAX_WORLD]; /* rank r's block, as mapped on this rank's GPU; 0: not mapped */
    struct mm_device_buffer alone;      /* the block of a rank without peers */
    mm_cu_memory own;                   /* this rank's block; 0: none that can be offered */
    size_t mapped_bytes;                /* of each block that has to be unmapped: a multiple of what the GPU maps */
};

/* Makes this rank's block of `bytes`, zero when this returns. */
mmoe_status mm_shared_make(const struct mm_gpu *gpu, struct mm_shared_memory *shared, int rank, int world,
                           size_t bytes);

/* By the bus id of the GPU. The caller owns the descriptor; a rank without peers has none. */
mmoe_status mm_shared_offer(const struct mm_gpu *gpu, const struct mm_shared_memory *shared, struct mm_offer *offer);

/* Maps the blocks of all peers, of offered[0 .. world-1], and tries them. The offers stay the caller's. `share_gpus`:
 * they may be blocks of one GPU. */
mmoe_status mm_shared_join(const struct mm_gpu *gpu, struct mm_shared_memory *shared, const struct mm_offer *offered,
                           bool share_gpus);

/* Instead: takes the caller's blocks, as they are mapped. The own one must be as it was made: of zeros. */
mmoe_status mm_shared_adopt(const struct mm_gpu *gpu, struct mm_shared_memory *shared, int rank, int world,
                            void *const *blocks);

/* Waits for the GPU and unmaps everything; what peers have mapped of the own block stays with them. Accepts a zeroed
 * one, and one of which only a part was made. */
void mm_shared_free(const struct mm_gpu *gpu, struct mm_shared_memory *shared);

#endif
