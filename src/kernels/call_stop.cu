/* This rank's host can't go on with the call that has begun: all ranks are told. */
#include "kernels/call_wait.cuh"

MM_KERNEL(mm_call_stop, call_params, CALL_THREADS) {
    if (lane_index() == 0 && stopped_by(p.group) == 0)
        tell_stop(p.group, CALL_GAVE_UP, p.group.rank);
}
