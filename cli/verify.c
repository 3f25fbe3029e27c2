/* The oracle takes all experts and a batch of tokens. A rank's tokens go to it a few at a time with all experts, and
 * its experts one at a time with all tokens that use them: memory stays small, and progress shows. */
#include "verify.h"

#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "message.h"
#include "oracle/oracle.h"

#define TOKENS_AT_ONCE 8

const enum tensor verified[VERIFIED] = {TENSOR_Y, TENSOR_DX, TENSOR_DW, TENSOR_DGATE, TENSOR_DDOWN, TENSOR_DUP};
enum { V_Y, V_DX, V_DW, V_DGATE, V_DDOWN, V_DUP };

int verify_count(const struct problem *problem) {
    return problem->options->forward ? V_Y + 1 : VERIFIED;
}

int64_t verify_steps(const struct problem *problem) {
    int64_t steps = 0, first = problem->rank < 0 ? 0 : problem->rank;
    int64_t last = problem->rank < 0 ? problem->world - 1 : problem->rank;
    for (int64_t r = first; r <= last; r++)
        steps += (problem->tokens[r] + TOKENS_AT_ONCE - 1) / TOKENS_AT_ONCE + problem_local_experts(problem);
    return steps;
}

/* ---- Inputs ---- */

/* All routing, with dropped slots turned into -1: on each rank the first `capacity` rows in the order of expert, token
 * and slot stay. Written from the rule alone, so that the library's own dropping is checked by it. */
static void apply_drop(const struct problem *problem, int64_t *ids) {
    int64_t slots = problem->first[problem->world] * problem->layer.top_k;
    int64_t local_experts = problem_local_experts(problem), kept = 0;
    for (int64_t e = 0; e < problem->layer.experts; e++) {
        if (e % local_experts == 0)
            kept = 0;
        for (int64_t s = 0; s < slots; s++)
            if (ids[s] == e && kept++ >= problem->layer.capacity)
                ids[s] = -1;
    }
}

static int64_t *all_ids(struct share *share) {
    const struct problem *problem = share->problem;
    int64_t tokens = problem->first[problem->world];
    int64_t *ids = malloc((size_t)(tokens * problem->layer.top_k) * sizeof *ids + 1);
    if (!ids) {
        rank_fail(share->rank, EXIT_RUN, "no memory for the ids of %lld tokens", (long long)tokens);
        return NULL;
    }
    problem_fill(problem, TENSOR_IDS, 0, tokens, ids);
    if (problem->layer.drop)
        apply_drop(problem, ids);
    return ids;
}

/* Tokens or experts first .. of an input, as float64. */
static double *as_double(struct share *share, enum tensor tensor, int64_t first, int64_t count) {
    int64_t n = count * tensor_width(share->problem, tensor);
    size_t bytes = npy_type_bytes(tensor_type(tensor));
    unsigned char *raw = malloc((size_t)n * bytes + 1);
    double *out = malloc((size_t)n * sizeof *out + 1);
    if (!raw || !out) {
        rank_fail(share->rank, EXIT_RUN, "no memory for %lld numbers of %s in float64", (long long)n,
                  tensor_name(tensor));
        free(raw);
        free(out);
        return NULL;
    }
    problem_fill(share->problem, tensor, first, count, raw);
    for (int64_t i = 0; i < n; i++)
        out[i] = bytes == 2 ? (double)mm_bf16_to_float(((uint16_t *)raw)[i]) : (double)((float *)raw)[i];
    free(raw);
    return out;
}

static struct oracle_layer oracle_of(const struct problem *problem, int64_t tokens, int64_t experts) {
    const mmoe_layer_config *layer = &problem->layer;
    return (struct oracle_layer){.tokens = tokens,
                                 .hidden = layer->hidden,
                                 .intermediate = layer->intermediate,
                                 .experts = experts,
                                 .top_k = layer->top_k,
                                 .weight_on_input = layer->weight_on == MMOE_WEIGHT_ON_INPUT,
                                 .limit = layer->limit};
}

/* ---- Comparing ---- */

/* Adds elements offset .. of a result of this rank, which `reference` gives. */
static void compare(const struct share *share, int v, int64_t offset, int64_t count, const double *reference,
                    struct verify_sums *sums) {
    const void *data = share->data[verified[v]];
    for (int64_t i = 0; i < count; i++) {
        double value = tensor_type(verified[v]) == NPY_F32
                           ? (double)((const float *)data)[offset + i]
                           : (double)mm_bf16_to_float(((const uint16_t *)data)[offset + i]);
        sums->error[v] += (value - reference[i]) * (value - reference[i]);
        sums->norm[v] += reference[i] * reference[i];
    }
}

/* Expert weights in float64. */
struct weights {
    double *gate, *up, *down;
};

static bool weights_make(struct share *share, int64_t first, int64_t count, struct weights *weights) {
    weights->gate = as_double(share, TENSOR_GATE, first, count);
    weights->up = as_double(share, TENSOR_UP, first, count);
    weights->down = as_double(share, TENSOR_DOWN, first, count);
    return weights->gate && weights->up && weights->down;
}

static void weights_free(struct weights *weights) {
    free(weights->gate);
    free(weights->up);
    free(weights->down);
}

/* ---- y, dx, dw of this rank's tokens ---- */

static int check_tokens(struct share *share, const struct weights *weights, const int64_t *ids, int64_t first,
                        int64_t count, struct verify_sums *sums) {
    const struct problem *problem = share->problem;
    struct oracle_layer layer = oracle_of(problem, count, problem->layer.experts);
    int64_t h = layer.hidden, k = layer.top_k, offset = first - problem->first[share->rank->index];
    double *x = as_double(share, TENSOR_X, first, count), *dy = as_double(share, TENSOR_DY, first, count);
    double *w = as_double(share, TENSOR_WEIGHTS, first, count);
    double *out = calloc((size_t)(count * (2 * h + k)), sizeof *out);
    double *y = out, *dx = out + count * h, *dw = out + 2 * count * h;
    const bool both = !problem->options->forward;
    if (!x || !dy || !w || !out || oracle_forward(&layer, x, ids, w, weights->gate, weights->up, weights->down, y) ||
        (both &&
         oracle_backward(&layer, x, ids, w, weights->gate, weights->up, weights->down, dy, dx, dw, NULL, NULL, NULL))) {
        rank_fail(share->rank, EXIT_RUN, "no memory for the oracle");
    } else {
        compare(share, V_Y, offset * h, count * h, y, sums);
    }
    if (both && !share->rank->code) {
        compare(share, V_DX, offset * h, count * h, dx, sums);
        compare(share, V_DW, offset * k, count * k, dw, sums);
    }
    free(x);
    free(dy);
    free(w);
    free(out);
    return share->rank->code;
}

static void check_all_tokens(struct share *share, const int64_t *ids, struct verify_sums *sums) {
    const struct problem *problem = share->problem;
    int64_t first = problem->first[share->rank->index], end = problem->first[share->rank->index + 1];
    struct weights weights = {0};
    if (first < end && weights_make(share, 0, problem->layer.experts, &weights))
        for (int64_t t = first; t < end && !share->rank->code; t += TOKENS_AT_ONCE) {
            int64_t count = end - t < TOKENS_AT_ONCE ? end - t : TOKENS_AT_ONCE;
            check_tokens(share, &weights, ids + t * problem->layer.top_k, t, count, sums);
            progress_step(rank_progress(share->rank));
        }
    weights_free(&weights);
}

/* ---- dW of one of this rank's experts ---- */

/* The token's rows in the sum over one expert. */
static int add_token(struct share *share, const struct weights *weights, const int64_t *ids, int64_t token,
                     double *sum) {
    const struct problem *problem = share->problem;
    struct oracle_layer layer = oracle_of(problem, 1, 1);
    int64_t matrix = layer.hidden * layer.intermediate;
    double *part = sum + 3 * matrix;
    double *x = as_double(share, TENSOR_X, token, 1), *dy = as_double(share, TENSOR_DY, token, 1);
    double *w = as_double(share, TENSOR_WEIGHTS, token, 1);
    if (!x || !dy || !w ||
        oracle_backward(&layer, x, ids, w, weights->gate, weights->up, weights->down, dy, NULL, NULL, part,
                        part + matrix, part + 2 * matrix))
        rank_fail(share->rank, EXIT_RUN, "no memory for the oracle");
    for (int64_t i = 0; i < 3 * matrix; i++)
        sum[i] += part[i];
    free(x);
    free(dy);
    free(w);
    return share->rank->code;
}

static void check_expert(struct share *share, const int64_t *ids, int64_t expert, struct verify_sums *sums) {
    const struct problem *problem = share->problem;
    int64_t k = problem->layer.top_k, matrix = problem->layer.hidden * problem->layer.intermediate;
    int64_t offset = (expert - share_first(share, TENSOR_DGATE)) * matrix, only[MMOE_MAX_TOP_K];
    struct weights weights = {0};
    double *sum = calloc((size_t)(6 * matrix), sizeof *sum); /* the three sums, and room for a token's part */
    if (!sum)
        rank_fail(share->rank, EXIT_RUN, "no memory for the oracle");
    if (sum && weights_make(share, expert, 1, &weights)) {
        for (int64_t t = 0; t < problem->first[problem->world] && !share->rank->code; t++) {
            bool used = false;
            for (int64_t s = 0; s < k; s++) {
                only[s] = ids[t * k + s] == expert ? 0 : -1;
                used |= only[s] == 0;
            }
            if (used)
                add_token(share, &weights, only, t, sum);
        }
        compare(share, V_DGATE, offset, matrix, sum, sums);
        compare(share, V_DUP, offset, matrix, sum + matrix, sums);
        compare(share, V_DDOWN, offset, matrix, sum + 2 * matrix, sums);
    }
    weights_free(&weights);
    free(sum);
}

int verify_share(struct share *share, struct verify_sums *sums) {
    int64_t first = share_first(share, TENSOR_DGATE), count = share_count(share, TENSOR_DGATE);
    int64_t *ids = all_ids(share);
    if (ids)
        check_all_tokens(share, ids, sums);
    for (int64_t e = first; ids && e < first + count && !share->rank->code; e++) {
        if (!share->problem->options->forward)
            check_expert(share, ids, e, sums);
        progress_step(rank_progress(share->rank));
    }
    free(ids);
    return share->rank->code;
}
