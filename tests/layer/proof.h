/* Shared by the tests of the layer: batches with given ids, three calls around them, and batches whose answer is
 * exact. */
#ifndef LAYER_PROOF_H
#define LAYER_PROOF_H

#include "rig/rig.h"

/* A random batch of positive inputs with these ids [N,K]. */
struct rig_batch batch_with_ids(const mmoe_layer_config *layer, int world, const int64_t *tokens, const int64_t *ids,
                                uint64_t seed);

/* Of either sign, or positive: rig_batch_positive() says why. */
enum signs { EITHER_SIGN, POSITIVE };

/* Proves a layer by three calls on one group: `most` tokens a rank, evenly routed; uneven and missing tokens, skewed;
 * half the tokens, with unused slots. */
void prove_layer(const mmoe_layer_config *layer, int world, enum rig_kind kind, int64_t most, enum signs signs,
                 const struct rig_options *options);

/* Proves given ids by three calls: these, a random routing with other T between, these again. */
void prove_ids(const mmoe_layer_config *layer, int world, enum rig_kind kind, const int64_t *tokens, const int64_t *ids,
               const struct rig_options *options);

/* Draws x anew until no g or u of a used slot lies near the layer's limit, where bf16 and the oracle may clip
 * differently and a gradient jumps. */
void avoid_limit(struct rig_batch *batch, uint64_t seed);

/* Exact batches: H features of integers 0..31, the first always 1; I = H - 1. The gate of every unit is 64, where silu
 * is the identity to the last bit of fp32 and of float64; unit i selects feature i + 1; the expert e scales by
 * e % 4 + 1. Weights are 1 and dy is 1 in one feature of a token, so that every value is a small integer, or one over
 * 64, and with K of 1 or 2 each result is exact whatever its rounding points: one stale or swapped row shows. */
struct rig_batch exact_batch(int64_t hidden, int64_t experts, int64_t top_k, int world, const int64_t *tokens,
                             enum rig_routing routing, uint64_t seed);

/* The same with I below H - 1, for a backend that takes multiples of 64: the features past I are not passed on. */
struct rig_batch exact_batch_of(int64_t hidden, int64_t intermediate, int64_t experts, int64_t top_k, int world,
                                const int64_t *tokens, enum rig_routing routing, uint64_t seed);

/* Writes (step, rank, token) into the features 1 to 5 of an exact batch; H is at least 6. */
void exact_batch_encode(struct rig_batch *batch, int step);

#endif
