/* The row map of a plan and its inverse: a stable counting sort, the same order on every backend. */
#include <string.h>

#include "plan/blocks.h"

static void clear_rows(const struct mm_plan_rows *rows, int64_t padded_rows) {
    size_t bytes = (size_t)padded_rows * sizeof(int32_t);
    memset(rows->source, 0xff, bytes); /* -1: a pad */
    memset(rows->token, 0xff, bytes);
    memset(rows->slot, 0xff, bytes);
    memset(rows->primary, 0xff, bytes);
    memset(rows->weight, 0, (size_t)padded_rows * sizeof(float));
}

/* Places the slots of one token, and returns the lowest row among them, INT32_MAX when it has none here. */
static int32_t place_token(struct mm_plan *plan, const struct mm_plan_rows *rows, int source, int32_t token,
                           const int32_t *ids, const float *weights, int32_t *placed, int *count) {
    int first_expert = plan->shape.rank * plan->view.local_experts;
    int32_t primary = INT32_MAX;
    *count = 0;
    for (int k = 0; k < plan->shape.top_k; k++) {
        int local = ids[k] - first_expert;
        if (local < 0 || local >= plan->view.local_experts) {
            continue; /* also an unused slot: -1 is less than every expert */
        }
        int32_t place = plan->cursor[ids[k]]++;
        if (place >= plan->kept[ids[k]]) {
            continue; /* dropped */
        }
        int32_t row = plan->view.expert_offset[local] + place;
        rows->source[row] = source;
        rows->token[row] = token;
        rows->slot[row] = k;
        rows->weight[row] = weights != NULL ? weights[k] : 0.0f;
        placed[(*count)++] = row;
        primary = row < primary ? row : primary;
    }
    return primary;
}

static void place_source(struct mm_plan *plan, const struct mm_plan_rows *rows, int source, int32_t tokens,
                         const int32_t *ids, const float *weights) {
    int32_t placed[MMOE_MAX_TOP_K];
    for (int32_t token = 0; token < tokens; token++) {
        int64_t slot = (int64_t)token * plan->shape.top_k;
        int count;
        int32_t primary =
            place_token(plan, rows, source, token, ids + slot, weights != NULL ? weights + slot : NULL, placed, &count);
        for (int i = 0; i < count; i++) {
            rows->primary[placed[i]] = primary;
        }
    }
}

/* Where this rank's own slots went: the histogram says how many rows the ranks before it have in each segment. */
static void place_own_slots(struct mm_plan *plan, int32_t *slot_row, int64_t slots, const int32_t *ids) {
    int experts = plan->shape.experts, local_experts = plan->view.local_experts;
    memset(plan->cursor, 0, (size_t)experts * sizeof *plan->cursor);
    for (int source = 0; source < plan->shape.rank; source++) {
        for (int expert = 0; expert < experts; expert++) {
            plan->cursor[expert] += plan->view.counts[(int64_t)source * experts + expert];
        }
    }
    plan->view.slots = plan->view.slots_dropped = 0;
    for (int64_t slot = 0; slot < slots; slot++) {
        int32_t expert = ids[slot];
        if (expert == MM_SLOT_UNUSED) {
            slot_row[slot] = MM_SLOT_UNUSED;
            continue;
        }
        int32_t place = plan->cursor[expert]++;
        int owner = expert / local_experts;
        /* A rank's offsets are one more than its experts, so expert e's is at e + owner. */
        slot_row[slot] = place < plan->kept[expert] ? plan->offset[expert + owner] + place : MM_SLOT_DROPPED;
        plan->view.slots += slot_row[slot] != MM_SLOT_DROPPED;
        plan->view.slots_dropped += slot_row[slot] == MM_SLOT_DROPPED;
    }
}

mmoe_status mm_plan_fill(struct mm_plan *plan, const int32_t *tokens, const int32_t *const *ids,
                         const float *const *weights) {
    struct mm_plan_rows rows;
    int32_t *slot_row;
    int64_t own_slots = (int64_t)tokens[plan->shape.rank] * plan->shape.top_k;
    mmoe_status status = mm_plan_make_rows(plan, plan->view.padded_rows, &rows);
    if (status == MMOE_OK) {
        status = mm_plan_make_slots(plan, own_slots, &slot_row);
    }
    if (status != MMOE_OK) {
        return status;
    }
    clear_rows(&rows, plan->view.padded_rows);
    memset(plan->cursor, 0, (size_t)plan->shape.experts * sizeof *plan->cursor);
    for (int source = 0; source < plan->shape.world; source++) {
        place_source(plan, &rows, source, tokens[source], ids[source], weights != NULL ? weights[source] : NULL);
    }
    place_own_slots(plan, slot_row, own_slots, ids[plan->shape.rank]);
    plan->view.row_source = rows.source;
    plan->view.row_token = rows.token;
    plan->view.row_slot = rows.slot;
    plan->view.row_primary = rows.primary;
    plan->view.row_weight = weights != NULL ? rows.weight : NULL;
    plan->view.slot_row = slot_row;
    return MMOE_OK;
}
