/* The plan by its definition. */
#include "naive.h"

#include <stdlib.h>

#include "rig/rig.h"

static void *take(size_t count) {
    void *memory = calloc(count + 1, sizeof(int32_t));
    assert_non_null(memory);
    return memory;
}

/* Every slot that names the expert, in the order of its rows. */
static void place_expert(struct naive *naive, const struct routing *routing, int owner, int expert, int32_t *next,
                         int32_t *kept) {
    for (int source = 0; source < routing->world; source++)
        for (int64_t slot = 0; slot < (int64_t)routing->tokens[source] * routing->top_k; slot++) {
            if (routing->ids[source][slot] != expert)
                continue;
            naive->demand[owner]++;
            if (naive->rows[owner] >= routing->capacity) {
                naive->slot_row[source][slot] = MM_SLOT_DROPPED;
                naive->dropped[owner]++;
                continue;
            }
            naive->slot_row[source][slot] = *next + (*kept)++;
            naive->rows[owner]++;
            naive->between[source][owner]++;
        }
}

static void place_owner(struct naive *naive, const struct routing *routing, int owner) {
    int local_experts = routing->experts / routing->world;
    int32_t next = 0;
    for (int local = 0; local < local_experts; local++) {
        naive->offset[owner][local] = next;
        place_expert(naive, routing, owner, owner * local_experts + local, &next, &naive->kept[owner][local]);
        next += naive->kept[owner][local];
        while (next % MMOE_ROW_BLOCK != 0)
            next++;
    }
    naive->offset[owner][local_experts] = next;
}

struct naive naive_make(const struct routing *routing) {
    struct naive naive = {0};
    size_t local_experts = (size_t)(routing->experts / routing->world);
    for (int r = 0; r < routing->world; r++) {
        int64_t slots = (int64_t)routing->tokens[r] * routing->top_k;
        naive.slot_row[r] = take((size_t)slots);
        for (int64_t slot = 0; slot < slots; slot++)
            naive.slot_row[r][slot] = MM_SLOT_UNUSED;
        naive.offset[r] = take(local_experts + 1);
        naive.kept[r] = take(local_experts);
    }
    for (int owner = 0; owner < routing->world; owner++)
        place_owner(&naive, routing, owner);
    return naive;
}

void naive_free(struct naive *naive) {
    for (int r = 0; r < MMOE_MAX_WORLD; r++) {
        free(naive->slot_row[r]);
        free(naive->offset[r]);
        free(naive->kept[r]);
    }
}

static void compare_tables(const struct naive *naive, const struct routing *routing, const mmoe_plan *plan) {
    int local_experts = routing->experts / routing->world;
    assert_int_equal(plan->world, routing->world);
    assert_int_equal(plan->experts, routing->experts);
    assert_int_equal(plan->local_experts, local_experts);
    assert_int_equal(plan->top_k, routing->top_k);
    assert_int_equal(plan->rows, naive->rows[plan->rank]);
    assert_int_equal(plan->padded_rows, naive->offset[plan->rank][local_experts]);
    assert_memory_equal(plan->expert_rows, naive->kept[plan->rank], (size_t)local_experts * sizeof(int32_t));
    assert_memory_equal(plan->expert_offset, naive->offset[plan->rank], (size_t)(local_experts + 1) * sizeof(int32_t));
    for (int r = 0; r < routing->world; r++) {
        assert_int_equal(plan->tokens[r], routing->tokens[r]);
        assert_int_equal(plan->demand[r], naive->demand[r]);
        assert_int_equal(plan->dropped[r], naive->dropped[r]);
        for (int e = 0; e < routing->experts; e++) {
            int32_t count = 0;
            for (int64_t slot = 0; slot < (int64_t)routing->tokens[r] * routing->top_k; slot++)
                count += routing->ids[r][slot] == e;
            assert_int_equal(plan->counts[r * routing->experts + e], count);
        }
    }
}

/* The lowest row on `owner` among the kept slots of a token. */
static int32_t primary_of(const struct naive *naive, const struct routing *routing, int owner, int source,
                          int32_t token) {
    int32_t primary = INT32_MAX;
    for (int k = 0; k < routing->top_k; k++) {
        int64_t slot = (int64_t)token * routing->top_k + k;
        int32_t row = naive->slot_row[source][slot];
        bool here = row >= 0 && routing->ids[source][slot] / (routing->experts / routing->world) == owner;
        primary = here && row < primary ? row : primary;
    }
    return primary;
}

static void compare_rows(const struct naive *naive, const struct routing *routing, const mmoe_plan *plan) {
    int64_t found = 0;
    for (int64_t row = 0; row < plan->padded_rows; row++) {
        int32_t source = plan->row_source[row], token = plan->row_token[row], k = plan->row_slot[row];
        if (source < 0) {
            assert_int_equal(source, -1);
            assert_int_equal(token, -1);
            assert_int_equal(k, -1);
            assert_int_equal(plan->row_primary[row], -1);
            assert_true(plan->row_weight == NULL || plan->row_weight[row] == 0);
            continue;
        }
        assert_in_range(source, 0, routing->world - 1);
        assert_in_range(token, 0, routing->tokens[source] - 1);
        assert_in_range(k, 0, routing->top_k - 1);
        int64_t slot = (int64_t)token * routing->top_k + k;
        assert_int_equal(naive->slot_row[source][slot], row);
        assert_int_equal(plan->row_primary[row], primary_of(naive, routing, plan->rank, source, token));
        assert_true(plan->row_weight == NULL || plan->row_weight[row] == routing->weights[source][slot]);
        found++;
    }
    assert_int_equal(found, naive->rows[plan->rank]);
}

static void compare_slots(const struct naive *naive, const struct routing *routing, const mmoe_plan *plan) {
    int64_t slots = (int64_t)routing->tokens[plan->rank] * routing->top_k, kept = 0, dropped = 0;
    for (int64_t slot = 0; slot < slots; slot++) {
        assert_int_equal(plan->slot_row[slot], naive->slot_row[plan->rank][slot]);
        kept += plan->slot_row[slot] >= 0;
        dropped += plan->slot_row[slot] == MM_SLOT_DROPPED;
    }
    assert_int_equal(plan->slots, kept);
    assert_int_equal(plan->slots_dropped, dropped);
}

void naive_compare(const struct naive *naive, const struct routing *routing, const struct mm_plan *plan) {
    compare_tables(naive, routing, &plan->view);
    compare_rows(naive, routing, &plan->view);
    compare_slots(naive, routing, &plan->view);
    for (int source = 0; source < routing->world; source++)
        for (int owner = 0; owner < routing->world; owner++)
            assert_int_equal(mm_plan_rows_between(plan, source, owner), naive->between[source][owner]);
}
