/* Making and freeing what the backend keeps for a group, a layer and a saved state; see struct mm_backend. */
#ifndef MM_CPU_SETUP_H
#define MM_CPU_SETUP_H

#include "cpu/state.h"

mmoe_status mm_cpu_group_open(struct mmoe_group *group);
void mm_cpu_group_close(struct mmoe_group *group);
mmoe_status mm_cpu_layer_open(struct mmoe_layer *layer);
void mm_cpu_layer_close(struct mmoe_layer *layer);
mmoe_status mm_cpu_saved_open(struct mmoe_saved *saved);
void mm_cpu_saved_close(struct mmoe_saved *saved);

/* Room for as many bytes in each pool; 0 leaves a pool as it is. */
mmoe_status mm_cpu_pools_reserve(struct mm_cpu_group *cpu, const struct mm_pool_bytes *bytes);

/* Room for the rows that a saved state keeps. */
mmoe_status mm_cpu_kept_reserve(struct mm_cpu_saved *kept, const struct mm_pool_bytes *bytes);

#endif
