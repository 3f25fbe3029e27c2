/* Comparison of routing plans. */
#include "rig/plans.h"

#include <string.h>

#define SAME_ARRAY(rank, a, b, member, count)                                                                          \
    RIG_TRY(rank, memcmp((a)->member, (b)->member, (size_t)(count) * sizeof *(a)->member) == 0, "%s differs", #member)

static bool same_plans(struct rig_rank *rank, const mmoe_plan *found, const mmoe_plan *expected) {
    const int64_t world = expected->world, experts = expected->experts;
    RIG_TRY(rank,
            found->rank == expected->rank && found->world == world && found->experts == experts &&
                found->local_experts == expected->local_experts && found->top_k == expected->top_k,
            "the plan's shape differs");
    RIG_TRY(rank, found->rows == expected->rows && found->padded_rows == expected->padded_rows,
            "%lld rows, %lld with pads, expected %lld and %lld", (long long)found->rows, (long long)found->padded_rows,
            (long long)expected->rows, (long long)expected->padded_rows);
    RIG_TRY(rank, found->slots == expected->slots && found->slots_dropped == expected->slots_dropped, "slots differ");
    SAME_ARRAY(rank, found, expected, tokens, world);
    SAME_ARRAY(rank, found, expected, counts, world * experts);
    SAME_ARRAY(rank, found, expected, demand, world);
    SAME_ARRAY(rank, found, expected, dropped, world);
    SAME_ARRAY(rank, found, expected, expert_rows, expected->local_experts);
    SAME_ARRAY(rank, found, expected, expert_offset, expected->local_experts + 1);
    SAME_ARRAY(rank, found, expected, row_source, expected->padded_rows);
    SAME_ARRAY(rank, found, expected, row_token, expected->padded_rows);
    SAME_ARRAY(rank, found, expected, row_slot, expected->padded_rows);
    SAME_ARRAY(rank, found, expected, row_primary, expected->padded_rows);
    SAME_ARRAY(rank, found, expected, slot_row, (int64_t)expected->tokens[expected->rank] * expected->top_k);
    return true;
}

static bool right_weights(struct rig_rank *rank, const mmoe_plan *found, const struct rig_batch *batch) {
    for (int64_t row = 0; row < found->padded_rows; row++) {
        const int source = found->row_source[row];
        const int64_t token = source < 0 ? 0 : rig_batch_first(batch, source) + found->row_token[row];
        const float expected = source < 0 ? 0 : batch->weights[token * found->top_k + found->row_slot[row]];
        RIG_TRY(rank, found->row_weight[row] == expected, "row %lld has weight %g, expected %g", (long long)row,
                (double)found->row_weight[row], (double)expected);
    }
    return true;
}

bool rig_plan_is_right(struct rig_rank *rank, const mmoe_plan *found, const struct rig_batch *batch) {
    mmoe_tensor ids[MMOE_MAX_WORLD];
    mmoe_plan *expected;
    for (int r = 0; r < batch->world; r++)
        ids[r] = mmoe_matrix(batch->ids + rig_batch_first(batch, r) * batch->layer.top_k, MMOE_I64, batch->tokens[r],
                             batch->layer.top_k);
    RIG_TRY(rank, found != NULL, "no plan: %s", mmoe_last_error());
    const mmoe_status status = mmoe_plan_create(&batch->layer, rank->rank, batch->world, ids, &expected);
    RIG_TRY(rank, status == MMOE_OK, "no plan to compare with: %s", mmoe_last_error());
    const bool right = same_plans(rank, found, expected) && right_weights(rank, found, batch);
    mmoe_plan_destroy(&expected);
    return right;
}
