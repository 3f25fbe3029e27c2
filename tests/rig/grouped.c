/* The proof of a grouped combine; see grouped.h. */
#include "rig/grouped.h"

#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "rig/rig.h"

struct proof {
    mmoe_layer_config layer;
    int world;
    const int64_t *tokens;
    enum rig_routing routing;
    uint64_t seed;
    enum rig_kind kind;
};

/* The batch with slots on rank `only` alone; -1: all. */
static struct rig_batch batch_of(const struct proof *proof, mmoe_combine combine, int only) {
    mmoe_layer_config layer = proof->layer;
    layer.combine = combine;
    struct rig_batch batch = rig_batch_make(&layer, proof->world, proof->tokens, proof->routing, proof->seed);
    const int64_t local = layer.experts / proof->world;
    for (int64_t i = 0; only >= 0 && i < rig_batch_slots(&batch); i++)
        if (batch.ids[i] / local != only)
            batch.ids[i] = -1;
    return batch;
}

static void run(const struct proof *proof, struct rig_batch *batch, const struct rig_options *options) {
    struct rig_world world = rig_world_for(batch, 1, proof->kind);
    rig_run(&world, batch, 1, options);
}

/* [N, H] */
static uint16_t *defined_y(const struct proof *proof) {
    const struct rig_options options = {.forward_only = true};
    float *sum = NULL;
    uint16_t *y = NULL;
    for (int rank = 0; rank < proof->world; rank++) {
        struct rig_batch part = batch_of(proof, MMOE_COMBINE_EXACT, rank);
        const int64_t count = rig_batch_values(&part);
        run(proof, &part, &options);
        if (rank == 0) {
            sum = calloc((size_t)count + 1, sizeof *sum);
            y = malloc(((size_t)count + 1) * sizeof *y);
        }
        for (int64_t i = 0; i < count; i++) {
            sum[i] += mm_bf16_to_float(part.y[i]);
            y[i] = mm_bf16_from_float(sum[i]);
        }
        rig_batch_free(&part);
    }
    free(sum);
    return y;
}

void rig_prove_grouped(const mmoe_layer_config *layer, int world, const int64_t *tokens, enum rig_routing routing,
                       uint64_t seed, enum rig_kind kind, const struct rig_options *options) {
    const struct proof proof = {*layer, world, tokens, routing, seed, kind};
    struct rig_batch grouped = batch_of(&proof, MMOE_COMBINE_GROUPED, -1);
    struct rig_batch exact = batch_of(&proof, MMOE_COMBINE_EXACT, -1);
    const size_t bytes = (size_t)rig_batch_values(&exact) * sizeof *exact.y;
    run(&proof, &grouped, options);
    run(&proof, &exact, options);
    uint16_t *y = defined_y(&proof);
    assert_memory_equal(grouped.y, y, bytes);
    if (world == 1)
        assert_memory_equal(grouped.y, exact.y, bytes);
    memcpy(exact.y, y, bytes);
    rig_same_bits(&exact, &grouped, "gradients of a grouped combine");
    free(y);
    rig_batch_free(&grouped);
    rig_batch_free(&exact);
}
