/* The beginning of a call: its number, and the wait for all ranks to have left the call before, after which this rank
 * may write where they read. A peer may not even have come to that call, when this rank refused it: that wait has the
 * time limit of arrivals. */
#include "kernels/call_wait.cuh"
#include "kernels/warp_least.cuh"

/* ---- The first call of an adopted group ---- */

MM_DEVICE void introduce(const open_params &p) {
    call_introduction *own = &own_control(p.group)->introduction[p.group.rank];
    for (uint32_t i = lane_index(); i < CALL_HELLO_WORDS; i += CALL_THREADS)
        store_u32(&own->hello[i], p.hello[i]);
    fence_system();
    warp_sync();
    if (lane_index() == 0)
        store_release_system(&own->posted.value, 1);
}

MM_DEVICE bool is_same(const open_params &p, const call_introduction &theirs) {
    bool same = true;
    for (uint32_t i = 0; i < CALL_HELLO_WORDS; i++)
        same = same && load_u32(&theirs.hello[i]) == p.hello[i];
    return same;
}

/* Aligned: the lowest rank that is of another group, NOBODY: none. `good`: the lane's ranks have all come. Each is
 * asked in its own memory, as it may know nothing of this one. */
MM_DEVICE uint32_t find_stranger(const open_params &p, bool &good) {
    uint32_t stranger = NOBODY;
    for (uint32_t rank = lane_index(); rank < p.group.world && good; rank += CALL_THREADS) {
        const call_introduction &theirs = control_of(p.group, rank)->introduction[rank];
        good = await_rank(p.group, &theirs.posted, 1, CALL_AWAITS_READY, rank);
        if (good && stranger == NOBODY && !is_same(p, theirs))
            stranger = rank;
    }
    return least_of_warp(stranger);
}

/* ---- Every call ---- */

MM_DEVICE bool all_left(const call_group &group, uint32_t call) {
    const call_control *own = own_control(group);
    bool good = true;
    for (uint32_t rank = lane_index(); rank < group.world && good; rank += CALL_THREADS)
        good = await_rank(group, &own->ready[rank], call, CALL_AWAITS_READY, rank) &&
               await_rank(group, &own->left[rank], call, CALL_AWAITS_LEFT, rank);
    return good;
}

MM_DEVICE void note_opened(const call_group &group, uint32_t call, bool good, uint32_t stranger) {
    call_state *state = group.state;
    store_release_gpu(&state->call, call); /* mm_call_stop may run beside this kernel */
    store_u32(&state->opened, good);
    store_u32(&state->introduced, good);
    store_u32(&state->result.call, call);
    if (stranger != NOBODY) {
        store_u32(&state->result.outcome, CALL_STRANGER);
        store_u32(&state->result.rank, stranger);
    } else {
        store_u32(&state->result.outcome, good ? CALL_GOOD : CALL_STOPPED);
        store_u32(&state->result.rank, good ? 0 : stopped_by(group) - 1);
    }
}

MM_KERNEL(mm_call_open, open_params, CALL_THREADS) {
    grid_dependency_wait(); /* and nobody starts early behind this one: it may wait for long */
    const call_group &group = p.group;
    const uint32_t before = load_u32(&group.state->call);
    uint32_t stranger = NOBODY;
    bool good = stopped_by(group) == 0;
    if (p.introduces && load_u32(&group.state->introduced) == 0) {
        introduce(p);
        stranger = find_stranger(p, good);
    }
    good = good && stranger == NOBODY && all_left(group, before);
    const bool all_good = warp_ballot(!good) == 0;
    warp_sync(); /* all lanes have read the number before, and lane 0 sees the stop that another one has seen */
    if (lane_index() == 0)
        note_opened(group, before + 1, all_good, stranger);
}
