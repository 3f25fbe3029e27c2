/* Sizes of a plan, and the blocks that hold it. */
#include "plan/blocks.h"

static size_t table_bytes(const struct mm_plan_shape *shape) {
    size_t world = (size_t)shape->world, experts = (size_t)shape->experts;
    size_t wide = 2 * world;                                   /* demand, dropped */
    size_t narrow = 2 * world + world * experts + 3 * experts; /* tokens, counts, kept, cursor, offset */
    return wide * sizeof(int64_t) + narrow * sizeof(int32_t);
}

static size_t row_bytes(int64_t padded_rows) {
    return (size_t)padded_rows * (4 * sizeof(int32_t) + sizeof(float));
}

static size_t slot_bytes(int64_t slots) {
    return (size_t)slots * sizeof(int32_t);
}

size_t mm_plan_bytes(const struct mm_plan_shape *shape, int64_t tokens, int64_t padded_rows) {
    return table_bytes(shape) + row_bytes(padded_rows) + slot_bytes(tokens * shape->top_k);
}

int64_t mm_most_rows(const mmoe_layer_config *layer, int world, int64_t max_tokens) {
    int64_t slots = world * max_tokens * layer->top_k;
    return layer->capacity_policy == MMOE_CAPACITY_FIXED && layer->capacity < slots ? layer->capacity : slots;
}

/* A segment of n rows takes ceil(n / block) blocks. The sum is largest when every expert that can have a row has one,
 * which starts a block, and the other rows fill whole blocks. */
int64_t mm_padded_rows_bound(int64_t rows, int64_t local_experts) {
    int64_t started = rows < local_experts ? rows : local_experts;
    return (started + (rows - started) / MMOE_ROW_BLOCK) * MMOE_ROW_BLOCK;
}

mmoe_status mm_plan_make_tables(struct mm_plan *plan, const struct mm_plan_shape *shape,
                                struct mm_plan_tables *tables) {
    mmoe_status status = mm_buffer_reserve(&plan->tables, table_bytes(shape), "the tables of a plan");
    if (status != MMOE_OK) {
        return status;
    }
    size_t world = (size_t)shape->world, experts = (size_t)shape->experts;
    tables->demand = plan->tables.data;
    tables->dropped = tables->demand + world;
    tables->tokens = (int32_t *)(tables->dropped + world);
    tables->counts = tables->tokens + world;
    tables->kept = tables->counts + world * experts;
    tables->cursor = tables->kept + experts;
    tables->offset = tables->cursor + experts;
    return MMOE_OK;
}

mmoe_status mm_plan_make_rows(struct mm_plan *plan, int64_t padded_rows, struct mm_plan_rows *rows) {
    mmoe_status status = mm_buffer_reserve(&plan->rows, row_bytes(padded_rows), "the row map of a plan");
    if (status != MMOE_OK) {
        return status;
    }
    rows->source = plan->rows.data;
    rows->token = rows->source + padded_rows;
    rows->slot = rows->token + padded_rows;
    rows->primary = rows->slot + padded_rows;
    rows->weight = (float *)(void *)(rows->primary + padded_rows);
    return MMOE_OK;
}

mmoe_status mm_plan_make_slots(struct mm_plan *plan, int64_t slots, int32_t **slot_row) {
    mmoe_status status = mm_buffer_reserve(&plan->slots, slot_bytes(slots), "the slot map of a plan");
    *slot_row = plan->slots.data;
    return status;
}

mmoe_status mm_plan_reserve(struct mm_plan *plan, const struct mm_plan_shape *shape, int64_t tokens,
                            int64_t padded_rows) {
    struct mm_plan_tables tables;
    struct mm_plan_rows rows;
    int32_t *slot_row;
    mmoe_status status = mm_plan_make_tables(plan, shape, &tables);
    if (status == MMOE_OK) {
        status = mm_plan_make_rows(plan, padded_rows, &rows);
    }
    return status == MMOE_OK ? mm_plan_make_slots(plan, tokens * shape->top_k, &slot_row) : status;
}

void mm_plan_free(struct mm_plan *plan) {
    mm_buffer_free(&plan->tables);
    mm_buffer_free(&plan->rows);
    mm_buffer_free(&plan->slots);
    *plan = (struct mm_plan){0};
}
