/* The rounding points: the layer against its formula with each rounding of the contract, and no other, written out.
 *
 * What differs is the order of fp32 sums alone, so nearly all bits are equal; a rounding too many, too few or in
 * another place would be an error of about 2^-9. */
#include "rig/rig.h"

#include <math.h>
#include <stdlib.h>

#include "base/bf16.h"
#include "oracle/oracle.h"

#define HIDDEN 48
#define INNER 40
#define EXPERTS 4
#define TOP_K 2
#define TOKENS 60

/* A number in memory as bf16 holds it. */
static double rounded(double value) {
    return mm_bf16_to_float(mm_bf16_from_float((float)value));
}

static double widen(uint16_t value) {
    return mm_bf16_to_float(value);
}

struct model {
    double y[TOKENS][HIDDEN], dx[TOKENS][HIDDEN], dweights[TOKENS * TOP_K];
    double dgate[EXPERTS * INNER * HIDDEN], dup[EXPERTS * INNER * HIDDEN], ddown[EXPERTS * INNER * HIDDEN];
};

/* One slot: adds its row to y and dx, and its part to the gradients of its expert's weights. */
static void add_slot(const struct rig_batch *batch, int64_t slot, struct model *model) {
    const bool on_input = batch->layer.weight_on == MMOE_WEIGHT_ON_INPUT;
    const double limit = batch->layer.limit > 0 ? (double)batch->layer.limit : INFINITY;
    const int64_t token = slot / TOP_K, expert = batch->ids[slot], first = expert * INNER * HIDDEN;
    const uint16_t *x = batch->x + token * HIDDEN, *dy = batch->dy + token * HIDDEN;
    const uint16_t *gate = batch->gate + first, *up = batch->up + first, *down = batch->down + first;
    const double w = batch->weights[slot], w_out = on_input ? 1 : w;
    double seen[HIDDEN], h[INNER], dgate[INNER], dup[INNER], h_weighted[INNER], dw = 0;
    for (int j = 0; j < HIDDEN; j++)
        seen[j] = on_input ? rounded(w * widen(x[j])) : widen(x[j]);
    for (int i = 0; i < INNER; i++) {
        double g = 0, u = 0, dh = 0;
        for (int j = 0; j < HIDDEN; j++) {
            g += seen[j] * widen(gate[i * HIDDEN + j]);
            u += seen[j] * widen(up[i * HIDDEN + j]);
            dh += widen(dy[j]) * widen(down[j * INNER + i]);
        }
        const double g_in = rounded(g), u_in = rounded(u);
        g = fmin(g_in, limit);
        u = fmax(fmin(u_in, limit), -limit);
        double s = 1 / (1 + exp(-g)), d = w_out * dh;
        h[i] = rounded(g * s * u);
        h_weighted[i] = rounded(w_out * (g * s * u));
        dgate[i] = g_in > limit ? 0 : rounded(d * u * s * (1 + g * (1 - s)));
        dup[i] = fabs(u_in) > limit ? 0 : rounded(d * g * s);
        dw += h[i] * dh;
    }
    for (int j = 0; j < HIDDEN; j++) {
        double out = 0, dx = 0;
        for (int i = 0; i < INNER; i++) {
            out += h[i] * widen(down[j * INNER + i]);
            dx += dgate[i] * widen(gate[i * HIDDEN + j]) + dup[i] * widen(up[i * HIDDEN + j]);
            model->dgate[first + i * HIDDEN + j] += dgate[i] * seen[j];
            model->dup[first + i * HIDDEN + j] += dup[i] * seen[j];
            model->ddown[first + j * INNER + i] += widen(dy[j]) * h_weighted[i];
        }
        model->y[token][j] += rounded(w_out * out);
        model->dx[token][j] += rounded(on_input ? w * dx : dx);
        if (on_input)
            model->dweights[slot] += widen(x[j]) * dx;
    }
    if (!on_input)
        model->dweights[slot] = dw;
}

/* Elements of a bf16 result that are not the model's, rounded. */
static int different(const uint16_t *value, const double *model, int64_t n) {
    int count = 0;
    for (int64_t i = 0; i < n; i++)
        count += widen(value[i]) != rounded(model[i]);
    return count;
}

static double error(const float *value, const double *model, int64_t n) {
    double *wide = malloc((size_t)n * sizeof *wide);
    for (int64_t i = 0; i < n; i++)
        wide[i] = value[i];
    double relative = oracle_relative_error(wide, model, n);
    free(wide);
    return relative;
}

static void roundings_are_where_the_contract_has_them(void **state) {
    (void)state;
    enum { VALUES = TOKENS * HIDDEN, STACK = EXPERTS * INNER * HIDDEN };
    const double bound = 2e-4; /* a tenth of what one rounding to bf16 costs */
    for (int form = 0; form < 4; form++) {
        mmoe_layer_config layer = rig_layer(HIDDEN, INNER, EXPERTS, TOP_K);
        layer.weight_on = form & 1 ? MMOE_WEIGHT_ON_INPUT : MMOE_WEIGHT_ON_OUTPUT;
        layer.limit = form & 2 ? 0.8f : 0;
        const int64_t tokens[1] = {TOKENS};
        struct rig_batch batch = rig_batch_make(&layer, 1, tokens, RIG_UNIFORM, 21);
        struct rig_world world = rig_world_for(&batch, 1, RIG_THREADS);
        const struct rig_options options = {.keep = form & 1 ? MMOE_KEEP_ROWS : MMOE_KEEP_PLAN};
        rig_run(&world, &batch, 1, &options);
        struct model *model = calloc(1, sizeof *model);
        for (int64_t slot = 0; slot < TOKENS * TOP_K; slot++)
            add_slot(&batch, slot, model);
        const double errors[] = {error(batch.dweights, model->dweights, TOKENS * TOP_K),
                                 error(batch.dgate, model->dgate, STACK), error(batch.dup, model->dup, STACK),
                                 error(batch.ddown, model->ddown, STACK)};
        int y = different(batch.y, model->y[0], VALUES), dx = different(batch.dx, model->dx[0], VALUES);
        print_message("weight on %s, limit %g: %d of %d y and %d dx differ; dw %.1e, dW1 %.1e, dW3 %.1e, dW2 %.1e\n",
                      form & 1 ? "input" : "output", (double)layer.limit, y, (int)VALUES, dx, errors[0], errors[1],
                      errors[2], errors[3]);
        assert_true(y <= VALUES / 100 && dx <= VALUES / 100);
        for (int i = 0; i < 4; i++)
            assert_true(errors[i] <= bound);
        free(model);
        rig_batch_free(&batch);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(roundings_are_where_the_contract_has_them)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
