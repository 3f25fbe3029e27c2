/* Ranks that are threads and share a GPU, all at the same time: each has a part of its multiprocessors, and a few are
 * left for small kernels. So several ranks really meet where there is one GPU.
 *
 * They are in one context, where a default stream, an allocation or its end would wait for the kernels of all ranks,
 * and these for that rank. So segments, operands and streams are made before any call. */
#ifndef RIG_ONE_GPU_H
#define RIG_ONE_GPU_H

#include "cuda/gpu.h"
#include "rig/world.h"

/* What a rank has of the GPU. */
struct rig_share {
    const struct mm_gpu *gpu;
    mm_cu_stream stream;
    unsigned char *memory; /* for operands */
    size_t bytes, used;
    int placed;             /* pieces of it that are in use */
    int spare;              /* multiprocessors that are not this rank's */
    unsigned char *staging; /* pinned, for copies */
};

/* A group for each rank of `world`, and each rank's share. NULL: the reason is the error's text. */
struct rig_one_gpu *rig_one_gpu_open(const struct rig_world *world, mmoe_group **groups, struct rig_share **shares);

/* After the groups are destroyed. */
void rig_one_gpu_close(struct rig_one_gpu *one);

/* Copies on the rank's stream, done when they return. */
mmoe_status rig_share_write(const struct rig_share *share, void *to, const void *from, size_t bytes);
mmoe_status rig_share_read(const struct rig_share *share, void *to, const void *from, size_t bytes);

/* A piece of a rank's memory; NULL: there is not so much. All can be taken again when all were given back. */
void *rig_share_take(struct rig_share *share, size_t bytes);
void rig_share_give(struct rig_share *share);

#endif
