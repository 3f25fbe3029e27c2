/* Comparison of a batch's results with the oracle, and of two batches' results with each other. */
#ifndef RIG_COMPARE_H
#define RIG_COMPARE_H

#include "rig/batch.h"
#include "rig/step.h"

/* Largest relative Frobenius error of a bf16 result. */
#define RIG_BOUND 5.5e-3

/* For integer data: every element equals the oracle's. */
#define RIG_EXACT 0.0

/* The oracle's results for a batch, in float64: y, dx [N,H], dweights [N,K], dgate, dup, ddown like the weights. */
struct rig_reference {
    double *y, *dx, *dweights, *dgate, *dup, *ddown;
};

const struct rig_reference *rig_reference_of(struct rig_batch *batch);
void rig_reference_free(struct rig_reference *reference);

/* Relative errors of the results, in the order y, dx, dweights, dgate, dup, ddown; what a rank left out counts as
 * right. */
void rig_errors(struct rig_batch *batch, const struct rig_options *options, double errors[6]);

/* Fails the test when an error is past `bound`, and when what must be exact is not: zeros in y, dx and dweights where
 * no slot is used, and untouched or zero gradients of an expert without rows. */
void rig_compare(struct rig_batch *batch, const struct rig_options *options, double bound);

/* Fails the test unless both have the same bits, over the tokens and experts, of y, dx, dweights, dgate, dup, ddown.
 * `what` names the comparison. */
void rig_same_bits(const struct rig_batch *a, const struct rig_batch *b, const char *what);

/* Whether a rank's own share of the results has the same bits in both, which are split alike. */
bool rig_rank_same_bits(const struct rig_rank *rank, const struct rig_batch *a, const struct rig_batch *b);

#endif
