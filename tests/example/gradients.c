/* The gradients of the training program against differences of its loss.
 *
 * The program is included whole, so that its functions are tested as they are. First each dense function alone, in
 * float32 and without experts: the derivative along a random direction. Then the whole model with its bf16 experts:
 * the derivative of the loss along the gradient of each tensor, with a wider bound, since rounding to bf16 makes the
 * loss a staircase.
 */
#define main train_moe_main
#include "train_moe.c"
#undef main

#include <setjmp.h>

#include <cmocka.h>

enum { HIDDEN = 24, EXPERTS = 4, TOKENS = 64, CONTEXT = 3, EMBEDDING = 5, LAYERS = 2 };

/* A model of one rank with random gains, biases and routers, and a text of random letters. */
struct fixture {
    struct model m;
    struct rank r;
    mmoe_group *group;
    uint8_t letters[4000];
};

static double centred(int64_t index) {
    return random_at(7, STREAM_SAMPLE, index) - 0.5;
}

static int set_up(void **state, int64_t top_k) {
    struct fixture *f = calloc(1, sizeof *f);
    struct model *m = &f->m;
    m->options = (struct options){.ranks = 1, .steps = 10, .seed = 3, .tokens = TOKENS, .context = CONTEXT};
    m->options.embedding = EMBEDDING;
    m->options.hidden = HIDDEN;
    m->options.intermediate = 32;
    m->options.experts = EXPERTS;
    m->options.top_k = top_k;
    m->options.layers = LAYERS;
    for (size_t i = 0; i < sizeof f->letters; i++)
        f->letters[i] = (uint8_t)('a' + (int)(26 * random_at(5, STREAM_SAMPLE, (int64_t)i)));
    m->text = (struct text){f->letters, sizeof f->letters, sizeof f->letters - 200};
    make_model(m);
    for (int64_t l = 0; l <= LAYERS; l++)
        draw(m, m->at.gain[l], HIDDEN, 0.3);
    for (int64_t l = 0; l < LAYERS; l++) {
        draw(m, m->at.router[l], EXPERTS * HIDDEN, 0.5);
        for (int64_t e = 0; e < EXPERTS; e++)
            m->bias[l * EXPERTS + e] = (float)(0.2 * centred(l * EXPERTS + e));
    }
    draw(m, m->at.output, BYTES * HIDDEN, 0.5);

    mmoe_group_config config = mmoe_group_config_default();
    config.max_tokens = TOKENS;
    config.max_hidden = HIDDEN;
    config.max_top_k = top_k;
    config.max_experts = EXPERTS;
    check(mmoe_group_create_threads(&config, 1, &f->group), "group");
    make_rank(&f->r, m, 0);
    f->r.group = f->group;
    make_layers(&f->r);
    take_batch(&f->r, 1);
    *state = f;
    return 0;
}

static int two_experts(void **state) {
    return set_up(state, 2);
}

static int all_experts(void **state) {
    return set_up(state, EXPERTS);
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    destroy_layers(&f->r);
    mmoe_group_destroy(&f->group);
    clear_shelf(&f->r.shelf);
    clear_shelf(&f->m.shelf);
    free(f);
    return 0;
}

/* ---- Each dense function alone ---- */

/* The sum of c[i] * values[i], with random c: any output becomes a scalar whose gradient is c. */
static double weigh(const float *values, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += centred(i) * (double)values[i];
    return sum;
}

static void set_to_weights(float *gradient, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        gradient[i] = (float)centred(i);
}

typedef double scalar_of(struct fixture *f);

/* (scalar(values + step * direction) - scalar(values - step * direction)) / (2 * step) */
static double difference(struct fixture *f, scalar_of *scalar, float *values, const double *direction, int64_t count,
                         double step) {
    float *kept = malloc((size_t)count * sizeof *kept);
    memcpy(kept, values, (size_t)count * sizeof *kept);
    double side[2];
    for (int i = 0; i < 2; i++) {
        for (int64_t j = 0; j < count; j++)
            values[j] = (float)((double)kept[j] + (i == 0 ? step : -step) * direction[j]);
        side[i] = scalar(f);
    }
    memcpy(values, kept, (size_t)count * sizeof *kept);
    free(kept);
    return (side[0] - side[1]) / (2 * step);
}

/* Along three random directions the derivative is the product of gradient and direction. */
static void assert_gradient(struct fixture *f, scalar_of *scalar, float *values, const float *gradient, int64_t count) {
    double *direction = malloc((size_t)count * sizeof *direction);
    for (int64_t round = 0; round < 3; round++) {
        double product = 0, size = 0, squares = 0;
        for (int64_t i = 0; i < count; i++) {
            direction[i] = centred(1000003 * (round + 1) + i);
            product += (double)gradient[i] * direction[i];
            size += direction[i] * direction[i];
            squares += (double)(gradient[i] * gradient[i]);
        }
        double typical = sqrt(size * squares / (double)count);
        double found = difference(f, scalar, values, direction, count, 1e-2);
        if (!(typical > 0) || !(fabs(found - product) <= 3e-3 * typical))
            fail_msg("direction %d: %.9g by differences, %.9g by the gradient, usual size %.3g", (int)round, found,
                     product, typical);
    }
    free(direction);
}

/* The gradient of a replicated parameter: the sum over the blocks of tokens. Freed by the caller. */
static float *summed(const struct fixture *f, int64_t first, int64_t count) {
    float *sum = calloc((size_t)count, sizeof *sum);
    for (int64_t b = 0; b < TOKEN_BLOCKS; b++)
        for (int64_t i = 0; i < count; i++)
            sum[i] += f->m.block_gradient[b * f->m.at.replicated + first + i];
    return sum;
}

static void assert_parameter_gradient(struct fixture *f, scalar_of *scalar, int64_t first, int64_t count) {
    float *gradient = summed(f, first, count);
    assert_gradient(f, scalar, f->m.value + first, gradient, count);
    free(gradient);
}

static double input_output(struct fixture *f) {
    embed(&f->r, TOKENS);
    linear(&f->r, TOKENS, CONTEXT * EMBEDDING, HIDDEN, f->r.context, f->m.at.input, f->r.h[0]);
    return weigh(f->r.h[0], TOKENS * HIDDEN);
}

static void embedding_and_input(void **state) {
    struct fixture *f = *state;
    input_output(f);
    set_to_weights(f->r.dh, TOKENS * HIDDEN);
    linear_backward(&f->r, CONTEXT * EMBEDDING, HIDDEN, f->r.context, f->m.at.input, f->r.dh, 0, f->r.context);
    embed_backward(&f->r, f->r.context);
    assert_parameter_gradient(f, input_output, f->m.at.input, HIDDEN * CONTEXT * EMBEDDING);
    assert_parameter_gradient(f, input_output, f->m.at.embedding + 'a' * EMBEDDING, 26 * EMBEDDING);
}

static double norm_output(struct fixture *f) {
    normalise(&f->r, 1, TOKENS);
    return weigh(f->r.a[1], TOKENS * HIDDEN);
}

static void norm(void **state) {
    struct fixture *f = *state;
    for (int64_t i = 0; i < TOKENS * HIDDEN; i++)
        f->r.h[1][i] = (float)(3 * centred(5000 + i));
    norm_output(f);
    set_to_weights(f->r.da, TOKENS * HIDDEN);
    normalise_backward(&f->r, 1);
    assert_gradient(f, norm_output, f->r.h[1], f->r.dh, TOKENS * HIDDEN);
    assert_parameter_gradient(f, norm_output, f->m.at.gain[1], HIDDEN);
}

static double router_output(struct fixture *f) {
    int32_t before[TOKENS * 2];
    memcpy(before, f->r.ids[0], sizeof before);
    route(&f->r, 0, TOKENS);
    assert_memory_equal(before, f->r.ids[0], sizeof before); /* a small change of the scores changes no choice */
    return weigh(f->r.w[0], TOKENS * 2);
}

/* Few different tokens, so that none is near the point where another expert would be chosen. */
static void router(void **state) {
    struct fixture *f = *state;
    for (int64_t t = 0; t < TOKENS; t++)
        for (int64_t i = 0; i < HIDDEN; i++)
            f->r.a[0][t * HIDDEN + i] = (float)centred(9000 + t % 4 * HIDDEN + i);
    route(&f->r, 0, TOKENS);
    router_output(f);
    set_to_weights(f->r.dw, TOKENS * 2);
    route_backward(&f->r, 0);
    assert_gradient(f, router_output, f->r.a[0], f->r.da, TOKENS * HIDDEN);
    assert_parameter_gradient(f, router_output, f->m.at.router[0], EXPERTS * HIDDEN);
}

enum { LOGITS = TOKENS * BYTES };

static double batch_loss(struct fixture *f) {
    float given[LOGITS];
    memcpy(given, f->r.logit, sizeof given);
    loss(&f->r);
    memcpy(f->r.logit, given, sizeof given);
    return mean_loss(&f->m);
}

static void softmax_loss(void **state) {
    struct fixture *f = *state;
    float gradient[LOGITS], given[LOGITS];
    for (int64_t i = 0; i < LOGITS; i++)
        given[i] = (float)(6 * centred(i));
    memcpy(f->r.logit, given, sizeof given);
    loss(&f->r);
    memcpy(gradient, f->r.logit, sizeof gradient);
    memcpy(f->r.logit, given, sizeof given);
    assert_gradient(f, batch_loss, f->r.logit, gradient, LOGITS);
}

/* ---- The whole model, every expert chosen: the loss is then smooth but for rounding ---- */

static double model_loss(struct fixture *f) {
    round_experts(&f->m, f->m.at.replicated, f->m.at.total - f->m.at.replicated);
    forward(&f->r, TOKENS);
    loss(&f->r);
    return mean_loss(&f->m);
}

/* Along its own gradient, the derivative of the loss is the gradient's length. A step of 0.1 stands well above the
 * rounding of weights and activations to bf16, which alone makes up to 2 % here. */
static void assert_along_gradient(struct fixture *f, const char *name, const float *gradients, int64_t first,
                                  int64_t count) {
    const float *gradient = gradients + first;
    double *direction = calloc((size_t)count, sizeof *direction), squares = 0;
    for (int64_t i = 0; i < count; i++)
        squares += (double)(gradient[i] * gradient[i]);
    for (int64_t i = 0; i < count; i++)
        direction[i] = (double)gradient[i] / sqrt(squares);
    double found = difference(f, model_loss, f->m.value + first, direction, count, 0.1);
    if (!(fabs(found / sqrt(squares) - 1) <= 0.03))
        fail_msg("%s: %.6g by differences, %.6g by the gradient", name, found, sqrt(squares));
    free(direction);
}

/* Before anything was trained, too, the experts compute with their own weights. */
static void experts_begin_rounded(void **state) {
    const struct model *m = &((struct fixture *)*state)->m;
    for (int64_t i = m->at.replicated; i < m->at.total; i++)
        assert_true(fabsf(from_bf16(m->expert_value[i - m->at.replicated]) - m->value[i]) <= fabsf(m->value[i]) / 256);
}

static void whole_model(void **state) {
    static const char *const part_name[] = {"gate", "up", "down"};
    struct fixture *f = *state;
    const struct places *at = &f->m.at;
    model_loss(f);
    backward(&f->r);
    float *replicated = summed(f, 0, at->replicated);
    float *gradient = malloc((size_t)at->total * sizeof *gradient);
    memcpy(gradient, f->m.gradient, (size_t)at->total * sizeof *gradient);
    memcpy(gradient, replicated, (size_t)at->replicated * sizeof *gradient);
    free(replicated);
    assert_along_gradient(f, "embedding", gradient, at->embedding, BYTES * EMBEDDING);
    assert_along_gradient(f, "input", gradient, at->input, HIDDEN * CONTEXT * EMBEDDING);
    for (int64_t l = 0; l <= LAYERS; l++)
        assert_along_gradient(f, "gain", gradient, at->gain[l], HIDDEN);
    for (int64_t l = 0; l < LAYERS; l++) {
        assert_along_gradient(f, "router", gradient, at->router[l], EXPERTS * HIDDEN);
        for (int part = GATE; part <= DOWN; part++)
            assert_along_gradient(f, part_name[part], gradient, at->expert[l][part], EXPERTS * 32 * HIDDEN);
    }
    assert_along_gradient(f, "output", gradient, at->output, BYTES * HIDDEN);
    free(gradient);
}

int main(void) {
    openblas_set_num_threads(1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(embedding_and_input, two_experts, tear_down),
        cmocka_unit_test_setup_teardown(norm, two_experts, tear_down),
        cmocka_unit_test_setup_teardown(router, two_experts, tear_down),
        cmocka_unit_test_setup_teardown(softmax_loss, two_experts, tear_down),
        cmocka_unit_test_setup_teardown(experts_begin_rounded, two_experts, tear_down),
        cmocka_unit_test_setup_teardown(whole_model, all_experts, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
