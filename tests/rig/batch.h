/* A batch: the inputs of one step over all ranks, and its results put together again.
 *
 * Tokens lie concatenated in rank order, weights hold all experts, so that one batch can be split over any number of
 * ranks and be compared with the oracle, which knows of no ranks. Everything the ranks read or write is shared with
 * forked ranks. */
#ifndef RIG_BATCH_H
#define RIG_BATCH_H

#include "megamoe.h"
#include "rig/routing.h"

struct rig_batch {
    mmoe_layer_config layer;
    int world;
    int64_t tokens[MMOE_MAX_WORLD]; /* T of each rank */
    int64_t total;                  /* their sum, N below */

    uint16_t *x, *dy;    /* [N,H] */
    int64_t *ids;        /* [N,K] */
    float *weights;      /* [N,K] */
    uint16_t *gate, *up; /* [E,I,H] */
    uint16_t *down;      /* [E,H,I] */
    float *start;        /* what accumulated gradients start from: gate, up, down; multiples of 1/8, exact in bf16 */

    uint16_t *y, *dx;                /* [N,H] results; all bits set in what no rank has delivered */
    float *dweights;                 /* [N,K] */
    float *dgate, *dup, *ddown;      /* like the weights */
    struct rig_reference *reference; /* the oracle's, made when first asked for */
};

/* A layer of this shape with default options. */
mmoe_layer_config rig_layer(int64_t hidden, int64_t intermediate, int64_t experts, int64_t top_k);

/* Random inputs: x, dy of deviation 1, weights such that gate, up and output are of the same size. */
struct rig_batch rig_batch_make(const mmoe_layer_config *layer, int world, const int64_t *tokens,
                                enum rig_routing routing, uint64_t seed);

/* Makes every input positive. For batches of a few tokens: no sum cancels then, so that the relative error of a single
 * number is that of its roundings and the bound means what it means for a large batch. */
void rig_batch_positive(struct rig_batch *batch);
void rig_batch_free(struct rig_batch *batch);

/* Gives the same tokens to `world` ranks, `tokens` to each, in the same order. */
void rig_batch_split(struct rig_batch *batch, int world, const int64_t *tokens);

/* Forgets the results. */
void rig_batch_reset(struct rig_batch *batch);

/* Forgets the oracle's results, after the inputs have been changed. */
void rig_batch_changed(struct rig_batch *batch);

/* Number of the first token of a rank; for `world` itself, the end. */
int64_t rig_batch_first(const struct rig_batch *batch, int rank);

/* N*H, N*K, E*I*H */
int64_t rig_batch_values(const struct rig_batch *batch);
int64_t rig_batch_slots(const struct rig_batch *batch);
int64_t rig_batch_stack(const struct rig_batch *batch);

#endif
