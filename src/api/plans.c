/* Plans made from ids alone, without a group. */
#include <stdio.h>

#include "api/check.h"
#include "plan/ids.h"

#define NAME_BYTES 24

/* Every rank's ids as a description; the values are read later. */
static mmoe_status check_ids(const mmoe_layer_config *layer, int world, const mmoe_tensor *ids) {
    int64_t slots = 0;
    for (int rank = 0; rank < world; rank++) {
        char name[NAME_BYTES];
        snprintf(name, sizeof name, "ids[%d]", rank);
        struct mm_expect expect = {
            .name = name,
            .dims = 2,
            .shape = {MM_ANY, layer->top_k},
            .dtypes = MM_DTYPE(MMOE_I32) | MM_DTYPE(MMOE_I64),
        };
        mmoe_status status = mm_check_tensor(&ids[rank], &expect);
        if (status == MMOE_OK && ids[rank].shape[0] > MMOE_MAX_TOKENS) {
            status = mm_fail(MMOE_INVALID_ARGUMENT, "%s has %lld tokens, expected at most %d", name,
                             (long long)ids[rank].shape[0], MMOE_MAX_TOKENS);
        }
        if (status != MMOE_OK) {
            return status;
        }
        slots += ids[rank].shape[0] * layer->top_k;
    }
    if (slots > INT32_MAX) {
        return mm_fail(MMOE_INVALID_ARGUMENT, "ids have %lld slots in all, expected fewer than 2^31", (long long)slots);
    }
    int64_t rows = layer->capacity_policy == MMOE_CAPACITY_FIXED && layer->capacity < slots ? layer->capacity : slots;
    return mm_check_row_numbers(rows, layer->experts / world);
}

/* Ids of all ranks as plans want them: contiguous int32. */
struct narrow_ids {
    int32_t *values;
    int32_t tokens[MMOE_MAX_WORLD];
    const int32_t *of_rank[MMOE_MAX_WORLD];
};

static mmoe_status read_ids(const mmoe_layer_config *layer, int world, const mmoe_tensor *ids,
                            struct narrow_ids *narrow) {
    size_t slots = 0;
    for (int rank = 0; rank < world; rank++) {
        slots += (size_t)(ids[rank].shape[0] * layer->top_k);
    }
    mmoe_status status = mm_alloc((void **)&narrow->values, slots * sizeof *narrow->values, "the ids of all ranks");
    int32_t *next = narrow->values;
    for (int rank = 0; rank < world && status == MMOE_OK; rank++) {
        char name[NAME_BYTES];
        snprintf(name, sizeof name, "ids[%d]", rank);
        status = mm_ids_read(&ids[rank], layer->experts, name, next);
        narrow->tokens[rank] = (int32_t)ids[rank].shape[0];
        narrow->of_rank[rank] = next;
        next += ids[rank].shape[0] * layer->top_k;
    }
    return status;
}

static mmoe_status make_plan(const mmoe_layer_config *layer, int rank, int world, const struct narrow_ids *ids,
                             mmoe_plan **plan) {
    struct mm_plan *made;
    mmoe_status status = mm_alloc_zero((void **)&made, sizeof *made, "a plan");
    if (status != MMOE_OK) {
        return status;
    }
    struct mm_plan_shape shape = mm_plan_shape_of(layer, rank, world);
    status = mm_plan_count(made, &shape, ids->tokens, ids->of_rank);
    if (status == MMOE_OK) {
        status = mm_plan_verdict(made);
    }
    if (status == MMOE_OK) {
        status = mm_plan_fill(made, ids->tokens, ids->of_rank, NULL);
    }
    *plan = &made->view;
    if (status != MMOE_OK) {
        mmoe_plan_destroy(plan);
    }
    return status;
}

mmoe_status mmoe_plan_create(const mmoe_layer_config *layer, int rank, int world, const mmoe_tensor *ids,
                             mmoe_plan **plan) {
    mmoe_status status = mm_check_pointer("plan", plan, "the address of a plan");
    if (status != MMOE_OK) {
        return status;
    }
    *plan = NULL;
    status = mm_check_layer(layer, world);
    if (status == MMOE_OK) {
        status = mm_check_range("rank", rank, 0, world - 1);
    }
    if (status == MMOE_OK) {
        status = mm_check_pointer("ids", ids, "a tensor for each rank");
    }
    if (status == MMOE_OK) {
        status = check_ids(layer, world, ids);
    }
    if (status != MMOE_OK) {
        return status;
    }
    struct narrow_ids narrow = {0};
    status = read_ids(layer, world, ids, &narrow);
    if (status == MMOE_OK) {
        status = make_plan(layer, rank, world, &narrow, plan);
    }
    mm_free(&narrow.values);
    return status;
}

/* The view is the first member of what make_plan() allocated. */
void mmoe_plan_destroy(mmoe_plan **plan) {
    if (plan == NULL || *plan == NULL) {
        return;
    }
    struct mm_plan *made = (struct mm_plan *)(void *)*plan;
    mm_plan_free(made);
    mm_free(&made);
    *plan = NULL;
}
