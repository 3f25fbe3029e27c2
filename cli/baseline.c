/* The same matrix products, by OpenBLAS alone. */
#include "baseline.h"

#include <cblas.h>
#include <stdlib.h>
#include <time.h>

#include "clock.h"
#include "random.h"

/* Small numbers: sizes and signs as in a layer, and never denormal. */
static float *make_floats(int64_t count, uint64_t purpose) {
    float *out = malloc((size_t)count * sizeof *out + 1);
    uint64_t key = random_key(0, purpose);
    for (int64_t i = 0; out && i < count; i++)
        out[i] = random_normal(key, (uint64_t)i);
    return out;
}

int baseline_open(struct baseline *baseline, int64_t hidden, int64_t intermediate, int64_t experts, const int32_t *rows,
                  bool redo, int threads) {
    int64_t all = 0;
    *baseline = (struct baseline){
        .hidden = hidden, .intermediate = intermediate, .experts = experts, .redo = redo, .threads = threads};
    baseline->rows = malloc((size_t)experts * sizeof *baseline->rows);
    if (!baseline->rows)
        return -1;
    for (int64_t e = 0; e < experts; e++)
        all += baseline->rows[e] = rows[e];
    baseline->tokens = make_floats(all * hidden, 1);
    baseline->outputs = make_floats(all * hidden, 2);
    baseline->gates = make_floats(all * intermediate, 3);
    baseline->ups = make_floats(all * intermediate, 4);
    baseline->hiddens = make_floats(all * intermediate, 5);
    baseline->weights = make_floats(3 * experts * intermediate * hidden, 6);
    baseline->gradients = make_floats(3 * experts * intermediate * hidden, 7);
    bool good = baseline->tokens && baseline->outputs && baseline->gates && baseline->ups && baseline->hiddens &&
                baseline->weights && baseline->gradients;
    return good ? 0 : -1;
}

void baseline_close(struct baseline *baseline) {
    free(baseline->rows);
    free(baseline->tokens);
    free(baseline->outputs);
    free(baseline->gates);
    free(baseline->ups);
    free(baseline->hiddens);
    free(baseline->weights);
    free(baseline->gradients);
    *baseline = (struct baseline){0};
}

/* One expert's operands. */
struct operands {
    float *tokens, *outputs, *gates, *ups, *hiddens;
    float *gate, *up, *down, *dgate, *dup, *ddown;
};

/* out [m,n] = a [m,k] * b, where b is stored [n,k] */
static void times_transposed(int64_t m, int64_t n, int64_t k, const float *a, const float *b, float *out) {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (blasint)m, (blasint)n, (blasint)k, 1, a, (blasint)k, b,
                (blasint)k, 0, out, (blasint)n);
}

/* out [m,n] = a [m,k] * b [k,n] + beta * out */
static void times(int64_t m, int64_t n, int64_t k, const float *a, const float *b, float beta, float *out) {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (blasint)m, (blasint)n, (blasint)k, 1, a, (blasint)k, b,
                (blasint)n, beta, out, (blasint)n);
}

/* out [m,n] = a stored [k,m], transposed, * b [k,n] */
static void transposed_times(int64_t m, int64_t n, int64_t k, const float *a, const float *b, float *out) {
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (blasint)m, (blasint)n, (blasint)k, 1, a, (blasint)m, b,
                (blasint)n, 0, out, (blasint)n);
}

static void gate_up(const struct baseline *b, const struct operands *o, int64_t rows) {
    times_transposed(rows, b->intermediate, b->hidden, o->tokens, o->gate, o->gates);
    times_transposed(rows, b->intermediate, b->hidden, o->tokens, o->up, o->ups);
}

static void forward(const struct baseline *b, const struct operands *o, int64_t rows) {
    gate_up(b, o, rows);
    times_transposed(rows, b->hidden, b->intermediate, o->hiddens, o->down, o->outputs);
}

static void backward(const struct baseline *b, const struct operands *o, int64_t rows) {
    if (b->redo)
        gate_up(b, o, rows);
    times(rows, b->intermediate, b->hidden, o->tokens, o->down, 0, o->hiddens);
    times(rows, b->hidden, b->intermediate, o->gates, o->gate, 0, o->outputs);
    times(rows, b->hidden, b->intermediate, o->ups, o->up, 1, o->outputs);
    transposed_times(b->intermediate, b->hidden, rows, o->gates, o->tokens, o->dgate);
    transposed_times(b->intermediate, b->hidden, rows, o->ups, o->tokens, o->dup);
    transposed_times(b->hidden, b->intermediate, rows, o->tokens, o->hiddens, o->ddown);
}

typedef void products(const struct baseline *baseline, const struct operands *operands, int64_t rows);

static double each_expert(struct baseline *b, products *work) {
    int threads_before = openblas_get_num_threads();
    int64_t first = 0, matrix = b->intermediate * b->hidden, stack = b->experts * matrix;
    openblas_set_num_threads(b->threads);
    double start = clock_now();
    for (int64_t e = 0; e < b->experts; first += b->rows[e++]) {
        struct operands operands = {
            .tokens = b->tokens + first * b->hidden,
            .outputs = b->outputs + first * b->hidden,
            .gates = b->gates + first * b->intermediate,
            .ups = b->ups + first * b->intermediate,
            .hiddens = b->hiddens + first * b->intermediate,
            .gate = b->weights + e * matrix,
            .up = b->weights + stack + e * matrix,
            .down = b->weights + 2 * stack + e * matrix,
            .dgate = b->gradients + e * matrix,
            .dup = b->gradients + stack + e * matrix,
            .ddown = b->gradients + 2 * stack + e * matrix,
        };
        if (b->rows[e] > 0)
            work(b, &operands, b->rows[e]);
    }
    double seconds = clock_now() - start;
    openblas_set_num_threads(threads_before);
    return seconds;
}

/* Seconds of all cores that this process has used. */
static double used(void) {
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

void baseline_rest(void) {
    const struct timespec nap = {.tv_nsec = 10000000};
    const double longest = 1.0;
    for (double start = clock_now(); clock_now() - start < longest;) {
        double before = used();
        nanosleep(&nap, NULL);
        if (used() - before < 1e-3)
            return;
    }
}

double baseline_forward(struct baseline *baseline) {
    return each_expert(baseline, forward);
}

double baseline_backward(struct baseline *baseline) {
    return each_expert(baseline, backward);
}
