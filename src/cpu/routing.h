/* Ids and router weights of a forward: checked where the data is, then sent to every rank. */
#ifndef MM_CPU_ROUTING_H
#define MM_CPU_ROUTING_H

#include "cpu/state.h"

/* Refuses an id that is neither -1 nor an expert, and (when the layer checks weights) a used slot's weight that is not
 * finite; the sentence names token and slot. */
mmoe_status mm_routing_check(const mmoe_layer_config *layer, const mmoe_tensor *ids, const mmoe_tensor *weights);

/* Writes the ids (as int32) and weights to every rank's segment; they have been checked. */
void mm_routing_push(struct mm_cpu_call *call, const mmoe_tensor *ids, const mmoe_tensor *weights);

/* The plan of the current call from all ranks' ids and weights, in call->plan: the histogram with the verdict on
 * capacity, then the row map. What fails on this rank alone is MMOE_OUT_OF_MEMORY. */
mmoe_status mm_routing_count(struct mm_cpu_call *call);
mmoe_status mm_routing_fill(struct mm_cpu_call *call);

/* This rank's own ids [T, K] in the current call. */
const int32_t *mm_routing_own_ids(const struct mm_cpu_call *call);

#endif
