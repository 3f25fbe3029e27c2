/* The float64 oracle: the layer written as its formula, per token and slot, with no sorting, padding or grouping.
 *
 * What everything else is compared with. It knows nothing of ranks: it takes all experts and a batch of tokens. Inputs
 * are the float64 values of the bf16 (or fp32) inputs; nothing is rounded inside. */
#ifndef MM_ORACLE_ORACLE_H
#define MM_ORACLE_ORACLE_H

#include <stdint.h>

struct oracle_layer {
    int64_t tokens, hidden, intermediate, experts, top_k; /* T, H, I, E, K */
    int weight_on_input;                                  /* 0: w on the output; 1: on the input */
    double limit;                                         /* 0: none */
};

/* All arrays contiguous: x [T,H], ids [T,K] (-1: not used), w [T,K], gate and up [E,I,H], down [E,H,I].
 * Writes y [T,H]. Returns 0, or -1 when memory is short. */
int oracle_forward(const struct oracle_layer *layer, const double *x, const int64_t *ids, const double *w,
                   const double *gate, const double *up, const double *down, double *y);

/* From dy [T,H]: dx [T,H], dw [T,K], dgate and dup [E,I,H], ddown [E,H,I], each overwritten; any of them may be NULL.
 */
int oracle_backward(const struct oracle_layer *layer, const double *x, const int64_t *ids, const double *w,
                    const double *gate, const double *up, const double *down, const double *dy, double *dx, double *dw,
                    double *dgate, double *dup, double *ddown);

/* ||value - reference|| / ||reference|| over n elements (Frobenius); 0 when both are zero, and Inf when the reference
 * is zero and the value is not; NaN when the value holds one. */
double oracle_relative_error(const double *value, const double *reference, int64_t n);

#endif
