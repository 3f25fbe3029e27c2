/* Saved states: what a forward leaves for its backward. */
#include "api/check.h"

/* With a fixed capacity a call allocates nothing, so the largest plan has room from the start. */
static mmoe_status reserve_plan(struct mmoe_saved *saved) {
    const struct mmoe_layer *layer = saved->layer;
    const struct mmoe_group *group = layer->group;
    if (layer->config.capacity_policy != MMOE_CAPACITY_FIXED) {
        return MMOE_OK;
    }
    struct mm_plan_shape shape = mm_plan_shape_of(&layer->config, group->rank, group->world);
    int64_t rows = mm_most_rows(&layer->config, group->world, group->config.max_tokens);
    return mm_plan_reserve(&saved->plan, &shape, group->config.max_tokens,
                           mm_padded_rows_bound(rows, layer->local_experts));
}

static void free_saved(struct mmoe_saved *saved) {
    mm_plan_free(&saved->plan);
    mm_free(&saved);
}

static mmoe_status open_saved(struct mmoe_saved *saved) {
    struct mmoe_group *group = saved->layer->group;
    pthread_mutex_lock(&group->lock);
    mmoe_status status = group->backend->saved_open(saved);
    pthread_mutex_unlock(&group->lock);
    return status;
}

mmoe_status mmoe_saved_create(mmoe_layer *layer, mmoe_keep keep, mmoe_saved **saved) {
    mmoe_status status = mm_check_pointer("saved", saved, "the address of a handle");
    if (status != MMOE_OK) {
        return status;
    }
    *saved = NULL;
    status = mm_check_pointer("layer", layer, "a layer");
    if (status == MMOE_OK) {
        status = mm_check_range("keep", keep, MMOE_KEEP_PLAN, MMOE_KEEP_ROWS);
    }
    struct mmoe_saved *made;
    if (status == MMOE_OK) {
        status = mm_alloc_zero((void **)&made, sizeof *made, "a saved state");
    }
    if (status != MMOE_OK) {
        return status;
    }
    made->layer = layer;
    made->keep = keep;
    status = reserve_plan(made);
    if (status == MMOE_OK) {
        status = open_saved(made);
    }
    if (status != MMOE_OK) {
        free_saved(made);
        return status;
    }
    *saved = made;
    return MMOE_OK;
}

void mmoe_saved_destroy(mmoe_saved **saved) {
    if (saved == NULL || *saved == NULL) {
        return;
    }
    struct mmoe_group *group = (*saved)->layer->group;
    pthread_mutex_lock(&group->lock);
    group->backend->saved_close(*saved);
    pthread_mutex_unlock(&group->lock);
    free_saved(*saved);
    *saved = NULL;
}

const mmoe_plan *mmoe_saved_plan(const mmoe_saved *saved) {
    if (saved == NULL || saved->call == 0) {
        return NULL;
    }
    struct mmoe_saved *read = (struct mmoe_saved *)saved; /* a backend may keep a copy of the plan in it */
    struct mmoe_group *group = saved->layer->group;
    pthread_mutex_lock(&group->lock);
    const mmoe_plan *plan = group->backend->plan(read);
    pthread_mutex_unlock(&group->lock);
    return plan;
}
