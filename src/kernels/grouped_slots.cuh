/* The slots of a token that hold sums, in a forward whose ranks sum what they computed of a token: of each rank's slots
 * the first one. They are added in rank order. */
#ifndef MM_KERNELS_GROUPED_SLOTS_CUH
#define MM_KERNELS_GROUPED_SLOTS_CUH

#include "kernels/forward_params.h"
#include "kernels/token_rows.cuh"

/* In the place of every_slot. Lane l has those of ranks l and l + 32. */
struct first_slots {
    token_rows slots, rows;
    uint32_t count; /* of ranks */
};

MM_DEVICE uint32_t listed_slot(const first_slots &list, uint32_t rank) {
    return (uint32_t)row_of_slot(list.slots, rank);
}
MM_DEVICE int32_t row_of_listed(const first_slots &list, uint32_t rank) {
    return row_of_slot(list.rows, rank);
}

/* Aligned; `token` is one of this rank's. */
MM_DEVICE first_slots first_slots_of(const forward_params &p, uint32_t token) {
    const uint32_t none = 0xffffffff, top_k = p.call.top_k;
    const token_rows rows = token_rows_of(p.call.slots.row, token, top_k);
    const token_rows experts = token_rows_of(p.call.slots.expert, token, top_k);
    const token_rows ranks = {(int32_t)rows.low >= 0 ? experts.low / p.local_experts : none,
                              (int32_t)rows.high >= 0 ? experts.high / p.local_experts : none};
    first_slots first = {{0, 0}, {none, none}, p.call.group.world};
    for (uint32_t slot = top_k; slot-- > 0;) {
        const uint32_t rank = (uint32_t)row_of_slot(ranks, slot), row = (uint32_t)row_of_slot(rows, slot);
        if (rank == lane_index()) {
            first.slots.low = slot;
            first.rows.low = row;
        } else if (rank == lane_index() + 32) {
            first.slots.high = slot;
            first.rows.high = row;
        }
    }
    return first;
}

#endif
