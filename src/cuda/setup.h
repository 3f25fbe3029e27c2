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

#endif
