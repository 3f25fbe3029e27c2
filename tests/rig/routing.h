/* Makers of routings: ids [tokens, top_k] in 0 .. experts-1 or -1. */
#ifndef RIG_ROUTING_H
#define RIG_ROUTING_H

#include "rig/random.h"

#ifdef __cplusplus
extern "C" {
#endif

enum rig_routing {
    RIG_UNIFORM,    /* distinct experts for a token while there are enough, all as likely */
    RIG_ZIPF,       /* distinct, expert e drawn with probability ~ 1 / (e+1)^1.2 */
    RIG_ONE_EXPERT, /* every slot to the last expert */
    RIG_UNUSED,     /* every slot -1 */
    RIG_DUPLICATES, /* drawn with repetition, so that tokens name an expert twice */
    RIG_HOLES       /* uniform, a third of the slots -1 */
};

void rig_route(enum rig_routing routing, struct rig_random *random, int64_t tokens, int64_t top_k, int64_t experts,
               int64_t *ids);

#ifdef __cplusplus
}
#endif

#endif
