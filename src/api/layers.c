/* Layers and saved states. Making and destroying them waits for a call that runs in another thread: the backend's
 * scratch is shared by the layers of a group. */
#include "api/check.h"

/* Memory of its own for the layer, the rest is the backend's. */
static mmoe_status make_layer(struct mmoe_group *group, const mmoe_layer_config *config, struct mmoe_layer **out) {
    struct mmoe_layer *layer;
    mmoe_status status = mm_alloc_zero((void **)&layer, sizeof *layer, "a layer");
    if (status != MMOE_OK) {
        return status;
    }
    layer->group = group;
    layer->config = *config;
    layer->local_experts = (int)(config->experts / group->world);
    status = mm_alloc(&layer->check_scratch, mm_overlap_bytes(layer->local_experts), "the argument checks of a layer");
    if (status != MMOE_OK) {
        mm_free(&layer);
        return status;
    }
    *out = layer;
    return MMOE_OK;
}

static void free_layer(struct mmoe_layer *layer) {
    mm_free(&layer->check_scratch);
    mm_free(&layer);
}

/* A number is used up by a success alone: a rank that failed may try again and stays in step with its peers. */
static mmoe_status open_layer(struct mmoe_layer *layer) {
    struct mmoe_group *group = layer->group;
    pthread_mutex_lock(&group->lock);
    layer->index = group->layers_made;
    mmoe_status status = group->backend->layer_open(layer);
    group->layers_made += status == MMOE_OK;
    pthread_mutex_unlock(&group->lock);
    return status;
}

mmoe_status mmoe_layer_create(mmoe_group *group, const mmoe_layer_config *config, mmoe_layer **layer) {
    char reason[MM_ERROR_BYTES];
    mmoe_status status = mm_check_pointer("layer", layer, "the address of a layer handle");
    if (status != MMOE_OK) {
        return status;
    }
    *layer = NULL;
    status = mm_check_pointer("group", group, "a group");
    if (status == MMOE_OK) {
        status = mm_check_layer_in_group(config, &group->config, group->world);
    }
    if (status == MMOE_OK && !group->backend->supports(config, reason, sizeof reason)) {
        status = mm_fail(MMOE_UNSUPPORTED, "%s", reason);
    }
    struct mmoe_layer *made;
    if (status == MMOE_OK) {
        status = make_layer(group, config, &made);
    }
    if (status != MMOE_OK) {
        return status;
    }
    status = open_layer(made);
    if (status != MMOE_OK) {
        free_layer(made);
        return status;
    }
    *layer = made;
    return MMOE_OK;
}

void mmoe_layer_destroy(mmoe_layer **layer) {
    if (layer == NULL || *layer == NULL) {
        return;
    }
    struct mmoe_group *group = (*layer)->group;
    pthread_mutex_lock(&group->lock);
    group->backend->layer_close(*layer);
    pthread_mutex_unlock(&group->lock);
    free_layer(*layer);
    *layer = NULL;
}
