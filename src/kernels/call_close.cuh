/* The end of a call on this rank: the CTA that ends last closes it. */
#ifndef MM_KERNELS_CALL_CLOSE_CUH
#define MM_KERNELS_CALL_CLOSE_CUH

#include "kernels/call_end.cuh"
#include "kernels/call_team.cuh"
#include "kernels/strided.cuh"

/* By the team: NaN in a matrix of bf16. */
MM_DEVICE void fill_nan(const call_team &team, const strided_matrix &to, uint32_t rows, uint32_t columns) {
    const uint64_t elements = (uint64_t)rows * columns;
    for (uint64_t i = thread_index() - 32 * team.first_warp; i < elements; i += 32 * team.warps)
        store_u16(element_at(to, (uint32_t)(i / columns), (uint32_t)(i % columns)), 0x7fc0);
}

/* By the team, when all of it is done. */
MM_DEVICE bool ends_last(const call_work &work, const call_team &team) {
    uint32_t ended = 0;
    team_sync(team);
    if (is_first_warp(team) && lane_index() == 0)
        ended = fetch_add_acq_rel_gpu(&work.counters->ended.value, 1) + 1 - load_u32(&work.base->ended);
    return tell_team(team, ended) == cta_count();
}

/* After the last CTA. */
MM_DEVICE call_result final_result(const call_group &group) {
    const call_state *state = group.state;
    const uint32_t call = load_u32(&state->call);
    if (load_u32_l2(&state->gave_up) != 0)
        return {CALL_STOPPED, stopped_by(group) - 1, 0, call};
    return {load_u32(&state->result.outcome), load_u32(&state->result.rank), load_u32(&state->result.rows), call};
}

/* Whether the host has still to be told of a failure. Of others it has been when the ranks met. */
MM_DEVICE bool fails_late(const call_result &result) {
    return result.outcome == CALL_CAPACITY || result.outcome == CALL_NO_FORWARD || result.outcome == CALL_STOPPED;
}

/* By the team of the last CTA, when all outputs are as they stay. */
MM_DEVICE void close_call(const call_group &group, const call_team &team, const call_result &result) {
    team_sync(team);
    if (is_first_warp(team) && fails_late(result))
        tell_failure(group, result);
    if (is_first_warp(team) && lane_index() == 0)
        tell_end(group, result.call);
}

/* By the team. A CTA that begins late still finds that the call is good, and does its part. */
MM_DEVICE void note_stop(const call_group &group, const call_team &team) {
    if (is_first_warp(team) && lane_index() == 0)
        store_release_gpu(&group.state->gave_up, 1);
}

#endif
