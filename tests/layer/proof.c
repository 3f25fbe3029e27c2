/* Shared by the tests of the layer. */
#include "proof.h"

#include <string.h>

#include "base/bf16.h"

struct rig_batch batch_with_ids(const mmoe_layer_config *layer, int world, const int64_t *tokens, const int64_t *ids,
                                uint64_t seed) {
    struct rig_batch batch = rig_batch_make(layer, world, tokens, RIG_UNIFORM, seed);
    memcpy(batch.ids, ids, (size_t)rig_batch_slots(&batch) * sizeof *ids);
    rig_batch_positive(&batch);
    return batch;
}

/* Whether g or u of a slot comes within 2 % of the limit. */
static bool slot_near_limit(const struct rig_batch *batch, int64_t slot) {
    int64_t hidden = batch->layer.hidden, intermediate = batch->layer.intermediate;
    const uint16_t *x = batch->x + slot / batch->layer.top_k * hidden;
    double limit = batch->layer.limit;
    double scale = batch->layer.weight_on == MMOE_WEIGHT_ON_INPUT ? batch->weights[slot] : 1;
    for (int64_t i = 0; i < intermediate; i++) {
        int64_t row = (batch->ids[slot] * intermediate + i) * hidden;
        double g = 0, u = 0;
        for (int64_t h = 0; h < hidden; h++) {
            g += mm_bf16_to_float(batch->gate[row + h]) * scale * mm_bf16_to_float(x[h]);
            u += mm_bf16_to_float(batch->up[row + h]) * scale * mm_bf16_to_float(x[h]);
        }
        if (fabs(g - limit) < 0.02 * limit || fabs(fabs(u) - limit) < 0.02 * limit)
            return true;
    }
    return false;
}

static bool token_near_limit(const struct rig_batch *batch, int64_t token) {
    for (int64_t slot = token * batch->layer.top_k; slot < (token + 1) * batch->layer.top_k; slot++)
        if (batch->ids[slot] >= 0 && slot_near_limit(batch, slot))
            return true;
    return false;
}

void avoid_limit(struct rig_batch *batch, uint64_t seed) {
    struct rig_random random = rig_seed(seed);
    int64_t hidden = batch->layer.hidden;
    for (int64_t t = 0; t < batch->total; t++)
        while (batch->layer.limit > 0 && token_near_limit(batch, t))
            for (int64_t h = 0; h < hidden; h++)
                batch->x[t * hidden + h] = mm_bf16_from_float((float)rig_normal(&random));
}

static void prove_and_free(struct rig_batch *batches, int count, enum rig_kind kind,
                           const struct rig_options *options) {
    for (int i = 0; i < count; i++)
        avoid_limit(&batches[i], 14 + (uint64_t)i);
    struct rig_world world = rig_world_for(batches, count, kind);
    rig_prove(&world, batches, count, options);
    for (int i = 0; i < count; i++)
        rig_batch_free(&batches[i]);
}

void prove_layer(const mmoe_layer_config *layer, int world, enum rig_kind kind, int64_t most, enum signs signs,
                 const struct rig_options *options) {
    int64_t full[MMOE_MAX_WORLD], uneven[MMOE_MAX_WORLD], half[MMOE_MAX_WORLD];
    for (int r = 0; r < world; r++) {
        full[r] = most;
        uneven[r] = r % 2 == 0 ? most / 3 : r % 4 == 1 ? 0 : 1;
        half[r] = (most + 1) / 2;
    }
    struct rig_batch batches[3] = {
        rig_batch_make(layer, world, full, RIG_UNIFORM, 11),
        rig_batch_make(layer, world, uneven, RIG_ZIPF, 12),
        rig_batch_make(layer, world, half, RIG_HOLES, 13),
    };
    for (int i = 0; signs == POSITIVE && i < 3; i++)
        rig_batch_positive(&batches[i]);
    prove_and_free(batches, 3, kind, options);
}

void prove_ids(const mmoe_layer_config *layer, int world, enum rig_kind kind, const int64_t *tokens, const int64_t *ids,
               const struct rig_options *options) {
    int64_t other[MMOE_MAX_WORLD];
    for (int r = 0; r < world; r++)
        other[r] = 3 + r;
    struct rig_batch batches[3] = {
        batch_with_ids(layer, world, tokens, ids, 21),
        rig_batch_make(layer, world, other, RIG_DUPLICATES, 22),
        batch_with_ids(layer, world, tokens, ids, 23),
    };
    rig_batch_positive(&batches[1]);
    prove_and_free(batches, 3, kind, options);
}

static void exact_weights(struct rig_batch *batch) {
    int64_t hidden = batch->layer.hidden, intermediate = batch->layer.intermediate;
    size_t bytes = (size_t)rig_batch_stack(batch) * sizeof *batch->gate;
    memset(batch->gate, 0, bytes);
    memset(batch->up, 0, bytes);
    memset(batch->down, 0, bytes);
    for (int64_t e = 0; e < batch->layer.experts; e++)
        for (int64_t i = 0; i < intermediate; i++) {
            int64_t row = (e * intermediate + i) * hidden;
            batch->gate[row] = mm_bf16_from_float(64);
            batch->up[row + i + 1] = mm_bf16_from_float(1);
            batch->down[(e * hidden + i + 1) * intermediate + i] = mm_bf16_from_float((float)(e % 4 + 1) / 64);
        }
}

struct rig_batch exact_batch_of(int64_t hidden, int64_t intermediate, int64_t experts, int64_t top_k, int world,
                                const int64_t *tokens, enum rig_routing routing, uint64_t seed) {
    mmoe_layer_config layer = rig_layer(hidden, intermediate, experts, top_k);
    struct rig_batch batch = rig_batch_make(&layer, world, tokens, routing, seed);
    struct rig_random random = rig_seed(seed + 1);
    exact_weights(&batch);
    for (int64_t t = 0; t < batch.total; t++) {
        uint16_t *x = batch.x + t * hidden, *dy = batch.dy + t * hidden;
        memset(dy, 0, (size_t)hidden * sizeof *dy);
        dy[1 + rig_below(&random, intermediate)] = mm_bf16_from_float(1);
        x[0] = mm_bf16_from_float(1);
        for (int64_t h = 1; h < hidden; h++)
            x[h] = mm_bf16_from_float((float)rig_below(&random, 32));
    }
    for (int64_t s = 0; s < rig_batch_slots(&batch); s++)
        batch.weights[s] = 1;
    return batch;
}

struct rig_batch exact_batch(int64_t hidden, int64_t experts, int64_t top_k, int world, const int64_t *tokens,
                             enum rig_routing routing, uint64_t seed) {
    return exact_batch_of(hidden, hidden - 1, experts, top_k, world, tokens, routing, seed);
}

void exact_batch_encode(struct rig_batch *batch, int step) {
    for (int r = 0; r < batch->world; r++)
        for (int64_t t = 0; t < batch->tokens[r]; t++) {
            uint16_t *x = batch->x + (rig_batch_first(batch, r) + t) * batch->layer.hidden;
            int64_t digits[5] = {step % 32, step / 32 % 32, r, t % 32, t / 32 % 32};
            for (int i = 0; i < 5; i++)
                x[i + 1] = mm_bf16_from_float((float)digits[i]);
        }
}
