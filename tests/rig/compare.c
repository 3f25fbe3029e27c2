/* Comparison with the oracle. */
#include "rig/compare.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* cmocka needs the headers above first */
#include <cmocka.h>

#include "base/bf16.h"
#include "oracle/oracle.h"

static const char *const result_name[6] = {"y", "dx", "dweights", "dgate", "dup", "ddown"};

static double *doubles(int64_t n) {
    double *values = calloc((size_t)n + 1, sizeof *values);
    assert_non_null(values);
    return values;
}

static double *from_bf16(const uint16_t *values, int64_t n) {
    double *out = doubles(n);
    for (int64_t i = 0; i < n; i++)
        out[i] = mm_bf16_to_float(values[i]);
    return out;
}

static double *from_float(const float *values, int64_t n) {
    double *out = doubles(n);
    for (int64_t i = 0; i < n; i++)
        out[i] = values[i];
    return out;
}

static struct oracle_layer oracle_of(const struct rig_batch *batch) {
    const mmoe_layer_config *config = &batch->layer;
    return (struct oracle_layer){.tokens = batch->total,
                                 .hidden = config->hidden,
                                 .intermediate = config->intermediate,
                                 .experts = config->experts,
                                 .top_k = config->top_k,
                                 .weight_on_input = config->weight_on == MMOE_WEIGHT_ON_INPUT,
                                 .limit = config->limit};
}

/* A batch's inputs in float64. */
struct inputs {
    double *x, *dy, *w, *gate, *up, *down;
};

static struct inputs inputs_of(const struct rig_batch *batch) {
    const int64_t values = rig_batch_values(batch), stack = rig_batch_stack(batch);
    return (struct inputs){
        from_bf16(batch->x, values),   from_bf16(batch->dy, values), from_float(batch->weights, rig_batch_slots(batch)),
        from_bf16(batch->gate, stack), from_bf16(batch->up, stack),  from_bf16(batch->down, stack)};
}

static void inputs_free(struct inputs *inputs) {
    double *arrays[] = {inputs->x, inputs->dy, inputs->w, inputs->gate, inputs->up, inputs->down};
    for (int i = 0; i < 6; i++)
        free(arrays[i]);
}

/* Of the forward alone; gradients are NULL until they are asked for. */
static struct rig_reference *forward_reference(struct rig_batch *batch) {
    if (batch->reference)
        return batch->reference;
    const struct oracle_layer layer = oracle_of(batch);
    struct inputs in = inputs_of(batch);
    struct rig_reference *made = calloc(1, sizeof *made);
    assert_non_null(made);
    made->y = doubles(rig_batch_values(batch));
    assert_int_equal(oracle_forward(&layer, in.x, batch->ids, in.w, in.gate, in.up, in.down, made->y), 0);
    inputs_free(&in);
    return batch->reference = made;
}

const struct rig_reference *rig_reference_of(struct rig_batch *batch) {
    struct rig_reference *made = forward_reference(batch);
    if (made->dx)
        return made;
    const int64_t stack = rig_batch_stack(batch);
    const struct oracle_layer layer = oracle_of(batch);
    struct inputs in = inputs_of(batch);
    made->dx = doubles(rig_batch_values(batch));
    made->dweights = doubles(rig_batch_slots(batch));
    made->dgate = doubles(stack);
    made->dup = doubles(stack);
    made->ddown = doubles(stack);
    assert_int_equal(oracle_backward(&layer, in.x, batch->ids, in.w, in.gate, in.up, in.down, in.dy, made->dx,
                                     made->dweights, made->dgate, made->dup, made->ddown),
                     0);
    inputs_free(&in);
    return made;
}

void rig_reference_free(struct rig_reference *reference) {
    if (!reference)
        return;
    double *arrays[] = {reference->y,     reference->dx,  reference->dweights,
                        reference->dgate, reference->dup, reference->ddown};
    for (int i = 0; i < 6; i++)
        free(arrays[i]);
    free(reference);
}

/* A result beside the oracle's, cut into one part a rank. */
struct pair {
    double *value;
    const double *reference;
    const float *start; /* what the oracle's is added to; NULL: nothing */
    int64_t part[MMOE_MAX_WORLD + 1];
};

static struct pair pair_of(struct rig_batch *batch, const struct rig_options *options, int result) {
    const struct rig_reference *reference = result == 0 ? forward_reference(batch) : rig_reference_of(batch);
    int64_t values = rig_batch_values(batch), slots = rig_batch_slots(batch), stack = rig_batch_stack(batch);
    const double *references[6] = {reference->y,     reference->dx,  reference->dweights,
                                   reference->dgate, reference->dup, reference->ddown};
    const float *stacks[3] = {batch->dgate, batch->dup, batch->ddown};
    struct pair pair = {.reference = references[result]};
    if (result < 2)
        pair.value = from_bf16(result == 0 ? batch->y : batch->dx, values);
    else
        pair.value = result == 2 ? from_float(batch->dweights, slots) : from_float(stacks[result - 3], stack);
    if (result >= 3 && options->accumulate)
        pair.start = batch->start + (result - 3) * stack;
    for (int r = 0; r <= batch->world; r++)
        pair.part[r] = result >= 3
                           ? stack / batch->world * r
                           : rig_batch_first(batch, r) * (result == 2 ? batch->layer.top_k : batch->layer.hidden);
    return pair;
}

static bool left_out(const struct rig_options *options, int rank, int result) {
    return result > 0 && (options->forward_only || (options->omit[rank] >> (RIG_DX + result - 1) & 1));
}

static double pair_error(const struct pair *pair, const struct rig_options *options, int world, int result) {
    int64_t n = pair->part[world];
    double *expected = doubles(n);
    for (int r = 0; r < world; r++)
        for (int64_t i = pair->part[r]; i < pair->part[r + 1]; i++) {
            expected[i] = pair->reference[i] + (pair->start ? pair->start[i] : 0);
            if (left_out(options, r, result))
                pair->value[i] = expected[i];
        }
    double error = oracle_relative_error(pair->value, expected, n);
    free(expected);
    return error;
}

void rig_errors(struct rig_batch *batch, const struct rig_options *options, double errors[6]) {
    for (int result = 0; result < 6; result++)
        errors[result] = 0;
    for (int result = 0; result < (options->forward_only ? 1 : 6); result++) {
        struct pair pair = pair_of(batch, options, result);
        errors[result] = pair_error(&pair, options, batch->world, result);
        free(pair.value);
    }
}

/* y, dx and dweights are exactly zero where no slot is used. */
static void check_unused_slots(const struct rig_batch *batch, const struct rig_options *options) {
    int64_t hidden = batch->layer.hidden, top_k = batch->layer.top_k;
    for (int r = 0; r < batch->world; r++)
        for (int64_t t = rig_batch_first(batch, r); t < rig_batch_first(batch, r + 1); t++) {
            bool used = false;
            for (int64_t k = 0; k < top_k; k++) {
                used = used || batch->ids[t * top_k + k] >= 0;
                if (batch->ids[t * top_k + k] < 0 && !left_out(options, r, 2) && batch->dweights[t * top_k + k] != 0)
                    fail_msg("dweights[%d, %d] of an unused slot is %g", (int)t, (int)k,
                             batch->dweights[t * top_k + k]);
            }
            for (int64_t h = 0; !used && h < hidden; h++)
                if ((batch->y[t * hidden + h] & 0x7fff) ||
                    (!left_out(options, r, 1) && (batch->dx[t * hidden + h] & 0x7fff)))
                    fail_msg("token %d uses no slot, but y or dx is not zero", (int)t);
        }
}

static bool expert_has_rows(const struct rig_batch *batch, int64_t expert) {
    for (int64_t s = 0; s < rig_batch_slots(batch); s++)
        if (batch->ids[s] == expert)
            return true;
    return false;
}

/* Gradients of an expert without rows are zeros, or the bits that were there. */
static void check_empty_experts(const struct rig_batch *batch, const struct rig_options *options) {
    int64_t matrix = batch->layer.hidden * batch->layer.intermediate, stack = rig_batch_stack(batch);
    const float *results[3] = {batch->dgate, batch->dup, batch->ddown};
    for (int64_t e = 0; e < batch->layer.experts; e++) {
        if (expert_has_rows(batch, e))
            continue;
        int rank = (int)(e / (batch->layer.experts / batch->world));
        for (int result = 3; result < 6; result++)
            for (int64_t i = e * matrix; !left_out(options, rank, result) && i < (e + 1) * matrix; i++) {
                float expected = options->accumulate ? batch->start[(result - 3) * stack + i] : 0;
                if (memcmp(&results[result - 3][i], &expected, sizeof expected) != 0)
                    fail_msg("%s of expert %d, which has no rows, holds %g, expected %g", result_name[result], (int)e,
                             results[result - 3][i], expected);
            }
    }
}

void rig_compare(struct rig_batch *batch, const struct rig_options *options, double bound) {
    double errors[6];
    rig_errors(batch, options, errors);
    for (int result = 0; result < 6; result++)
        if (!(errors[result] <= bound)) /* NaN is past every bound */
            fail_msg("%s: relative error %.3g, bound %.3g (W %d, N %d, H %d, I %d, E %d, K %d)", result_name[result],
                     errors[result], bound, batch->world, (int)batch->total, (int)batch->layer.hidden,
                     (int)batch->layer.intermediate, (int)batch->layer.experts, (int)batch->layer.top_k);
    check_unused_slots(batch, options);
    check_empty_experts(batch, options);
}

static void same(const void *a, const void *b, size_t bytes, const char *name, const char *what) {
    if (memcmp(a, b, bytes) != 0)
        fail_msg("%s: the bits of %s differ", what, name);
}

void rig_same_bits(const struct rig_batch *a, const struct rig_batch *b, const char *what) {
    size_t values = (size_t)rig_batch_values(a), slots = (size_t)rig_batch_slots(a), stack = (size_t)rig_batch_stack(a);
    same(a->y, b->y, values * sizeof *a->y, "y", what);
    same(a->dx, b->dx, values * sizeof *a->dx, "dx", what);
    same(a->dweights, b->dweights, slots * sizeof *a->dweights, "dweights", what);
    same(a->dgate, b->dgate, stack * sizeof *a->dgate, "dgate", what);
    same(a->dup, b->dup, stack * sizeof *a->dup, "dup", what);
    same(a->ddown, b->ddown, stack * sizeof *a->ddown, "ddown", what);
}

/* Elements first .. first+n-1 of both. */
static bool equal(const void *a, const void *b, int64_t first, int64_t n, size_t size) {
    return memcmp((const char *)a + (size_t)first * size, (const char *)b + (size_t)first * size, (size_t)n * size) ==
           0;
}

bool rig_rank_same_bits(const struct rig_rank *rank, const struct rig_batch *a, const struct rig_batch *b) {
    int64_t hidden = a->layer.hidden, top_k = a->layer.top_k, first = rig_batch_first(a, rank->rank);
    int64_t tokens = a->tokens[rank->rank], share = rig_batch_stack(a) / a->world, start = rank->rank * share;
    return equal(a->y, b->y, first * hidden, tokens * hidden, sizeof *a->y) &&
           equal(a->dx, b->dx, first * hidden, tokens * hidden, sizeof *a->dx) &&
           equal(a->dweights, b->dweights, first * top_k, tokens * top_k, sizeof *a->dweights) &&
           equal(a->dgate, b->dgate, start, share, sizeof *a->dgate) &&
           equal(a->dup, b->dup, start, share, sizeof *a->dup) &&
           equal(a->ddown, b->ddown, start, share, sizeof *a->ddown);
}
