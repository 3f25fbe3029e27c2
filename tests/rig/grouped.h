/* The proof of a grouped combine, on any backend. */
#ifndef RIG_GROUPED_H
#define RIG_GROUPED_H

#include "rig/step.h"

/* Runs a batch on a layer with a grouped combine and fails the test unless
 * - y has the bits of the definition: the sum in rank order, rounded, of what the same layer with an exact combine
 * gives for the slots on each rank alone;
 * - on one rank that is the exact combine;
 * - gradients have the bits of an exact combine's. */
void rig_prove_grouped(const mmoe_layer_config *layer, int world, const int64_t *tokens, enum rig_routing routing,
                       uint64_t seed, enum rig_kind kind, const struct rig_options *options);

#endif
