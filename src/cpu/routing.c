/* Ids and weights; see routing.h. */
#include <string.h>

#include "cpu/routing.h"
#include "plan/ids.h"

static float weight_at(const mmoe_tensor *weights, int64_t token, int64_t slot) {
    return ((const float *)weights->data)[token * weights->stride[0] + slot * weights->stride[1]];
}

mmoe_status mm_routing_check(const mmoe_layer_config *layer, const mmoe_tensor *ids, const mmoe_tensor *weights) {
    for (int64_t t = 0; t < ids->shape[0]; t++)
        for (int64_t k = 0; k < ids->shape[1]; k++) {
            int64_t id = mm_id_at(ids, t, k);
            mmoe_status status = mm_id_check(id, layer->experts, "ids", t, k);
            if (status != MMOE_OK)
                return status;
            if (id >= 0 && layer->check_weights)
                status = mm_weight_check(weight_at(weights, t, k), t, k);
            if (status != MMOE_OK)
                return status;
        }
    return MMOE_OK;
}

/* Where the ids and weights of rank `source` lie in rank `rank`'s segment. */
static int32_t *ids_of(const struct mmoe_group *group, int rank, int source) {
    const struct mm_layout *layout = &group->layout;
    return (int32_t *)(void *)(group->segment[rank] + layout->ids + (size_t)source * layout->ids_stride);
}

static float *weights_of(const struct mmoe_group *group, int rank, int source) {
    const struct mm_layout *layout = &group->layout;
    return (float *)(void *)(group->segment[rank] + layout->weights + (size_t)source * layout->weights_stride);
}

void mm_routing_push(struct mm_cpu_call *call, const mmoe_tensor *ids, const mmoe_tensor *weights) {
    const struct mmoe_group *group = call->group;
    int32_t *own_ids = ids_of(group, group->rank, group->rank);
    float *own_weights = weights_of(group, group->rank, group->rank);
    for (int64_t t = 0; t < call->tokens; t++)
        for (int64_t k = 0; k < call->top_k; k++) {
            own_ids[t * call->top_k + k] = (int32_t)mm_id_at(ids, t, k);
            own_weights[t * call->top_k + k] = weight_at(weights, t, k);
        }
    size_t slots = (size_t)(call->tokens * call->top_k);
    for (int r = 0; r < group->world; r++) {
        if (r == group->rank)
            continue;
        memcpy(ids_of(group, r, group->rank), own_ids, slots * sizeof *own_ids);
        memcpy(weights_of(group, r, group->rank), own_weights, slots * sizeof *own_weights);
        call->report.bytes_pushed += (int64_t)(slots * (sizeof *own_ids + sizeof *own_weights));
    }
}

/* All ranks' parts of the routing as this rank received them. */
struct routing {
    int32_t tokens[MMOE_MAX_WORLD];
    const int32_t *ids[MMOE_MAX_WORLD];
    const float *weights[MMOE_MAX_WORLD];
};

static struct routing received(const struct mmoe_group *group) {
    struct routing routing;
    for (int r = 0; r < group->world; r++) {
        routing.tokens[r] = (int32_t)mm_call_header(group, r)->tokens;
        routing.ids[r] = ids_of(group, group->rank, r);
        routing.weights[r] = weights_of(group, group->rank, r);
    }
    return routing;
}

mmoe_status mm_routing_count(struct mm_cpu_call *call) {
    const struct mmoe_group *group = call->group;
    struct mm_plan_shape shape = mm_plan_shape_of(&call->layer->config, group->rank, group->world);
    struct routing routing = received(group);
    mmoe_status status = mm_plan_count(call->plan, &shape, routing.tokens, routing.ids);
    return status == MMOE_OK ? mm_plan_verdict(call->plan) : status;
}

mmoe_status mm_routing_fill(struct mm_cpu_call *call) {
    struct routing routing = received(call->group);
    return mm_plan_fill(call->plan, routing.tokens, routing.ids, routing.weights);
}

const int32_t *mm_routing_own_ids(const struct mm_cpu_call *call) {
    return ids_of(call->group, call->group->rank, call->group->rank);
}
