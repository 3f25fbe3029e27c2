/* What every call does: its beginning, launches, phases, the report. */
#include "base/clock.h"
#include "cuda/state.h"

mmoe_status mm_cuda_call_start(struct mm_cuda_call *call, struct mmoe_layer *layer, enum mm_call_kind kind,
                               int64_t tokens, void *stream, bool timed) {
    struct mm_cuda_group *cuda = layer->group->backend_state;
    *call = (struct mm_cuda_call){
        .layer = layer,
        .group = layer->group,
        .cuda = cuda,
        .gpu = &cuda->gpu,
        .kind = kind,
        .stream = stream,
        .hidden = (uint32_t)layer->config.hidden,
        .intermediate = (uint32_t)layer->config.intermediate,
        .top_k = (uint32_t)layer->config.top_k,
        .tokens = (uint32_t)tokens,
        .timed = timed,
        .started = mm_now(),
    };
    if (!timed) {
        return MMOE_OK;
    }
    return MM_CU(&cuda->gpu.driver, cuEventRecord, "noting when the call begins", cuda->phase_ends[0], call->stream);
}

mmoe_status mm_cuda_phase_ends(struct mm_cuda_call *call, double *seconds) {
    if (!call->timed) {
        return MMOE_OK;
    }
    call->phase_seconds[call->phases++] = seconds;
    return MM_CU(&call->gpu->driver, cuEventRecord, "noting when a phase ends", call->cuda->phase_ends[call->phases],
                 call->stream);
}

static mmoe_status read_phases(struct mm_cuda_call *call) {
    const struct mm_driver *driver = &call->gpu->driver;
    const mm_cu_event *ends = call->cuda->phase_ends;
    mmoe_status status = MM_CU(driver, cuEventSynchronize, "awaiting the end of the call", ends[call->phases]);
    for (int i = 0; i < call->phases && status == MMOE_OK; i++) {
        float milliseconds = 0;
        status = MM_CU(driver, cuEventElapsedTime, "reading the time of a phase", &milliseconds, ends[i], ends[i + 1]);
        *call->phase_seconds[i] += (double)milliseconds * 1e-3;
    }
    return status;
}

mmoe_status mm_cuda_report(struct mm_cuda_call *call, mmoe_report *report) {
    const struct plan_summary *summary = &call->plan->summary;
    mmoe_status status = read_phases(call);
    if (status != MMOE_OK) {
        return status;
    }
    call->report.call = call->group->call;
    call->report.rows = summary->rows;
    call->report.padded_rows = summary->padded_rows;
    call->report.dropped = summary->slots_dropped;
    call->report.seconds_total = mm_now() - call->started;
    *report = call->report;
    return MMOE_OK;
}

mmoe_status mm_cuda_launch(const struct mm_cuda_call *call, enum mm_cuda_kernel which, struct mm_cuda_grid grid,
                           const void *parameters) {
    struct mm_kernel kernel = call->cuda->kernels[which];
    kernel.shared_bytes = grid.shared_bytes;
    const struct mm_launch launch = {
        .stream = call->stream, .ctas = grid.ctas, .threads = grid.threads, .cluster = grid.cluster};
    return mm_kernel_launch(call->gpu, &kernel, &launch, parameters);
}
