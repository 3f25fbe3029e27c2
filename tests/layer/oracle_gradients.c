/* The oracle's gradients against central differences of its own forward, all in float64. */
#include "rig/rig.h"

#include <string.h>

#include "oracle/oracle.h"

#define TOKENS 4
#define HIDDEN 5
#define INTERMEDIATE 6
#define EXPERTS 3
#define TOP_K 3
#define STACK (EXPERTS * HIDDEN * INTERMEDIATE)
#define STEP 1e-5
#define KINK 1e-3 /* least distance of g and u from the limit */

/* Inputs one after another, so that one loop moves each of them. */
struct point {
    double x[TOKENS * HIDDEN], w[TOKENS * TOP_K], gate[STACK], up[STACK], down[STACK];
};
#define POINT_VALUES (sizeof(struct point) / sizeof(double))

/* A token with an expert twice, one with unused slots, one with none used; expert 1 has one row. */
static const int64_t ids[TOKENS * TOP_K] = {0, 0, 2, -1, 2, 1, 2, -1, 0, -1, -1, -1};

static void fill(double *values, size_t n, struct rig_random *random) {
    for (size_t i = 0; i < n; i++)
        values[i] = rig_normal(random);
}

/* The scalar whose gradient is checked: sum of y * dy. */
static double objective(const struct oracle_layer *layer, const struct point *at, const double *dy) {
    double y[TOKENS * HIDDEN], sum = 0;
    assert_int_equal(oracle_forward(layer, at->x, ids, at->w, at->gate, at->up, at->down, y), 0);
    for (int i = 0; i < TOKENS * HIDDEN; i++)
        sum += y[i] * dy[i];
    return sum;
}

/* Counts g above the limit and |u| above it, and tells whether any lies too near for a difference. */
struct kinks {
    int gate_clipped, up_clipped, open, near;
};

static struct kinks count_kinks(const struct oracle_layer *layer, const struct point *at) {
    struct kinks kinks = {0};
    for (int s = 0; s < TOKENS * TOP_K; s++)
        for (int i = 0; ids[s] >= 0 && i < INTERMEDIATE; i++) {
            double g = 0, u = 0, scale = layer->weight_on_input ? at->w[s] : 1;
            for (int h = 0; h < HIDDEN; h++) {
                g += at->gate[(ids[s] * INTERMEDIATE + i) * HIDDEN + h] * at->x[s / TOP_K * HIDDEN + h] * scale;
                u += at->up[(ids[s] * INTERMEDIATE + i) * HIDDEN + h] * at->x[s / TOP_K * HIDDEN + h] * scale;
            }
            kinks.gate_clipped += g > layer->limit;
            kinks.up_clipped += fabs(u) > layer->limit;
            kinks.open += g < layer->limit && fabs(u) < layer->limit;
            kinks.near += fabs(g - layer->limit) < KINK || fabs(fabs(u) - layer->limit) < KINK;
        }
    return kinks;
}

static void check_gradients(int weight_on_input, double limit) {
    struct oracle_layer layer = {.tokens = TOKENS,
                                 .hidden = HIDDEN,
                                 .intermediate = INTERMEDIATE,
                                 .experts = EXPERTS,
                                 .top_k = TOP_K,
                                 .weight_on_input = weight_on_input,
                                 .limit = limit};
    struct rig_random random = rig_seed(7);
    struct point at, gradient;
    double dy[TOKENS * HIDDEN];
    fill(dy, TOKENS * HIDDEN, &random);
    do
        fill((double *)&at, POINT_VALUES, &random);
    while (limit > 0 && count_kinks(&layer, &at).near);
    if (limit > 0) {
        struct kinks kinks = count_kinks(&layer, &at);
        assert_true(kinks.gate_clipped > 4 && kinks.up_clipped > 4 && kinks.open > 4);
    }
    assert_int_equal(oracle_backward(&layer, at.x, ids, at.w, at.gate, at.up, at.down, dy, gradient.x, gradient.w,
                                     gradient.gate, gradient.up, gradient.down),
                     0);
    double *value = (double *)&at, *slope = (double *)&gradient;
    for (size_t i = 0; i < POINT_VALUES; i++) {
        double kept = value[i];
        value[i] = kept + STEP;
        double above = objective(&layer, &at, dy);
        value[i] = kept - STEP;
        double below = objective(&layer, &at, dy);
        value[i] = kept;
        double difference = (above - below) / (2 * STEP);
        if (!(fabs(difference - slope[i]) <= 1e-7 * (1 + fabs(slope[i]))))
            fail_msg("value %d: difference %.12g, gradient %.12g", (int)i, difference, slope[i]);
    }
}

static void weight_on_output(void **state) {
    (void)state;
    check_gradients(0, 0);
}

static void weight_on_input(void **state) {
    (void)state;
    check_gradients(1, 0);
}

static void limit_with_weight_on_output(void **state) {
    (void)state;
    check_gradients(0, 0.9);
}

static void limit_with_weight_on_input(void **state) {
    (void)state;
    check_gradients(1, 0.6);
}

/* Each gradient alone has the bits it has among the others. */
static void absent_gradients_change_nothing(void **state) {
    (void)state;
    struct oracle_layer layer = {TOKENS, HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, 0, 0};
    struct rig_random random = rig_seed(8);
    struct point at, all, one;
    double dy[TOKENS * HIDDEN];
    fill((double *)&at, POINT_VALUES, &random);
    fill(dy, TOKENS * HIDDEN, &random);
    assert_int_equal(
        oracle_backward(&layer, at.x, ids, at.w, at.gate, at.up, at.down, dy, all.x, all.w, all.gate, all.up, all.down),
        0);
    memset(&one, 0, sizeof one);
    double *parts[5] = {one.x, one.w, one.gate, one.up, one.down};
    for (int only = 0; only < 5; only++) {
        double *want[5] = {NULL};
        want[only] = parts[only];
        assert_int_equal(oracle_backward(&layer, at.x, ids, at.w, at.gate, at.up, at.down, dy, want[0], want[1],
                                         want[2], want[3], want[4]),
                         0);
    }
    assert_memory_equal(&one, &all, sizeof all);
}

static void relative_error_of_special_values(void **state) {
    (void)state;
    const double zero[2] = {0, 0}, one[2] = {3, 4}, two[2] = {3, 9}, bad[2] = {3, NAN};
    assert_true(oracle_relative_error(zero, zero, 2) == 0);
    assert_true(isinf(oracle_relative_error(one, zero, 2)));
    assert_true(isnan(oracle_relative_error(bad, one, 2)));
    assert_true(oracle_relative_error(two, one, 2) == 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weight_on_output),
        cmocka_unit_test(weight_on_input),
        cmocka_unit_test(limit_with_weight_on_output),
        cmocka_unit_test(limit_with_weight_on_input),
        cmocka_unit_test(absent_gradients_change_nothing),
        cmocka_unit_test(relative_error_of_special_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
