/* Batches. */
#include "rig/batch.h"

#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "rig/compare.h"
#include "rig/world.h"

mmoe_layer_config rig_layer(int64_t hidden, int64_t intermediate, int64_t experts, int64_t top_k) {
    mmoe_layer_config layer = mmoe_layer_config_default();
    layer.hidden = hidden;
    layer.intermediate = intermediate;
    layer.experts = experts;
    layer.top_k = top_k;
    return layer;
}

int64_t rig_batch_values(const struct rig_batch *batch) {
    return batch->total * batch->layer.hidden;
}
int64_t rig_batch_slots(const struct rig_batch *batch) {
    return batch->total * batch->layer.top_k;
}
int64_t rig_batch_stack(const struct rig_batch *batch) {
    return batch->layer.experts * batch->layer.hidden * batch->layer.intermediate;
}

int64_t rig_batch_first(const struct rig_batch *batch, int rank) {
    int64_t first = 0;
    for (int r = 0; r < rank; r++)
        first += batch->tokens[r];
    return first;
}

void rig_batch_split(struct rig_batch *batch, int world, const int64_t *tokens) {
    batch->world = world;
    memcpy(batch->tokens, tokens, (size_t)world * sizeof *tokens);
    batch->total = rig_batch_first(batch, world);
}

static void fill(struct rig_random *random, double deviation, uint16_t *values, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        values[i] = mm_bf16_from_float((float)(deviation * rig_normal(random)));
}

static void *array(int64_t n, size_t size) {
    return rig_shared((size_t)n * size);
}

struct rig_batch rig_batch_make(const mmoe_layer_config *layer, int world, const int64_t *tokens,
                                enum rig_routing routing, uint64_t seed) {
    struct rig_batch batch = {.layer = *layer};
    rig_batch_split(&batch, world, tokens);
    struct rig_random random = rig_seed(seed);
    int64_t values = rig_batch_values(&batch), slots = rig_batch_slots(&batch), stack = rig_batch_stack(&batch);

    batch.x = array(values, sizeof *batch.x);
    batch.dy = array(values, sizeof *batch.dy);
    batch.gate = array(stack, sizeof *batch.gate);
    batch.up = array(stack, sizeof *batch.up);
    batch.down = array(stack, sizeof *batch.down);
    fill(&random, 1, batch.x, values);
    fill(&random, 1, batch.dy, values);
    fill(&random, 1 / sqrt((double)layer->hidden), batch.gate, stack);
    fill(&random, 1 / sqrt((double)layer->hidden), batch.up, stack);
    fill(&random, 1 / sqrt((double)layer->intermediate), batch.down, stack);

    batch.ids = array(slots, sizeof *batch.ids);
    rig_route(routing, &random, batch.total, layer->top_k, layer->experts, batch.ids);
    batch.weights = array(slots, sizeof *batch.weights);
    for (int64_t s = 0; s < slots; s++)
        batch.weights[s] = (float)(0.05 + rig_uniform(&random));
    batch.start = array(3 * stack, sizeof *batch.start);
    for (int64_t i = 0; i < 3 * stack; i++)
        batch.start[i] = (float)(rig_below(&random, 65) - 32) / -8; /* zeros are -0, which adding 0 would change */

    batch.y = array(values, sizeof *batch.y);
    batch.dx = array(values, sizeof *batch.dx);
    batch.dweights = array(slots, sizeof *batch.dweights);
    batch.dgate = array(stack, sizeof *batch.dgate);
    batch.dup = array(stack, sizeof *batch.dup);
    batch.ddown = array(stack, sizeof *batch.ddown);
    rig_batch_reset(&batch);
    return batch;
}

static void drop_signs(uint16_t *values, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        values[i] &= 0x7fff;
}

void rig_batch_positive(struct rig_batch *batch) {
    drop_signs(batch->x, rig_batch_values(batch));
    drop_signs(batch->dy, rig_batch_values(batch));
    drop_signs(batch->gate, rig_batch_stack(batch));
    drop_signs(batch->up, rig_batch_stack(batch));
    drop_signs(batch->down, rig_batch_stack(batch));
}

void rig_batch_reset(struct rig_batch *batch) {
    size_t values = (size_t)rig_batch_values(batch), slots = (size_t)rig_batch_slots(batch);
    size_t stack = (size_t)rig_batch_stack(batch);
    memset(batch->y, 0xff, values * sizeof *batch->y);
    memset(batch->dx, 0xff, values * sizeof *batch->dx);
    memset(batch->dweights, 0xff, slots * sizeof *batch->dweights);
    memset(batch->dgate, 0xff, stack * sizeof *batch->dgate);
    memset(batch->dup, 0xff, stack * sizeof *batch->dup);
    memset(batch->ddown, 0xff, stack * sizeof *batch->ddown);
}

void rig_batch_changed(struct rig_batch *batch) {
    rig_reference_free(batch->reference);
    batch->reference = NULL;
}

void rig_batch_free(struct rig_batch *batch) {
    rig_batch_changed(batch);
    void *blocks[] = {batch->x,     batch->dy, batch->ids, batch->weights,  batch->gate,  batch->up,  batch->down,
                      batch->start, batch->y,  batch->dx,  batch->dweights, batch->dgate, batch->dup, batch->ddown};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        rig_shared_free(blocks[i]);
    *batch = (struct rig_batch){0};
}
