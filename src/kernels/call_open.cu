/* The beginning of a call: its number, and the wait for all ranks to have left the call before, after which this rank
 * may write where they read. A peer may not even have come to that call, when this rank refused it: that wait has the
 * time limit of arrivals. */
#include "kernels/call_wait.cuh"

MM_KERNEL(mm_call_open, call_params, CALL_THREADS) {
    grid_dependency_wait(); /* and nobody starts early behind this one: it may wait for long */
    const call_group &group = p.group;
    const call_control *own = own_control(group);
    const uint32_t before = load_u32(&group.state->call), lane = lane_index();
    bool good = stopped_by(group) == 0;
    for (uint32_t rank = lane; rank < group.world && good; rank += CALL_THREADS)
        good = await_rank(group, &own->ready[rank], before, CALL_AWAITS_READY, rank) &&
               await_rank(group, &own->left[rank], before, CALL_AWAITS_LEFT, rank);
    const bool all_good = warp_ballot(!good) == 0;
    warp_sync(); /* all lanes have read the number before, and lane 0 sees the stop that another one has seen */
    if (lane == 0) {
        store_u32(&group.state->call, before + 1);
        store_u32(&group.state->opened, all_good);
        store_u32(&group.state->result.call, before + 1);
        store_u32(&group.state->result.outcome, all_good ? CALL_GOOD : CALL_STOPPED);
        store_u32(&group.state->result.rank, all_good ? 0 : stopped_by(group) - 1);
    }
}
