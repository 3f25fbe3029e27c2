/* The matrix products of a layer through OpenBLAS alone, to measure the layer by: for each expert its exact rows, fp32
 * operands ready in memory, one sgemm a product with all cores, nothing else. */
#ifndef CLI_BASELINE_H
#define CLI_BASELINE_H

#include <stdbool.h>
#include <stdint.h>

struct baseline {
    int64_t hidden, intermediate, experts;
    int64_t *rows; /* [E] */
    bool redo;     /* backward computes gate and up again */
    int threads;
    float *tokens, *outputs;      /* [R,H] x or dy; y or dx */
    float *gates, *ups, *hiddens; /* [R,I] */
    float *weights, *gradients;   /* [3,E,I,H] each */
};

/* Copies `rows`. Returns -1 when memory is short; baseline_close is due in any case. */
int baseline_open(struct baseline *baseline, int64_t hidden, int64_t intermediate, int64_t experts, const int32_t *rows,
                  bool redo, int threads);
void baseline_close(struct baseline *baseline);

/* Seconds of the three products of a forward, and of the six (eight with redo) of a backward, over all experts. */
double baseline_forward(struct baseline *baseline);
double baseline_backward(struct baseline *baseline);

/* Waits until no thread of this process works, a second at most: OpenBLAS's threads spin for a while after a product
 * and would take cores from what is measured next. */
void baseline_rest(void);

#endif
