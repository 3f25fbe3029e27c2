/* What the ranks have to agree on at a call of a layer. */
#include "backend/backend.h"

void mm_layer_agreement(const struct mmoe_layer *layer, enum mm_call_kind kind, struct mm_agreement *agreed) {
    const mmoe_layer_config *config = &layer->config;
    mm_call_agreement(layer->group, kind, agreed);
    agreed->layer = layer->index;
    agreed->hidden = config->hidden;
    agreed->intermediate = config->intermediate;
    agreed->experts = config->experts;
    agreed->top_k = config->top_k;
    agreed->weight_on = config->weight_on;
    agreed->activation = config->activation;
    agreed->capacity_policy = config->capacity_policy;
    agreed->capacity = config->capacity;
    agreed->drop = config->drop;
    agreed->combine = config->combine;
    agreed->limit = config->limit;
}
