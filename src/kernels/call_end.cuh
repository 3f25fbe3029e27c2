/* What a rank says when it is through with a call. */
#ifndef MM_KERNELS_CALL_END_CUH
#define MM_KERNELS_CALL_END_CUH

#include "kernels/call_wait.cuh"

/* By one warp: nothing of any rank is read any more that belongs to the call. */
MM_DEVICE void post_left(const call_group &group, uint32_t call) {
    for (uint32_t rank = lane_index(); rank < group.world; rank += 32)
        store_release_system(&control_of(group, rank)->left[group.rank].value, call);
}

/* Aligned. */
MM_DEVICE void copy_words(void *to, const void *from, uint32_t bytes) {
    for (uint32_t at = 4 * lane_index(); at < bytes; at += 4 * 32)
        store_u32((unsigned char *)to + at, load_u32((const unsigned char *)from + at));
}

/* What the host needs to know of a failure besides its kind. */
MM_DEVICE void tell_details(const call_group &group, const call_result &result) {
    const call_control *own = own_control(group);
    if (result.outcome == CALL_STOPPED && load_acquire_system(&own->stopped.value) != 0)
        copy_words(&group.told->stop, &own->stop[result.rank], sizeof(call_stop));
    if (result.outcome == CALL_STRANGER)
        copy_words(group.told->hello, control_of(group, result.rank)->introduction[result.rank].hello,
                   sizeof group.told->hello);
    if (result.outcome == CALL_REFUSED || result.outcome == CALL_MISMATCH)
        copy_words(&group.told->header[0], &own->header[result.rank], sizeof(call_header));
    if (result.outcome == CALL_MISMATCH || result.outcome == CALL_CAPACITY)
        copy_words(&group.told->header[1], &own->header[group.rank], sizeof(call_header));
}

/* By one warp, to the host: why the call fails. A peer may write its header again once this rank has left the call, so
 * this comes before. */
MM_DEVICE void tell_failure(const call_group &group, const call_result &result) {
    tell_details(group, result);
    warp_sync();
    if (lane_index() == 0) {
        store_u32(&group.told->spoilt, load_u32(&group.state->adding) == result.call);
        store_u32(&group.told->failed.outcome, result.outcome);
        store_u32(&group.told->failed.rank, result.rank);
        store_u32(&group.told->failed.rows, result.rows);
        store_release_system(&group.told->failed.call, result.call);
    }
    warp_sync();
}

/* By one thread, to the host: the call has ended on this rank, well or not. */
MM_DEVICE void tell_end(const call_group &group, uint32_t call) {
    store_release_system(&group.told->ended, call);
}

#endif
