/* Makers of routings. */
#include "rig/routing.h"

#include <math.h>
#include <stdbool.h>

static int64_t draw_zipf(struct rig_random *random, int64_t experts) {
    double total = 0;
    for (int64_t e = 0; e < experts; e++)
        total += pow((double)(e + 1), -1.2);
    double left = rig_uniform(random) * total;
    for (int64_t e = 0; e < experts - 1; e++) {
        left -= pow((double)(e + 1), -1.2);
        if (left < 0)
            return e;
    }
    return experts - 1;
}

static bool holds(const int64_t *ids, int64_t count, int64_t id) {
    for (int64_t k = 0; k < count; k++)
        if (ids[k] == id)
            return true;
    return false;
}

static int64_t draw(enum rig_routing routing, struct rig_random *random, int64_t experts) {
    return routing == RIG_ZIPF ? draw_zipf(random, experts) : rig_below(random, experts);
}

static void route_token(enum rig_routing routing, struct rig_random *random, int64_t top_k, int64_t experts,
                        int64_t *ids) {
    for (int64_t k = 0; k < top_k; k++) {
        ids[k] = draw(routing, random, experts);
        while (routing != RIG_DUPLICATES && k < experts && holds(ids, k, ids[k]))
            ids[k] = draw(routing, random, experts);
    }
    for (int64_t k = 0; routing == RIG_HOLES && k < top_k; k++)
        if (rig_below(random, 3) == 0)
            ids[k] = -1;
}

void rig_route(enum rig_routing routing, struct rig_random *random, int64_t tokens, int64_t top_k, int64_t experts,
               int64_t *ids) {
    if (routing == RIG_UNUSED || routing == RIG_ONE_EXPERT) {
        for (int64_t s = 0; s < tokens * top_k; s++)
            ids[s] = routing == RIG_UNUSED ? -1 : experts - 1;
        return;
    }
    for (int64_t t = 0; t < tokens; t++)
        route_token(routing, random, top_k, experts, ids + t * top_k);
}
