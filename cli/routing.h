/* Made-up routers: which experts the tokens go to, and with what weights. */
#ifndef CLI_ROUTING_H
#define CLI_ROUTING_H

#include "options.h"

/* The routing as the option says it, such as "zipf:1.2"; `text` holds it where it has a number. */
const char *routing_text(const struct options *options, char text[64]);

/* The ids [count, K] of tokens first .. first+count-1. uniform and zipf choose K different experts for a token, with
 * the popularity of experts shuffled by the seed; `one` sends all K slots to the hot expert. */
void routing_ids(const struct options *options, int64_t experts, int64_t top_k, int64_t first, int64_t count,
                 int64_t *ids);

/* Weights [count, K]: positive, and of sum 1 for each token. */
void routing_weights(uint64_t seed, int64_t top_k, int64_t first, int64_t count, float *weights);

#endif
