/* The end of a backward: once all that other ranks send has come, the sums of this rank's tokens and the gradients of
 * its router weights; the CTA that is done last closes the call. */
#include "kernels/backward_params.h"
#include "kernels/call_close.cuh"
#include "kernels/sum_results.cuh"

MM_DEVICE call_team whole_cta(void) {
    return {0, BACKWARD_END_THREADS / 32, 1, smem_base()};
}

MM_DEVICE float *dweight_at(const backward_end_params &p, uint32_t i) {
    return (float *)p.dweights.data +
           (i / p.call.top_k * p.dweights.stride[0] + i % p.call.top_k * p.dweights.stride[1]);
}

/* Exactly 0 for a slot without a row. */
MM_DEVICE void copy_dw(const backward_end_params &p) {
    const fused_call &call = p.call;
    const float *dw = (const float *)(call.group.segment[call.group.rank] + p.dw);
    for (uint32_t i = cta_index() * BACKWARD_END_THREADS + thread_index(); i < call.tokens * call.top_k;
         i += cta_count() * BACKWARD_END_THREADS) {
        const bool used = (int32_t)load_u32(call.slots.row + i) >= 0;
        store_u32(dweight_at(p, i), used ? load_u32(dw + i) : 0);
    }
}

/* false: what other ranks send has not come. */
MM_DEVICE bool take_results(const backward_end_params &p, const call_team &team) {
    const call_group &group = p.call.group;
    const call_control *own = own_control(group);
    if (!await_arrivals(group, team, own->dw_arrived, group.state->dw_target) ||
        !await_arrivals(group, team, own->rows_arrived, group.state->rows_target))
        return false;
    note(p.call.trace, TRACE_AWAIT_RESULTS);
    if (p.dweights.data != nullptr)
        copy_dw(p);
    note(p.call.trace, TRACE_COPY_DW);
    if (p.dx.data != nullptr)
        sum_all_tokens(p.call, p.dx);
    return true;
}

MM_DEVICE void spoil(const backward_end_params &p, const call_team &team) {
    if (p.dx.data != nullptr)
        fill_nan(team, p.dx, p.call.tokens, p.call.hidden);
    for (uint32_t i = thread_index(); i < p.call.tokens * p.call.top_k && p.dweights.data != nullptr;
         i += BACKWARD_END_THREADS)
        store_u32(dweight_at(p, i), 0x7fc00000);
}

#if TRACED
MM_KERNEL(mm_backward_end_traced, backward_end_params, BACKWARD_END_THREADS) {
#else
MM_KERNEL(mm_backward_end, backward_end_params, BACKWARD_END_THREADS) {
#endif
    grid_dependency_wait();
    const call_group &group = p.call.group;
    const call_team team = whole_cta();
    open_consumer_log(p.call.trace);
    /* That the call is given up may be noted meanwhile: warps that looked for it here might part. Waits look. */
    const bool good = load_u32(&group.state->result.outcome) == CALL_GOOD;
    if (good && !take_results(p, team))
        note_stop(group, team);
    close_consumer_log(p.call.trace);
    if (!ends_last(p.call.work, team))
        return;
    const call_result result = final_result(group);
    if (result.outcome != CALL_GOOD)
        spoil(p, team);
    close_call(group, team, result);
}
