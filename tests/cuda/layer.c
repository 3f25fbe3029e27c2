/* The whole layer on one GPU against the oracle: shapes, options, layouts, routings. MMOE_TEST_BACKEND is "cuda"; the
 * GPU may be a simulated one. */
#include "layer/proof.h"

#define INNER 64
#define EXPERTS 2
#define TOP_K 2
#define TOKENS 30

/* `most` tokens, then a third of them, then half; one rank. */
static void prove(const mmoe_layer_config *layer, int64_t most, const struct rig_options *options) {
    prove_layer(layer, 1, RIG_THREADS, most, EITHER_SIGN, options);
}

static void shapes(void **state) {
    (void)state;
    const struct {
        int64_t hidden, intermediate, experts, top_k, tokens;
    } shapes[] = {
        {64, 64, 1, 1, 300}, {64, 320, 8, 3, 20}, {320, 64, 3, 2, 40}, {128, 192, 9, 5, 13}, {192, 448, 2, 2, 35},
    };
    const int count = sizeof shapes / sizeof shapes[0];
    for (int i = 0; i < rig_scaled("shapes of the layer", count, 2); i++) {
        mmoe_layer_config layer =
            rig_layer(shapes[i].hidden, shapes[i].intermediate, shapes[i].experts, shapes[i].top_k);
        const struct rig_options options = {.keep = i % 2 == 0 ? MMOE_KEEP_PLAN : MMOE_KEEP_ROWS};
        prove(&layer, shapes[i].tokens, &options);
    }
}

enum stacks { SEPARATE, HALVES, POINTERS, STACKS };

static struct rig_options stacks_as(enum stacks stacks) {
    struct rig_options options = {.halves = stacks == HALVES};
    for (int operand = RIG_GATE; stacks == POINTERS && operand < RIG_OPERANDS; operand++)
        if (operand <= RIG_DOWN || operand >= RIG_DGATE)
            options.layout[operand] = RIG_SCATTERED;
    return options;
}

/* Bits of `form`: limit, fixed capacity, rows kept, wide ids, narrow gradients, accumulation. */
#define FORMS 64

static void options(void **state) {
    (void)state;
    const int stride = rig_scaled("every n-th combination of options", 23, 61);
    for (int i = 0; i < FORMS * STACKS; i += stride) {
        const int form = i / STACKS;
        mmoe_layer_config layer = rig_layer(64, INNER, EXPERTS, TOP_K);
        layer.limit = form & 1 ? 0.75f : 0;
        layer.capacity_policy = form & 2 ? MMOE_CAPACITY_FIXED : MMOE_CAPACITY_GROW;
        layer.capacity = form & 2 ? TOKENS * TOP_K : 0;
        struct rig_options chosen = stacks_as(i % STACKS);
        chosen.keep = form & 4 ? MMOE_KEEP_ROWS : MMOE_KEEP_PLAN;
        chosen.wide_ids = form & 8;
        chosen.narrow_gradients = form & 16;
        chosen.accumulate = form & 32;
        prove(&layer, TOKENS, &chosen);
    }
}

/* Tensors of tokens may lie in any way. */
static void layouts(void **state) {
    (void)state;
    const enum rig_layout layouts[] = {RIG_OFFSET, RIG_TRANSPOSED, RIG_SLICED, RIG_SPREAD, RIG_NEGATIVE};
    const enum rig_operand operands[] = {RIG_X, RIG_IDS, RIG_WEIGHTS, RIG_Y, RIG_DY, RIG_DX, RIG_DWEIGHTS};
    mmoe_layer_config layer = rig_layer(64, INNER, EXPERTS, TOP_K);
    for (size_t l = 0; l < sizeof layouts / sizeof layouts[0]; l++) {
        struct rig_options options = {.keep = MMOE_KEEP_PLAN};
        for (size_t i = 0; i < sizeof operands / sizeof operands[0]; i++)
            options.layout[operands[i]] = layouts[l];
        prove(&layer, TOKENS, &options);
    }
    const struct rig_options repeated = {.layout = {[RIG_X] = RIG_REPEATED_ROW, [RIG_DY] = RIG_REPEATED_ROW}};
    int64_t tokens = TOKENS;
    struct rig_batch batch = rig_batch_make(&layer, 1, &tokens, RIG_UNIFORM, 5);
    for (int64_t i = layer.hidden; i < TOKENS * layer.hidden; i++) {
        batch.x[i] = batch.x[i % layer.hidden];
        batch.dy[i] = batch.dy[i % layer.hidden];
    }
    struct rig_world world = rig_world_for(&batch, 1, RIG_THREADS);
    rig_prove(&world, &batch, 1, &repeated);
    rig_batch_free(&batch);
}

static void gradients_left_out(void **state) {
    (void)state;
    const unsigned all = 1u << RIG_DX | 1u << RIG_DWEIGHTS | 1u << RIG_DGATE | 1u << RIG_DUP | 1u << RIG_DDOWN;
    mmoe_layer_config layer = rig_layer(64, INNER, EXPERTS, TOP_K);
    for (int operand = RIG_DX; operand <= RIG_DDOWN; operand++) {
        struct rig_options options = {.omit = {1u << operand}, .keep = MMOE_KEEP_ROWS};
        prove(&layer, TOKENS, &options);
        options.omit[0] = all & ~(1u << operand);
        prove(&layer, TOKENS, &options);
    }
    const struct rig_options none = {.omit = {all}};
    prove(&layer, TOKENS, &none);
}

static void routings(void **state) {
    (void)state;
    const enum rig_routing kinds[] = {RIG_ONE_EXPERT, RIG_UNUSED, RIG_DUPLICATES, RIG_HOLES, RIG_ZIPF};
    mmoe_layer_config layer = rig_layer(64, 64, 8, 3);
    int64_t tokens[] = {60, 0, 90};
    struct rig_options options = {.keep = MMOE_KEEP_ROWS, .accumulate = true};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        struct rig_batch batches[3];
        for (int i = 0; i < 3; i++)
            batches[i] = rig_batch_make(&layer, 1, &tokens[i], kinds[k], 20 + (uint64_t)i);
        struct rig_world world = rig_world_for(batches, 3, RIG_THREADS);
        rig_prove(&world, batches, 3, &options);
        for (int i = 0; i < 3; i++)
            rig_batch_free(&batches[i]);
        options.accumulate = !options.accumulate;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes),
        cmocka_unit_test(options),
        cmocka_unit_test(layouts),
        cmocka_unit_test(routings),
        cmocka_unit_test(gradients_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
