/* Shared by the tests of the layer on one GPU, real or simulated: MMOE_TEST_BACKEND is "cuda". */
#ifndef GPU_SUPPORT_H
#define GPU_SUPPORT_H

#include "layer/proof.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* Multiprocessors of the first GPU. */
int count_multiprocessors(void);

/* One step of a batch on one rank of a group of its own. */
void run_one(struct rig_batch *batch, const struct rig_options *options);

/* The same on a named backend. */
void run_on(const char *backend, struct rig_batch *batch, const struct rig_options *options);

/* prove_ids() of T tokens for one rank. */
void prove_tokens(const mmoe_layer_config *layer, int64_t tokens, const int64_t *ids,
                  const struct rig_options *options);

/* Fails unless the results of a batch equal those that the CPU backend gives for it, to rounding. */
void compare_with_cpu(struct rig_batch *batch, const struct rig_options *options);

/* Ids [rows] of K = 1 such that expert e gets groups[e] rows, in an order that mixes experts. The caller frees them. */
int64_t *ids_of_groups(const int64_t *groups, int64_t experts, int64_t rows);

/* Ends the running test as skipped at reduced size, which is that of the simulator, and says so. */
void not_at_small_size(const char *what);

#endif
