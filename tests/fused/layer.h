/* Layers and batches for calls on simulated GPUs, and what the float64 oracle says of them. Tokens of all ranks lie one
 * behind another in rank order, weights hold all experts: the same batch can be split over any number of ranks. */
#ifndef TESTS_FUSED_LAYER_H
#define TESTS_FUSED_LAYER_H

#include <cstdint>
#include <vector>

#include "rig/routing.h"

struct fused_layer {
    int64_t hidden, intermediate, experts, top_k;
    double limit; /* 0: no clamp */
    /* Small integers, with which every step of the layer is exact; else random numbers. */
    bool exact;
    std::vector<uint16_t> gate, up, down; /* [E,I,H], [E,I,H], [E,H,I] bf16 */
};

fused_layer make_layer(int64_t hidden, int64_t intermediate, int64_t experts, int64_t top_k, bool exact, uint64_t seed,
                       double limit = 0);

struct fused_batch {
    std::vector<int64_t> tokens; /* of each rank */
    std::vector<uint16_t> x;     /* [N,H] bf16 */
    std::vector<int64_t> ids;    /* [N,K] */
    std::vector<float> weights;  /* [N,K] */
    std::vector<uint16_t> dy;    /* [N,H] bf16 */

    int64_t first(unsigned rank) const; /* number of the rank's first token; of the number of ranks: N */
    int64_t total() const { return first((unsigned)tokens.size()); }
};

fused_batch make_batch(const fused_layer &layer, const std::vector<int64_t> &tokens, rig_routing routing,
                       uint64_t seed);

/* [N,H], and for each row of [N,K] that is used its gate and up, [N,K,I]. */
std::vector<double> oracle_of(const fused_layer &layer, const fused_batch &batch);

/* Outputs of a backward: [N,H], [N,K], [E,I,H] twice, [E,H,I]. */
enum gradient { DX, DWEIGHTS, DGATE, DUP, DDOWN, GRADIENTS };

struct fused_gradients {
    std::vector<double> of[GRADIENTS];
};

/* Of an exact layer all are exact but the first column of dx, where rows are so large that they are rounded. */
fused_gradients oracle_gradients(const fused_layer &layer, const fused_batch &batch);

double from_bf16(uint16_t value);
uint16_t to_bf16(double value);

/* Of values against the oracle's (Frobenius); NaN when one of them is NaN. */
double relative_error(const std::vector<double> &values, const std::vector<double> &reference);
std::vector<double> wide(const std::vector<uint16_t> &values);

#endif
