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

/* Aligned; the number comes last. */
MM_DEVICE void tell_in(const call_group &group, const call_result &result, call_failure *to) {
    const call_control *own = own_control(group);
    if (result.outcome == CALL_STRANGER)
        copy_words(to->hello, control_of(group, result.rank)->introduction[result.rank].hello, sizeof to->hello);
    if (result.outcome == CALL_REFUSED || result.outcome == CALL_MISMATCH)
        copy_words(&to->header[0], &own->header[result.rank], sizeof(call_header));
    if (result.outcome == CALL_MISMATCH || result.outcome == CALL_CAPACITY)
        copy_words(&to->header[1], &own->header[group.rank], sizeof(call_header));
    warp_sync();
    if (lane_index() == 0) {
        store_u32(&to->number, load_u32(&group.told->failures));
        store_u32(&to->result.outcome, result.outcome);
        store_u32(&to->result.rank, result.rank);
        store_u32(&to->result.rows, result.rows);
        store_release_system(&to->result.call, result.call);
    }
}

/* Aligned. What the host has not seen it may be reading. It counts after it has said what it has seen, and this looks
 * after it has counted: so what is not told as the first one, it has counted. */
MM_DEVICE bool has_seen_first(const call_told *told) {
    uint32_t seen = 0;
    if (lane_index() == 0) {
        fence_sc_system();
        seen = load_acquire_system(&told->seen) == load_u32(&told->first.result.call);
    }
    seen = warp_shuffle(seen, 0);
    warp_sync();
    return seen != 0;
}

MM_DEVICE void tell_failed(const call_group &group, const call_result &result) {
    call_told *told = group.told;
    if (lane_index() == 0)
        store_u32(&told->failures, load_u32(&told->failures) + 1);
    tell_in(group, result, &told->last);
    if (has_seen_first(told))
        tell_in(group, result, &told->first);
}

/* The first one alone: the calls behind it are stopped at once, and know nothing of what was added. */
MM_DEVICE void tell_stopped(const call_group &group, const call_result &result) {
    call_told *told = group.told;
    const call_control *own = own_control(group);
    if (load_u32(&told->stopped.outcome) == CALL_STOPPED)
        return;
    if (load_acquire_system(&own->stopped.value) != 0)
        copy_words(&told->stop, &own->stop[result.rank], sizeof(call_stop));
    warp_sync();
    if (lane_index() != 0)
        return;
    store_u32(&told->spoilt, load_u32(&group.state->adding) == result.call);
    store_u32(&told->stopped.rank, result.rank);
    store_u32(&told->stopped.call, result.call);
    store_release_system(&told->stopped.outcome, CALL_STOPPED);
}

/* By one warp, to the host: why the call fails. A peer may write its header again once this rank has left the call, so
 * this comes before. */
MM_DEVICE void tell_failure(const call_group &group, const call_result &result) {
    if (result.outcome == CALL_STOPPED)
        tell_stopped(group, result);
    else
        tell_failed(group, result);
    warp_sync();
}

/* By one thread, to the host: the call has ended on this rank, well or not. */
MM_DEVICE void tell_end(const call_group &group, uint32_t call) {
    store_release_system(&group.told->ended, call);
}

#endif
