/* All ranks have come to a call: what they say of it is compared. The lowest rank that refuses counts; then the lowest
 * one that means another call. */
#include "kernels/call_end.cuh"
#include "kernels/call_wait.cuh"
#include "kernels/warp_least.cuh"

MM_DEVICE bool refuses(const call_header *header) {
    return load_u32(&header->status) != 0 || load_u32(&header->fault.kind) != IDS_GOOD;
}

MM_DEVICE bool differ(const call_header *a, const call_header *b) {
    bool differ = false;
    for (uint32_t i = 0; i < CALL_AGREED_WORDS; i++)
        differ |= load_u32(&a->agreed[i]) != load_u32(&b->agreed[i]);
    return differ;
}

/* Aligned. A rank that refuses waits for nobody. */
MM_DEVICE bool all_ready(const call_group &group, uint32_t call) {
    const call_control *own = own_control(group);
    bool good = true;
    if (!refuses(&own->header[group.rank]))
        for (uint32_t rank = lane_index(); rank < group.world && good; rank += CALL_THREADS)
            good = await_rank(group, &own->ready[rank], call, CALL_AWAITS_READY, rank);
    return warp_ballot(!good) == 0;
}

/* Aligned. */
MM_DEVICE call_result compare_headers(const call_group &group, uint32_t call) {
    const call_control *own = own_control(group);
    const bool own_refuses = refuses(&own->header[group.rank]);
    uint32_t refuser = own_refuses ? group.rank : NOBODY, stranger = NOBODY;
    for (uint32_t rank = lane_index(); rank < group.world && !own_refuses; rank += CALL_THREADS) {
        if (refuser == NOBODY && refuses(&own->header[rank]))
            refuser = rank;
        if (stranger == NOBODY && differ(&own->header[rank], &own->header[group.rank]))
            stranger = rank;
    }
    refuser = least_of_warp(refuser);
    stranger = least_of_warp(stranger);
    if (refuser != NOBODY)
        return {CALL_REFUSED, refuser, 0, call};
    return stranger != NOBODY ? call_result{CALL_MISMATCH, stranger, 0, call} : call_result{CALL_GOOD, 0, 0, call};
}

/* Aligned: the ranks whose header says that they want something, a bit each. */
template <typename wish> MM_DEVICE uint64_t ranks_that_want(const call_group &group, const wish &wants) {
    const uint32_t low = lane_index(), high = low + 32;
    const uint32_t first = warp_ballot(low < group.world && wants(&own_control(group)->header[low]));
    const uint32_t second = warp_ballot(high < group.world && wants(&own_control(group)->header[high]));
    return (uint64_t)second << 32 | first;
}

/* Aligned. What is needed of the headers later, when a rank may have written its next one. */
MM_DEVICE void note_headers(const call_group &group, bool good) {
    uint64_t dx = 0, dw = 0;
    for (uint32_t rank = lane_index(); rank < group.world; rank += CALL_THREADS)
        store_u32(&group.state->tokens[rank], good ? load_u32(&own_control(group)->header[rank].tokens) : 0);
    if (good) {
        dx = ranks_that_want(group, [](const call_header *header) { return load_u32(&header->wants_dx) != 0; });
        dw = ranks_that_want(group, [](const call_header *header) { return load_u32(&header->wants_dw) != 0; });
    }
    if (lane_index() == 0) {
        store_u64(&group.state->wants_dx, dx);
        store_u64(&group.state->wants_dw, dw);
    }
}

/* A host that refuses a call has told its caller why. */
MM_DEVICE bool is_known(const call_group &group, const call_result &result) {
    return result.outcome == CALL_REFUSED && result.rank == group.rank &&
           load_u32(&own_control(group)->header[group.rank].status) != 0;
}

MM_KERNEL(mm_call_meet, call_params, CALL_THREADS) {
    grid_dependency_wait(); /* and nobody starts early behind this one: it may wait for long */
    const call_group &group = p.group;
    const uint32_t call = load_u32(&group.state->call);
    call_result result = {load_u32(&group.state->result.outcome), load_u32(&group.state->result.rank), 0, call};
    const bool ready = result.outcome != CALL_GOOD || all_ready(group, call);
    warp_sync(); /* all lanes have read the result so far; what one has acquired, a stop too, all see */
    if (!ready)
        result = {CALL_STOPPED, stopped_by(group) - 1, 0, call};
    else if (result.outcome == CALL_GOOD)
        result = compare_headers(group, call);
    const bool good = result.outcome == CALL_GOOD;
    note_headers(group, good);
    if (lane_index() == 0) {
        store_u32(&group.state->result.outcome, result.outcome);
        store_u32(&group.state->result.rank, result.rank);
    }
    if (!good && !is_known(group, result))
        tell_failure(group, result);
    if (!good && result.outcome != CALL_STOPPED)
        post_left(group, call);
}
