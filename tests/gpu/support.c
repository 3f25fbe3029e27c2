/* What the tests on one GPU share; see support.h. */
#include "support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "cuda/state.h"

int count_multiprocessors(void) {
    struct rig_world world = rig_world_make(1, RIG_THREADS, 1, 1, 1, 1);
    mmoe_group *group;
    assert_int_equal(mmoe_group_create_threads(&world.config, 1, &group), MMOE_OK);
    const int count = ((const struct mm_cuda_group *)group->backend_state)->gpu.device.multiprocessors;
    mmoe_group_destroy(&group);
    return count;
}

void run_on(const char *backend, struct rig_batch *batch, const struct rig_options *options) {
    struct rig_world world = rig_world_for(batch, 1, RIG_THREADS);
    world.config.backend = backend;
    rig_run(&world, batch, 1, options);
}

void run_one(struct rig_batch *batch, const struct rig_options *options) {
    run_on(rig_backend(), batch, options);
}

void prove_tokens(const mmoe_layer_config *layer, int64_t tokens, const int64_t *ids,
                  const struct rig_options *options) {
    prove_ids(layer, 1, RIG_THREADS, &tokens, ids, options);
}

/* ---- Against the CPU backend ---- */

/* Both round at the same points, and sum in another order: now and then a value is rounded to its other neighbour. */
#define BETWEEN_BACKENDS 2e-3

static void close_numbers(const char *name, const float *value, const float *expected, int64_t n) {
    double error = 0, square = 0;
    for (int64_t i = 0; i < n; i++) {
        error += ((double)value[i] - expected[i]) * ((double)value[i] - expected[i]);
        square += (double)expected[i] * expected[i];
    }
    if (!(sqrt(error) <= BETWEEN_BACKENDS * sqrt(square)))
        fail_msg("%s: relative difference %g to the CPU backend, expected at most %g", name, sqrt(error / square),
                 BETWEEN_BACKENDS);
}

static void close_rows(const char *name, const uint16_t *value, const uint16_t *expected, int64_t n) {
    float *a = malloc((size_t)n * sizeof *a + 1), *b = malloc((size_t)n * sizeof *b + 1);
    for (int64_t i = 0; i < n; i++) {
        a[i] = mm_bf16_to_float(value[i]);
        b[i] = mm_bf16_to_float(expected[i]);
    }
    close_numbers(name, a, b, n);
    free(a);
    free(b);
}

static void *copy_of(const void *values, size_t bytes) {
    void *copy = malloc(bytes + 1);
    memcpy(copy, values, bytes);
    return copy;
}

void compare_with_cpu(struct rig_batch *batch, const struct rig_options *options) {
    const size_t values = (size_t)rig_batch_values(batch), slots = (size_t)rig_batch_slots(batch);
    const size_t stack = (size_t)rig_batch_stack(batch);
    uint16_t *y = copy_of(batch->y, values * sizeof *y), *dx = copy_of(batch->dx, values * sizeof *dx);
    float *dw = copy_of(batch->dweights, slots * sizeof *dw), *dgate = copy_of(batch->dgate, stack * sizeof *dgate);
    float *dup = copy_of(batch->dup, stack * sizeof *dup), *ddown = copy_of(batch->ddown, stack * sizeof *ddown);
    run_on("cpu", batch, options);
    close_rows("y", y, batch->y, (int64_t)values);
    if (!options->forward_only) {
        close_rows("dx", dx, batch->dx, (int64_t)values);
        close_numbers("dweights", dw, batch->dweights, (int64_t)slots);
        close_numbers("dgate", dgate, batch->dgate, (int64_t)stack);
        close_numbers("dup", dup, batch->dup, (int64_t)stack);
        close_numbers("ddown", ddown, batch->ddown, (int64_t)stack);
    }
    void *copies[] = {y, dx, dw, dgate, dup, ddown};
    for (int i = 0; i < COUNT(copies); i++)
        free(copies[i]);
}

/* ---- Routings ---- */

int64_t *ids_of_groups(const int64_t *groups, int64_t experts, int64_t rows) {
    int64_t *ids = malloc((size_t)rows * sizeof *ids), *left = copy_of(groups, (size_t)experts * sizeof *left);
    for (int64_t row = 0, e = 0; row < rows; e = (e + 1) % experts)
        if (left[e]-- > 0)
            ids[row++] = e;
    free(left);
    return ids;
}

void not_at_small_size(const char *what) {
    if (rig_small()) {
        print_message("not run at small size: %s\n", what);
        skip();
    }
}
