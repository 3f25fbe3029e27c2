/* The matrix products of a layer through OpenBLAS alone, to measure the layer by: for each expert its exact rows, fp32
 * operands of its own ready in memory, one sgemm a product, gate and up as one product, nothing else. */
#ifndef CLI_BASELINE_H
#define CLI_BASELINE_H

#include <stdbool.h>
#include <stdint.h>

#define BASELINE_MAX_THREADS 1024

struct baseline {
    int64_t hidden, intermediate, experts;
    int64_t *first;             /* [E+1] the first row of each expert */
    bool redo;                  /* backward computes gate and up again */
    int threads;                /* 1 .. BASELINE_MAX_THREADS */
    float *tokens, *outputs;    /* [R,H] x or dy; y or dx */
    float *gate_ups;            /* [R,2I] gate and up, or their gradients */
    float *hiddens;             /* [R,I] h or dh */
    float *weights, *gradients; /* of each expert: W1 over W3 [2I,H], then W2 [H,I] */
};

/* How the threads share the work. Which way is faster depends on the shape. */
enum baseline_way {
    BASELINE_SPLIT, /* OpenBLAS splits each product over all threads */
    BASELINE_EACH,  /* each thread computes experts of its own */
    BASELINE_WAYS
};

/* Returns -1 when memory is short; baseline_close is due in any case. */
int baseline_open(struct baseline *baseline, int64_t hidden, int64_t intermediate, int64_t experts, const int32_t *rows,
                  bool redo, int threads);
void baseline_close(struct baseline *baseline);

/* Seconds of the two products of a forward, and of the four (five with redo) of a backward, over all experts. */
double baseline_forward(const struct baseline *baseline, enum baseline_way way);
double baseline_backward(const struct baseline *baseline, enum baseline_way way);

/* Waits until no thread of this process works, a second at most: OpenBLAS's threads spin for a while after a product
 * and would take cores from what is measured next. */
void baseline_rest(void);

#endif
