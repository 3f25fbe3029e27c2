/* What has to hold between the GPUs of the ranks of a group before they share memory, and whether it then works. The
 * GPU's context is current. */
#ifndef MM_CUDA_PEERS_H
#define MM_CUDA_PEERS_H

#include "cuda/gpu.h"
#include "group/memory.h"

/* Refuses two ranks on one GPU, whose kernels would wait for each other, unless `may_share`; blocks of different sizes;
 * and a GPU that can't reach that of a peer. A GPU that this process can't see, as CUDA_VISIBLE_DEVICES may have it, is
 * not asked. */
mmoe_status mm_peers_check(const struct mm_gpu *gpu, int rank, int world, const struct mm_offer *offered,
                           bool may_share);

/* Writes and reads in the block of each peer, where later only this rank writes, and leaves zeros: some machines say
 * that their GPUs can do it and they can't. No peer may use its block yet. */
mmoe_status mm_peers_try(const struct mm_gpu *gpu, int rank, int world, const mm_cu_pointer *blocks,
                         const struct mm_offer *offered);

/* Instead, where the caller has made and mapped the blocks: refuses a GPU that can't reach that of a peer's block. */
mmoe_status mm_peers_check_adopted(const struct mm_gpu *gpu, int rank, int world, const mm_cu_pointer *blocks);

/* MMOE_INVALID_ARGUMENT when this rank has already made calls in its own block. */
mmoe_status mm_peers_check_unused(const struct mm_gpu *gpu, int rank, mm_cu_pointer block);

/* "from rank 0 on GPU 0000:1B:00.0 to rank 1 on GPU 0000:43:00.0" */
#define MM_PAIR_BYTES 128
void mm_peers_name(char pair[MM_PAIR_BYTES], int rank, int peer, const struct mm_offer *offered);

#endif
