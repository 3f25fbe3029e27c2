/* Waiting for counters that other CTAs and other ranks advance, and giving up.
 *
 * Whoever gives up first on a rank tells all ranks; every wait looks for that now and then. A wait that ends badly is
 * the end of the group: nothing of the call is posted any more. */
#ifndef MM_KERNELS_CALL_WAIT_CUH
#define MM_KERNELS_CALL_WAIT_CUH

#include "kernels/call_params.h"
#include "kernels/isa.cuh"

#define LOOK_NS 40        /* between two looks at a counter */
#define LOOKS_A_CHECK 256 /* between two looks at the clock and for a stop */

MM_DEVICE bool reached(uint32_t counter, uint32_t target) {
    return (int32_t)(counter - target) >= 0;
}

MM_DEVICE call_control *control_of(const call_group &group, uint32_t rank) {
    return (call_control *)group.segment[rank];
}
MM_DEVICE call_control *own_control(const call_group &group) {
    return control_of(group, group.rank);
}

/* 0, or 1 + the rank that gave up first. */
MM_DEVICE uint32_t stopped_by(const call_group &group) {
    return load_relaxed_system(&own_control(group)->stopped.value);
}

/* To all ranks, this one last: a rank that knows has nobody left to tell. Many threads may give up at once; one tells
 * why, and all return when it has told. */
MM_DEVICE void tell_stop(const call_group &group, uint32_t step, uint32_t culprit) {
    if (compare_swap_system(&group.state->stopping, 0, 1) != 0) {
        while (stopped_by(group) == 0)
            sleep_ns(LOOK_NS);
        return;
    }
    for (uint32_t i = 1; i <= group.world; i++) {
        call_control *control = control_of(group, (group.rank + i) % group.world);
        call_stop *stop = &control->stop[group.rank];
        store_u32(&stop->call, load_acquire_gpu(&group.state->call));
        store_u32(&stop->step, step);
        store_u32(&stop->culprit, culprit);
        fence_system();
        compare_swap_system(&control->stopped.value, 0, 1 + group.rank);
    }
}

/* Ranks that wait for each other in a row give up in the order that blames the first: who awaits tokens before who
 * awaits the results that they become, and last who awaits what this rank itself does. */
MM_DEVICE uint64_t patience_ns(const call_group &group, call_step step, uint32_t culprit) {
    if (culprit == group.rank)
        return 2 * group.progress_ns;
    if (step == CALL_AWAITS_READY)
        return group.arrive_ns;
    return step == CALL_AWAITS_TOKENS ? group.progress_ns / 2 : group.progress_ns;
}

/* By one thread, until the counter has reached the target; false: the call has been stopped. `culprit` is the rank that
 * is awaited. */
template <typename load>
MM_DEVICE bool await(const call_group &group, const load &value, uint32_t target, call_step step, uint32_t culprit) {
    if (reached(value(), target))
        return true;
    const uint64_t begin = clock_ns();
    for (uint32_t looks = 1;; looks++) {
        sleep_ns(LOOK_NS);
        if (reached(value(), target))
            return true;
        if (looks % LOOKS_A_CHECK != 0)
            continue;
        if (stopped_by(group) != 0)
            return false;
        if (clock_ns() - begin > patience_ns(group, step, culprit)) {
            tell_stop(group, step, culprit);
            return false;
        }
    }
}

/* What CTAs of this device count. */
MM_DEVICE bool await_here(const call_group &group, const uint32_t *counter, uint32_t target, call_step step) {
    return await(
        group, [&] { return load_acquire_gpu(counter); }, target, step, group.rank);
}

/* What rank `from` posts. */
MM_DEVICE bool await_rank(const call_group &group, const call_flag *counter, uint32_t target, call_step step,
                          uint32_t from) {
    return await(
        group, [&] { return load_acquire_system(&counter->value); }, target, step, from);
}

#endif
