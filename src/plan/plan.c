/* The histogram of a plan, and what follows from it alone: demand, drops, segments, the verdict on capacity. */
#include <string.h>

#include "base/error.h"
#include "plan/blocks.h"

struct mm_plan_shape mm_plan_shape_of(const mmoe_layer_config *layer, int rank, int world) {
    int fixed = layer->capacity_policy == MMOE_CAPACITY_FIXED;
    return (struct mm_plan_shape){
        .rank = rank,
        .world = world,
        .experts = (int)layer->experts,
        .top_k = (int)layer->top_k,
        .capacity = fixed ? layer->capacity : MM_NO_CAPACITY,
        .drop = fixed && layer->drop,
    };
}

static void count_source(int32_t *counts, const int32_t *ids, int64_t slots) {
    for (int64_t i = 0; i < slots; i++) {
        if (ids[i] != MM_SLOT_UNUSED) {
            counts[ids[i]]++;
        }
    }
}

static int32_t expert_demand(const struct mm_plan_tables *tables, const struct mm_plan_shape *shape, int expert) {
    int32_t sum = 0;
    for (int source = 0; source < shape->world; source++) {
        sum += tables->counts[(int64_t)source * shape->experts + expert];
    }
    return sum;
}

/* Segments of one rank's experts. Rows past the capacity are dropped in plan order, so an expert keeps what the
 * experts before it have left over. */
static void lay_segments(const struct mm_plan_tables *tables, const struct mm_plan_shape *shape, int owner) {
    int local_experts = shape->experts / shape->world;
    int32_t *offset = tables->offset + (int64_t)owner * (local_experts + 1);
    int64_t demand = 0, room = shape->capacity;
    int32_t end = 0;
    for (int local = 0; local < local_experts; local++) {
        int expert = owner * local_experts + local;
        int32_t wanted = expert_demand(tables, shape, expert);
        int32_t kept = wanted < room ? wanted : (int32_t)room;
        tables->kept[expert] = kept;
        offset[local] = end;
        end += (int32_t)mm_padded_rows_bound(kept, 1);
        demand += wanted;
        room -= kept;
    }
    offset[local_experts] = end;
    tables->demand[owner] = demand;
    tables->dropped[owner] = shape->drop && demand > shape->capacity ? demand - shape->capacity : 0;
}

static mmoe_plan tables_view(const struct mm_plan_tables *tables, const struct mm_plan_shape *shape) {
    int local_experts = shape->experts / shape->world;
    const int32_t *kept = tables->kept + (int64_t)shape->rank * local_experts;
    const int32_t *offset = tables->offset + (int64_t)shape->rank * (local_experts + 1);
    int64_t rows = 0;
    for (int local = 0; local < local_experts; local++) {
        rows += kept[local];
    }
    return (mmoe_plan){
        .rank = shape->rank,
        .world = shape->world,
        .experts = shape->experts,
        .local_experts = local_experts,
        .top_k = shape->top_k,
        .tokens = tables->tokens,
        .counts = tables->counts,
        .demand = tables->demand,
        .dropped = tables->dropped,
        .expert_rows = kept,
        .expert_offset = offset,
        .rows = rows,
        .padded_rows = offset[local_experts],
    };
}

mmoe_status mm_plan_count(struct mm_plan *plan, const struct mm_plan_shape *shape, const int32_t *tokens,
                          const int32_t *const *ids) {
    struct mm_plan_tables tables;
    plan->view = (mmoe_plan){0};
    mmoe_status status = mm_plan_make_tables(plan, shape, &tables);
    if (status != MMOE_OK) {
        return status;
    }
    memcpy(tables.tokens, tokens, (size_t)shape->world * sizeof *tokens);
    memset(tables.counts, 0, (size_t)shape->world * (size_t)shape->experts * sizeof *tables.counts);
    for (int source = 0; source < shape->world; source++) {
        count_source(tables.counts + (int64_t)source * shape->experts, ids[source],
                     (int64_t)tokens[source] * shape->top_k);
    }
    for (int owner = 0; owner < shape->world; owner++) {
        lay_segments(&tables, shape, owner);
    }
    plan->shape = *shape;
    plan->kept = tables.kept;
    plan->offset = tables.offset;
    plan->cursor = tables.cursor;
    plan->view = tables_view(&tables, shape);
    return MMOE_OK;
}

mmoe_status mm_plan_verdict(const struct mm_plan *plan) {
    for (int rank = 0; rank < plan->shape.world && !plan->shape.drop; rank++) {
        if (plan->view.demand[rank] > plan->shape.capacity) {
            return mm_fail(MMOE_CAPACITY, "rank %d was routed %lld rows, expected at most its capacity of %lld", rank,
                           (long long)plan->view.demand[rank], (long long)plan->shape.capacity);
        }
    }
    return MMOE_OK;
}

/* Rows of `source` for one expert that lie before the cut. */
static int32_t kept_of_source(const struct mm_plan *plan, int source, int expert) {
    const int32_t *count = plan->view.counts + expert;
    int32_t before = 0;
    for (int s = 0; s < source; s++) {
        before += count[(int64_t)s * plan->shape.experts];
    }
    int32_t own = count[(int64_t)source * plan->shape.experts], room = plan->kept[expert] - before;
    return room < 0 ? 0 : room < own ? room : own;
}

int64_t mm_plan_rows_between(const struct mm_plan *plan, int source, int owner) {
    int local_experts = plan->view.local_experts;
    int64_t rows = 0;
    for (int local = 0; local < local_experts; local++) {
        rows += kept_of_source(plan, source, owner * local_experts + local);
    }
    return rows;
}
