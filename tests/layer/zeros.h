/* Batches with zeros in them, for the tests of B23, zeros in, zeros out, and B26, router weights of zero. */
#ifndef TESTS_LAYER_ZEROS_H
#define TESTS_LAYER_ZEROS_H

#include "rig/rig.h"

#define ZEROED_BATCHES 5

/* Each changes x, dy or the weights of a batch in place: x zero but for one element; a token's x and another's dy zero;
 * an expert's weights zero; three tokens of negative zeros; each row of x zero past the last multiple of 128. H is more
 * than 200, and there are at least 6 tokens. */
extern void (*const zeroed_batches[ZEROED_BATCHES])(struct rig_batch *batch);

/* With router weights of zero y, dx and the experts' gradients are zero, and each slot still has a gradient of its own,
 * whatever is kept. `tokens` of each of `world` ranks. */
void prove_zero_router_weights(const mmoe_layer_config *layer, int world, const int64_t *tokens);

#endif
