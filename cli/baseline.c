/* The same matrix products, by OpenBLAS alone. */
#include "baseline.h"

#include <cblas.h>
#include <pthread.h>
#include <stdatomic.h>
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
    *baseline = (struct baseline){
        .hidden = hidden, .intermediate = intermediate, .experts = experts, .redo = redo, .threads = threads};
    baseline->first = malloc((size_t)(experts + 1) * sizeof *baseline->first);
    if (!baseline->first)
        return -1;
    baseline->first[0] = 0;
    for (int64_t e = 0; e < experts; e++)
        baseline->first[e + 1] = baseline->first[e] + rows[e];
    int64_t all = baseline->first[experts];
    baseline->tokens = make_floats(all * hidden, 1);
    baseline->outputs = make_floats(all * hidden, 2);
    baseline->gate_ups = make_floats(all * 2 * intermediate, 3);
    baseline->hiddens = make_floats(all * intermediate, 4);
    baseline->weights = make_floats(experts * 3 * intermediate * hidden, 5);
    baseline->gradients = make_floats(experts * 3 * intermediate * hidden, 6);
    bool good = baseline->tokens && baseline->outputs && baseline->gate_ups && baseline->hiddens && baseline->weights &&
                baseline->gradients;
    return good ? 0 : -1;
}

void baseline_close(struct baseline *baseline) {
    free(baseline->first);
    free(baseline->tokens);
    free(baseline->outputs);
    free(baseline->gate_ups);
    free(baseline->hiddens);
    free(baseline->weights);
    free(baseline->gradients);
    *baseline = (struct baseline){0};
}

/* ---- One expert ---- */

struct operands {
    int64_t rows;
    float *tokens, *outputs, *gate_ups, *hiddens;
    float *gate_up, *down, *dgate_up, *ddown;
};

static struct operands operands_of(const struct baseline *b, int64_t expert) {
    int64_t first = b->first[expert], matrix = b->intermediate * b->hidden;
    float *weights = b->weights + expert * 3 * matrix, *gradients = b->gradients + expert * 3 * matrix;
    return (struct operands){
        .rows = b->first[expert + 1] - first,
        .tokens = b->tokens + first * b->hidden,
        .outputs = b->outputs + first * b->hidden,
        .gate_ups = b->gate_ups + first * 2 * b->intermediate,
        .hiddens = b->hiddens + first * b->intermediate,
        .gate_up = weights,
        .down = weights + 2 * matrix,
        .dgate_up = gradients,
        .ddown = gradients + 2 * matrix,
    };
}

/* out [m,n] = a [m,k] * b, where b is stored [n,k] */
static void times_transposed(int64_t m, int64_t n, int64_t k, const float *a, const float *b, float *out) {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (blasint)m, (blasint)n, (blasint)k, 1, a, (blasint)k, b,
                (blasint)k, 0, out, (blasint)n);
}

/* out [m,n] = a [m,k] * b [k,n] */
static void times(int64_t m, int64_t n, int64_t k, const float *a, const float *b, float *out) {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (blasint)m, (blasint)n, (blasint)k, 1, a, (blasint)k, b,
                (blasint)n, 0, out, (blasint)n);
}

/* out [m,n] = a stored [k,m], transposed, * b [k,n] */
static void transposed_times(int64_t m, int64_t n, int64_t k, const float *a, const float *b, float *out) {
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (blasint)m, (blasint)n, (blasint)k, 1, a, (blasint)m, b,
                (blasint)n, 0, out, (blasint)n);
}

static void gate_up(const struct baseline *b, const struct operands *o) {
    times_transposed(o->rows, 2 * b->intermediate, b->hidden, o->tokens, o->gate_up, o->gate_ups);
}

static void forward(const struct baseline *b, const struct operands *o) {
    gate_up(b, o);
    times_transposed(o->rows, b->hidden, b->intermediate, o->hiddens, o->down, o->outputs);
}

static void backward(const struct baseline *b, const struct operands *o) {
    if (b->redo)
        gate_up(b, o);
    times(o->rows, b->intermediate, b->hidden, o->tokens, o->down, o->hiddens);
    times(o->rows, b->hidden, 2 * b->intermediate, o->gate_ups, o->gate_up, o->outputs);
    transposed_times(2 * b->intermediate, b->hidden, o->rows, o->gate_ups, o->tokens, o->dgate_up);
    transposed_times(b->hidden, b->intermediate, o->rows, o->tokens, o->hiddens, o->ddown);
}

/* ---- All experts ---- */

typedef void products(const struct baseline *baseline, const struct operands *operands);

/* Experts are taken one after the other, by one thread or by several. */
struct round {
    const struct baseline *baseline;
    products *work;
    _Atomic int64_t next;
};

static void *take_experts(void *argument) {
    struct round *round = argument;
    for (int64_t e; (e = atomic_fetch_add(&round->next, 1)) < round->baseline->experts;) {
        struct operands operands = operands_of(round->baseline, e);
        if (operands.rows > 0)
            round->work(round->baseline, &operands);
    }
    return NULL;
}

/* With this thread and `others`; a thread that can't be had leaves its work to the rest. */
static void share_experts(struct round *round, int others) {
    pthread_t threads[BASELINE_MAX_THREADS];
    int started = 0;
    while (started < others && !pthread_create(&threads[started], NULL, take_experts, round))
        started++;
    take_experts(round);
    while (started > 0)
        pthread_join(threads[--started], NULL);
}

static double all_experts(const struct baseline *b, enum baseline_way way, products *work) {
    int threads_before = openblas_get_num_threads();
    struct round round = {.baseline = b, .work = work};
    openblas_set_num_threads(way == BASELINE_SPLIT ? b->threads : 1);
    double start = clock_now();
    share_experts(&round, way == BASELINE_SPLIT ? 0 : b->threads - 1);
    double seconds = clock_now() - start;
    openblas_set_num_threads(threads_before);
    return seconds;
}

double baseline_forward(const struct baseline *baseline, enum baseline_way way) {
    return all_experts(baseline, way, forward);
}

double baseline_backward(const struct baseline *baseline, enum baseline_way way) {
    return all_experts(baseline, way, backward);
}

/* ---- Between measurements ---- */

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
