/* The layer as its formula, one token and one slot at a time, in float64. See oracle.h. */
#include "oracle/oracle.h"

#include <math.h>
#include <stdlib.h>

static double sigmoid(double z) {
    return 1.0 / (1.0 + exp(-z));
}
static double silu(double z) {
    return z * sigmoid(z);
}
static double silu_slope(double z) {
    return sigmoid(z) * (1.0 + z * (1.0 - sigmoid(z)));
}

/* One slot's intermediate values, and gradients of them. */
struct slot {
    double *input;                 /* [H] what the expert sees */
    double *gate, *up, *hidden;    /* [I] g, u before the limit; silu(g') * u' */
    double *dhidden, *dgate, *dup; /* [I] */
    double *dinput;                /* [H] */
};

static int slot_make(struct slot *slot, const struct oracle_layer *layer) {
    size_t h = (size_t)layer->hidden, i = (size_t)layer->intermediate;
    double *block = calloc(2 * h + 6 * i + 1, sizeof *block);
    if (!block)
        return -1;
    *slot = (struct slot){.input = block,
                          .dinput = block + h,
                          .gate = block + 2 * h,
                          .up = block + 2 * h + i,
                          .hidden = block + 2 * h + 2 * i,
                          .dhidden = block + 2 * h + 3 * i,
                          .dgate = block + 2 * h + 4 * i,
                          .dup = block + 2 * h + 5 * i};
    return 0;
}

static void slot_free(struct slot *slot) {
    free(slot->input);
}

/* out[r] = sum over c of matrix[r,c] * vector[c] */
static void multiply(const double *matrix, const double *vector, int64_t rows, int64_t cols, double *out) {
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0;
        for (int64_t c = 0; c < cols; c++)
            sum += matrix[r * cols + c] * vector[c];
        out[r] = sum;
    }
}

/* out[c] += sum over r of vector[r] * matrix[r,c] */
static void add_transposed(const double *matrix, const double *vector, int64_t rows, int64_t cols, double *out) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            out[c] += vector[r] * matrix[r * cols + c];
}

/* matrix[r,c] += scale * a[r] * b[c] */
static void add_outer(double *matrix, double scale, const double *a, const double *b, int64_t rows, int64_t cols) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            matrix[r * cols + c] += scale * a[r] * b[c];
}

static double limited_gate(double g, double limit) {
    return limit > 0 && g > limit ? limit : g;
}

static double limited_up(double u, double limit) {
    if (limit > 0 && u > limit)
        return limit;
    return limit > 0 && u < -limit ? -limit : u;
}

/* The expert up to silu(g') * u', for x [H] and weight w. gate and up are its own [I,H]. */
static void slot_hidden(struct slot *slot, const struct oracle_layer *layer, const double *x, double w,
                        const double *gate, const double *up) {
    int64_t hidden = layer->hidden, intermediate = layer->intermediate;
    for (int64_t h = 0; h < hidden; h++)
        slot->input[h] = layer->weight_on_input ? w * x[h] : x[h];
    multiply(gate, slot->input, intermediate, hidden, slot->gate);
    multiply(up, slot->input, intermediate, hidden, slot->up);
    for (int64_t i = 0; i < intermediate; i++)
        slot->hidden[i] = silu(limited_gate(slot->gate[i], layer->limit)) * limited_up(slot->up[i], layer->limit);
}

int oracle_forward(const struct oracle_layer *layer, const double *x, const int64_t *ids, const double *w,
                   const double *gate, const double *up, const double *down, double *y) {
    int64_t hidden = layer->hidden, intermediate = layer->intermediate, top_k = layer->top_k;
    struct slot slot;
    if (slot_make(&slot, layer))
        return -1;
    for (int64_t n = 0; n < layer->tokens * hidden; n++)
        y[n] = 0;
    for (int64_t s = 0; s < layer->tokens * top_k; s++) {
        if (ids[s] < 0)
            continue;
        int64_t t = s / top_k, matrix = ids[s] * hidden * intermediate;
        slot_hidden(&slot, layer, x + t * hidden, w[s], gate + matrix, up + matrix);
        double *out = slot.dinput; /* free in the forward */
        multiply(down + matrix, slot.hidden, hidden, intermediate, out);
        for (int64_t h = 0; h < hidden; h++)
            y[t * hidden + h] += layer->weight_on_input ? out[h] : w[s] * out[h];
    }
    slot_free(&slot);
    return 0;
}

/* From dhidden to the gradients of gate and up, before the limit. */
static void slot_dactivation(struct slot *slot, const struct oracle_layer *layer) {
    double limit = layer->limit;
    for (int64_t i = 0; i < layer->intermediate; i++) {
        double g = limited_gate(slot->gate[i], limit), u = limited_up(slot->up[i], limit);
        int gate_clipped = limit > 0 && slot->gate[i] > limit;
        int up_clipped = limit > 0 && fabs(slot->up[i]) > limit;
        slot->dgate[i] = gate_clipped ? 0 : slot->dhidden[i] * u * silu_slope(g);
        slot->dup[i] = up_clipped ? 0 : slot->dhidden[i] * silu(g);
    }
}

static void clear(double *values, int64_t n) {
    for (int64_t i = 0; values && i < n; i++)
        values[i] = 0;
}

static double dot(const double *a, const double *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

int oracle_backward(const struct oracle_layer *layer, const double *x, const int64_t *ids, const double *w,
                    const double *gate, const double *up, const double *down, const double *dy, double *dx, double *dw,
                    double *dgate, double *dup, double *ddown) {
    int64_t hidden = layer->hidden, intermediate = layer->intermediate, top_k = layer->top_k;
    int64_t stack = layer->experts * hidden * intermediate;
    struct slot slot;
    if (slot_make(&slot, layer))
        return -1;
    clear(dx, layer->tokens * hidden);
    clear(dw, layer->tokens * top_k);
    clear(dgate, stack);
    clear(dup, stack);
    clear(ddown, stack);
    for (int64_t s = 0; s < layer->tokens * top_k; s++) {
        if (ids[s] < 0)
            continue;
        int64_t t = s / top_k, matrix = ids[s] * hidden * intermediate;
        const double *token_x = x + t * hidden, *token_dy = dy + t * hidden;
        slot_hidden(&slot, layer, token_x, w[s], gate + matrix, up + matrix);

        /* dhidden = w * (dy * W2), or without w when the weight is on the input */
        double scale = layer->weight_on_input ? 1 : w[s];
        clear(slot.dhidden, intermediate);
        add_transposed(down + matrix, token_dy, hidden, intermediate, slot.dhidden);
        double dweight = dot(slot.hidden, slot.dhidden, intermediate);
        for (int64_t i = 0; i < intermediate; i++)
            slot.dhidden[i] *= scale;
        slot_dactivation(&slot, layer);
        clear(slot.dinput, hidden);
        add_transposed(gate + matrix, slot.dgate, intermediate, hidden, slot.dinput);
        add_transposed(up + matrix, slot.dup, intermediate, hidden, slot.dinput);
        if (layer->weight_on_input)
            dweight = dot(token_x, slot.dinput, hidden);

        if (dw)
            dw[s] = dweight;
        for (int64_t h = 0; dx && h < hidden; h++)
            dx[t * hidden + h] += layer->weight_on_input ? w[s] * slot.dinput[h] : slot.dinput[h];
        if (dgate)
            add_outer(dgate + matrix, 1, slot.dgate, slot.input, intermediate, hidden);
        if (dup)
            add_outer(dup + matrix, 1, slot.dup, slot.input, intermediate, hidden);
        if (ddown)
            add_outer(ddown + matrix, scale, token_dy, slot.hidden, hidden, intermediate);
    }
    slot_free(&slot);
    return 0;
}

double oracle_relative_error(const double *value, const double *reference, int64_t n) {
    double error = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        error += (value[i] - reference[i]) * (value[i] - reference[i]);
        norm += reference[i] * reference[i];
    }
    return error == 0 ? 0 : sqrt(error) / sqrt(norm);
}
