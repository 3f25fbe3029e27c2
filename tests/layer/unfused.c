/* The usual unfused pipeline, one row at a time: fp32 accumulation, bf16 between the steps. The order of the rows is
 * that of the slots, which changes no rounding point. */
#include "unfused.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"

static float rounded(float value) {
    return mm_bf16_to_float(mm_bf16_from_float(value));
}

/* out[r] = bf16(sum over c of matrix[r,c] * vector[c]) */
static void multiply(const float *matrix, const float *vector, int64_t rows, int64_t cols, float *out) {
    for (int64_t r = 0; r < rows; r++) {
        float sum = 0;
        for (int64_t c = 0; c < cols; c++)
            sum += matrix[r * cols + c] * vector[c];
        out[r] = rounded(sum);
    }
}

/* out[c] = bf16(sum over r of vector[r] * matrix[r,c]) */
static void multiply_transposed(const float *matrix, const float *vector, int64_t rows, int64_t cols, float *out) {
    memset(out, 0, (size_t)cols * sizeof *out);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            out[c] += vector[r] * matrix[r * cols + c];
    for (int64_t c = 0; c < cols; c++)
        out[c] = rounded(out[c]);
}

static void add_outer(float *matrix, const float *a, const float *b, int64_t rows, int64_t cols) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            matrix[r * cols + c] += a[r] * b[c];
}

static float *widen(const uint16_t *values, int64_t n) {
    float *out = malloc((size_t)n * sizeof *out);
    if (!out)
        abort();
    for (int64_t i = 0; i < n; i++)
        out[i] = mm_bf16_to_float(values[i]);
    return out;
}

static float *zeros(int64_t n) {
    float *out = calloc((size_t)n, sizeof *out);
    if (!out)
        abort();
    return out;
}

/* The batch in fp32, and the vectors of one row. */
struct pipeline {
    int64_t hidden, inner;
    float *x, *dy, *gate, *up, *down;                     /* [N,H], [N,H], [E,I,H], [E,I,H], [E,H,I] */
    float *g, *u, *h, *dh, *dg, *du;                      /* [I] */
    float *out, *dout, *dx_gate, *dx_up, *sum_y, *sum_dx; /* [H] */
};

static struct pipeline pipeline_make(const struct rig_batch *batch) {
    int64_t hidden = batch->layer.hidden, inner = batch->layer.intermediate;
    int64_t values = rig_batch_values(batch), stack = rig_batch_stack(batch);
    return (struct pipeline){
        .hidden = hidden,
        .inner = inner,
        .x = widen(batch->x, values),
        .dy = widen(batch->dy, values),
        .gate = widen(batch->gate, stack),
        .up = widen(batch->up, stack),
        .down = widen(batch->down, stack),
        .g = zeros(inner),
        .u = zeros(inner),
        .h = zeros(inner),
        .dh = zeros(inner),
        .dg = zeros(inner),
        .du = zeros(inner),
        .out = zeros(hidden),
        .dout = zeros(hidden),
        .dx_gate = zeros(hidden),
        .dx_up = zeros(hidden),
        .sum_y = zeros(hidden),
        .sum_dx = zeros(hidden),
    };
}

static void pipeline_free(struct pipeline *p) {
    float *arrays[] = {p->x,  p->dy, p->gate, p->up,   p->down,    p->g,     p->u,     p->h,     p->dh,
                       p->dg, p->du, p->out,  p->dout, p->dx_gate, p->dx_up, p->sum_y, p->sum_dx};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        free(arrays[i]);
}

static void row_forward(struct pipeline *p, const float *x, int64_t matrix) {
    multiply(p->gate + matrix, x, p->inner, p->hidden, p->g);
    multiply(p->up + matrix, x, p->inner, p->hidden, p->u);
    for (int64_t i = 0; i < p->inner; i++)
        p->h[i] = rounded(p->g[i] / (1 + expf(-p->g[i])) * p->u[i]);
    multiply(p->down + matrix, p->h, p->hidden, p->inner, p->out);
}

/* Returns dw. */
static float row_backward(struct pipeline *p, const float *dy, float weight, int64_t matrix) {
    float dw = 0;
    for (int64_t h = 0; h < p->hidden; h++) {
        dw += p->out[h] * dy[h];
        p->dout[h] = rounded(weight * dy[h]);
    }
    multiply_transposed(p->down + matrix, p->dout, p->hidden, p->inner, p->dh);
    for (int64_t i = 0; i < p->inner; i++) {
        float s = 1 / (1 + expf(-p->g[i]));
        p->dg[i] = rounded(p->dh[i] * p->u[i] * s * (1 + p->g[i] * (1 - s)));
        p->du[i] = rounded(p->dh[i] * p->g[i] * s);
    }
    multiply_transposed(p->gate + matrix, p->dg, p->inner, p->hidden, p->dx_gate);
    multiply_transposed(p->up + matrix, p->du, p->inner, p->hidden, p->dx_up);
    return dw;
}

static void slot(struct pipeline *p, struct rig_batch *batch, int64_t s) {
    int64_t token = s / batch->layer.top_k * p->hidden, matrix = batch->ids[s] * p->hidden * p->inner;
    float weight = batch->weights[s];
    row_forward(p, p->x + token, matrix);
    batch->dweights[s] = row_backward(p, p->dy + token, weight, matrix);
    for (int64_t h = 0; h < p->hidden; h++) {
        p->sum_y[h] += rounded(weight * p->out[h]);
        p->sum_dx[h] += rounded(p->dx_gate[h] + p->dx_up[h]);
    }
    add_outer(batch->dgate + matrix, p->dg, p->x + token, p->inner, p->hidden);
    add_outer(batch->dup + matrix, p->du, p->x + token, p->inner, p->hidden);
    add_outer(batch->ddown + matrix, p->dout, p->h, p->hidden, p->inner);
}

void unfused_step(struct rig_batch *batch) {
    struct pipeline p = pipeline_make(batch);
    size_t stack = (size_t)rig_batch_stack(batch) * sizeof(float), row = (size_t)p.hidden * sizeof(float);
    memset(batch->dgate, 0, stack);
    memset(batch->dup, 0, stack);
    memset(batch->ddown, 0, stack);
    for (int64_t t = 0; t < batch->total; t++) {
        memset(p.sum_y, 0, row);
        memset(p.sum_dx, 0, row);
        for (int64_t k = 0; k < batch->layer.top_k; k++)
            slot(&p, batch, t * batch->layer.top_k + k);
        for (int64_t h = 0; h < p.hidden; h++) {
            batch->y[t * p.hidden + h] = mm_bf16_from_float(p.sum_y[h]);
            batch->dx[t * p.hidden + h] = mm_bf16_from_float(p.sum_dx[h]);
        }
    }
    pipeline_free(&p);
}
