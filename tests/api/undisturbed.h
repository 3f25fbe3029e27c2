/* Results compared with those of a run in which nothing unusual happens. */
#ifndef TESTS_API_UNDISTURBED_H
#define TESTS_API_UNDISTURBED_H

#include "rig/rig.h"

/* The batch, made by rig_batch_make with RIG_UNIFORM and this seed, holds the same bits. */
static inline void compare_with_undisturbed(const struct rig_batch *batch, const struct rig_options *options,
                                            uint64_t seed) {
    struct rig_batch undisturbed = rig_batch_make(&batch->layer, batch->world, batch->tokens, RIG_UNIFORM, seed);
    struct rig_world stage = rig_world_for(&undisturbed, 1, RIG_THREADS);
    rig_run(&stage, &undisturbed, 1, options);
    rig_same_bits(batch, &undisturbed, "an undisturbed run");
    rig_batch_free(&undisturbed);
}

#endif
