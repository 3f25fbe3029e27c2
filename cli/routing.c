/* Made-up routers. */
#include "routing.h"

#include <math.h>
#include <stdio.h>

#include "random.h"

enum { PURPOSE_POPULARITY = 100, PURPOSE_CHOICE, PURPOSE_WEIGHT };

const char *routing_text(const struct options *options, char text[64]) {
    switch (options->routing) {
    case ROUTING_UNIFORM:
        return "uniform";
    case ROUTING_ZIPF:
        snprintf(text, 64, "zipf:%g", options->zipf);
        return text;
    case ROUTING_ONE:
        snprintf(text, 64, "one:%lld", (long long)options->hot_expert);
        return text;
    default:
        return "file";
    }
}

/* log of the popularity of every expert: -S * log(place), places given out in an order that the seed shuffles. */
static void log_popularity(const struct options *options, int64_t experts, float *out) {
    uint64_t key = random_key(options->seed, PURPOSE_POPULARITY);
    double exponent = options->routing == ROUTING_ZIPF ? options->zipf : 0;
    for (int64_t e = 0; e < experts; e++)
        out[e] = (float)(-exponent * log((double)e + 1));
    for (int64_t e = experts - 1; e > 0; e--) {
        int64_t other = (int64_t)(random_bits(key, (uint64_t)e) % (uint64_t)(e + 1));
        float swap = out[e];
        out[e] = out[other];
        out[other] = swap;
    }
}

/* The experts with the K largest scores, the largest first. */
static void choose(const float *scores, int64_t experts, int64_t top_k, int64_t *ids) {
    float best[MMOE_MAX_TOP_K];
    int64_t found = 0;
    for (int64_t e = 0; e < experts; e++) {
        if (found == top_k && scores[e] <= best[found - 1])
            continue;
        int64_t k = found < top_k ? found++ : found - 1;
        for (; k > 0 && scores[e] > best[k - 1]; k--) {
            best[k] = best[k - 1];
            ids[k] = ids[k - 1];
        }
        best[k] = scores[e];
        ids[k] = e;
    }
}

void routing_ids(const struct options *options, int64_t experts, int64_t top_k, int64_t first, int64_t count,
                 int64_t *ids) {
    if (options->routing == ROUTING_ONE) {
        for (int64_t s = 0; s < count * top_k; s++)
            ids[s] = options->hot_expert;
        return;
    }
    float popularity[MMOE_MAX_EXPERTS], scores[MMOE_MAX_EXPERTS];
    uint64_t key = random_key(options->seed, PURPOSE_CHOICE);
    log_popularity(options, experts, popularity);
    for (int64_t t = 0; t < count; t++) {
        /* Gumbel noise: the K largest of log(p) + noise are a draw of K without putting back. */
        for (int64_t e = 0; e < experts; e++)
            scores[e] = popularity[e] - (float)log(-log(random_uniform(key, (uint64_t)((first + t) * experts + e))));
        choose(scores, experts, top_k, ids + t * top_k);
    }
}

void routing_weights(uint64_t seed, int64_t top_k, int64_t first, int64_t count, float *weights) {
    uint64_t key = random_key(seed, PURPOSE_WEIGHT);
    for (int64_t t = 0; t < count; t++) {
        double sum = 0, raw[MMOE_MAX_TOP_K];
        for (int64_t k = 0; k < top_k; k++)
            sum += raw[k] = 0.1 + random_uniform(key, (uint64_t)((first + t) * top_k + k));
        for (int64_t k = 0; k < top_k; k++)
            weights[t * top_k + k] = (float)(raw[k] / sum);
    }
}
