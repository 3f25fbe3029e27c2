/* The forward on one GPU against the oracle, without any gradient. MMOE_TEST_BACKEND is "cuda"; the GPU may be a
 * simulated one. */
#include "layer/proof.h"

#define ALL_GRADIENTS (1u << RIG_DX | 1u << RIG_DWEIGHTS | 1u << RIG_DGATE | 1u << RIG_DUP | 1u << RIG_DDOWN)

static void shapes(void **state) {
    (void)state;
    const struct {
        int64_t hidden, intermediate, experts, top_k, tokens;
    } shapes[] = {{64, 64, 1, 1, 300}, {64, 320, 8, 3, 20}, {320, 64, 3, 2, 40}, {192, 448, 2, 2, 35}};
    const int count = sizeof shapes / sizeof shapes[0];
    for (int i = 0; i < rig_scaled("shapes of the forward", count, 2); i++) {
        mmoe_layer_config layer =
            rig_layer(shapes[i].hidden, shapes[i].intermediate, shapes[i].experts, shapes[i].top_k);
        layer.limit = i % 3 == 2 ? 0.75f : 0;
        const struct rig_options options = {.keep = i % 2 == 0 ? MMOE_KEEP_PLAN : MMOE_KEEP_ROWS,
                                            .omit = {ALL_GRADIENTS}};
        prove_layer(&layer, 1, RIG_THREADS, shapes[i].tokens, EITHER_SIGN, &options);
    }
}

static void layouts(void **state) {
    (void)state;
    const enum rig_layout layouts[] = {RIG_OFFSET, RIG_TRANSPOSED, RIG_SLICED, RIG_NEGATIVE};
    const enum rig_operand operands[] = {RIG_X, RIG_IDS, RIG_WEIGHTS, RIG_Y};
    mmoe_layer_config layer = rig_layer(64, 64, 2, 2);
    for (size_t l = 0; l < sizeof layouts / sizeof layouts[0]; l++) {
        struct rig_options options = {.keep = MMOE_KEEP_PLAN, .omit = {ALL_GRADIENTS}};
        for (size_t i = 0; i < sizeof operands / sizeof operands[0]; i++)
            options.layout[operands[i]] = layouts[l];
        for (int operand = RIG_GATE; operand <= RIG_DOWN; operand++)
            options.layout[operand] = l % 2 == 0 ? RIG_SCATTERED : RIG_CONTIGUOUS;
        prove_layer(&layer, 1, RIG_THREADS, 30, EITHER_SIGN, &options);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(shapes), cmocka_unit_test(layouts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
