/* Batches with zeros in them; see zeros.h. */
#include <math.h>
#include <string.h>

#include "base/bf16.h"
#include "layer/zeros.h"

static void one_in_a_zero_matrix(struct rig_batch *batch) {
    memset(batch->x, 0, (size_t)rig_batch_values(batch) * sizeof *batch->x);
    batch->x[5 * batch->layer.hidden + 200] = mm_bf16_from_float(1);
}

static void zero_token(struct rig_batch *batch) {
    memset(batch->x, 0, (size_t)batch->layer.hidden * sizeof *batch->x);
    memset(batch->dy + batch->layer.hidden, 0, (size_t)batch->layer.hidden * sizeof *batch->dy);
}

static void zero_expert(struct rig_batch *batch) {
    size_t bytes = (size_t)(rig_batch_stack(batch) / batch->layer.experts) * sizeof *batch->gate;
    memset(batch->gate, 0, bytes);
    memset(batch->up, 0, bytes);
    memset(batch->down, 0, bytes);
}

static void negative_zeros(struct rig_batch *batch) {
    for (int64_t i = 0; i < 3 * batch->layer.hidden; i++)
        batch->x[i] = batch->dy[i] = 0x8000;
}

/* The part of each row past the last multiple of 128. */
static void zero_tail(struct rig_batch *batch) {
    int64_t hidden = batch->layer.hidden;
    for (int64_t t = 0; t < batch->total; t++)
        for (int64_t h = hidden - hidden % 128; h < hidden; h++)
            batch->x[t * hidden + h] = 0;
}

void (*const zeroed_batches[ZEROED_BATCHES])(struct rig_batch *batch) = {one_in_a_zero_matrix, zero_token, zero_expert,
                                                                         negative_zeros, zero_tail};

static void expect_gradients_of_weights_alone(const struct rig_batch *batch) {
    const float *stacks[] = {batch->dgate, batch->dup, batch->ddown};
    for (int64_t i = 0; i < rig_batch_values(batch); i++)
        assert_true((batch->y[i] & 0x7fff) == 0 && (batch->dx[i] & 0x7fff) == 0);
    for (int i = 0; i < 3; i++)
        for (int64_t j = 0; j < rig_batch_stack(batch); j++)
            assert_true(stacks[i][j] == 0);
    for (int64_t s = 0; s < rig_batch_slots(batch); s++)
        assert_true(isfinite(batch->dweights[s]) && batch->dweights[s] != 0);
}

void prove_zero_router_weights(const mmoe_layer_config *layer, int world, const int64_t *tokens) {
    for (int keep = MMOE_KEEP_PLAN; keep <= MMOE_KEEP_ROWS; keep++) {
        const struct rig_options options = {.keep = keep};
        struct rig_batch batch = rig_batch_make(layer, world, tokens, RIG_UNIFORM, 61);
        rig_batch_positive(&batch);
        memset(batch.weights, 0, (size_t)rig_batch_slots(&batch) * sizeof *batch.weights);
        struct rig_world ranks = rig_world_for(&batch, 1, RIG_THREADS);
        rig_prove(&ranks, &batch, 1, &options);
        expect_gradients_of_weights_alone(&batch);
        rig_batch_free(&batch);
    }
}
