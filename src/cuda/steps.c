/* What every call does: its beginning, launches, phases, the report. */
#include <stddef.h>

#include "base/clock.h"
#include "cuda/listen.h"
#include "cuda/state.h"

struct mm_cuda_call mm_cuda_call_of(struct mmoe_layer *layer, enum mm_call_kind kind, int64_t tokens, void *stream,
                                    bool timed) {
    struct mm_cuda_group *cuda = layer->group->backend_state;
    return (struct mm_cuda_call){
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
}

mmoe_status mm_cuda_phases_begin(const struct mm_cuda_call *call) {
    return call->timed ? MM_CU(&call->gpu->driver, cuEventRecord, "noting when the call begins",
                               call->cuda->phase_ends[0], call->stream)
                       : MMOE_OK;
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
    mmoe_status status = mm_cuda_await(call->group, ends[call->phases], MM_STEP_AWAIT, false);
    for (int i = 0; i < call->phases && status == MMOE_OK; i++) {
        float milliseconds = 0;
        status = MM_CU(driver, cuEventElapsedTime, "reading the time of a phase", &milliseconds, ends[i], ends[i + 1]);
        *call->phase_seconds[i] += (double)milliseconds * 1e-3;
    }
    return status;
}

/* The ranks that want results of their rows, and their dw, a bit each. */
struct wishes {
    uint64_t rows, dw;
};

_Static_assert(offsetof(struct call_state, wants_dw) == offsetof(struct call_state, wants_dx) + sizeof(uint64_t),
               "wishes lie side by side");

/* After the call's end. */
static mmoe_status read_wishes(const struct mm_cuda_call *call, struct wishes *wishes) {
    if (call->kind == MM_CALL_FORWARD) {
        *wishes = (struct wishes){.rows = UINT64_MAX};
        return MMOE_OK;
    }
    const mm_cu_pointer from = (mm_cu_pointer)(uintptr_t)&call->cuda->workspace.state->wants_dx;
    return mm_copy_to_host(call->gpu, wishes, from, sizeof *wishes, call->stream, "reading what ranks wanted");
}

/* Each token that peers own is pulled once for each slot that the call fills, with its first row; each row of theirs
 * goes back, or one for each token, and in a backward its dw, where it is wanted. A forward tells all ranks ids and
 * weights. */
static void count_traffic(const struct mm_cuda_call *call, const mmoe_plan *plan, const struct wishes *wishes,
                          mmoe_report *report) {
    const int64_t bytes = (int64_t)call->hidden * (int64_t)sizeof(uint16_t);
    const bool pulls = call->wants_weights || wishes->rows != 0 || wishes->dw != 0;
    for (int64_t row = 0; row < plan->padded_rows; row++) {
        const int source = plan->row_source[row];
        const bool first = plan->row_primary[row] == row, returns = first || !mm_cuda_is_grouped(call);
        if (source >= 0 && source != plan->rank) {
            report->bytes_pulled += pulls && first ? call->slot_count * bytes : 0;
            report->bytes_pushed += returns && (wishes->rows >> source & 1) != 0 ? bytes : 0;
            report->bytes_pushed += (wishes->dw >> source & 1) != 0 ? (int64_t)sizeof(float) : 0;
        }
    }
    const int64_t slot = call->kind == MM_CALL_FORWARD ? sizeof(int32_t) + sizeof(float) : 0;
    report->bytes_pushed += (plan->world - 1) * (int64_t)call->tokens * call->top_k * slot;
}

mmoe_status mm_cuda_report(struct mm_cuda_call *call, mmoe_report *report) {
    const mmoe_plan *plan;
    struct wishes wishes;
    mmoe_status status = read_phases(call);
    call->report.seconds_total = mm_now() - call->started;
    if (status == MMOE_OK) {
        status = mm_cuda_plan_view(call->gpu, call->plan, &plan);
    }
    if (status == MMOE_OK) {
        status = read_wishes(call, &wishes);
    }
    if (status != MMOE_OK) {
        return status;
    }
    call->report.call = call->group->call;
    call->report.rows = plan->rows;
    call->report.padded_rows = plan->padded_rows;
    call->report.dropped = plan->slots_dropped;
    count_traffic(call, plan, &wishes, &call->report);
    *report = call->report;
    return MMOE_OK;
}

mmoe_status mm_cuda_launch(const struct mm_cuda_call *call, enum mm_cuda_kernel which, struct mm_cuda_grid grid,
                           const void *parameters) {
    struct mm_kernel kernel = call->cuda->kernels[which];
    kernel.shared_bytes = grid.shared_bytes;
    const struct mm_launch launch = {.stream = call->stream,
                                     .ctas = grid.ctas,
                                     .threads = grid.threads,
                                     .cluster = grid.cluster,
                                     .overlapping = grid.overlapping};
    return mm_kernel_launch(call->gpu, &kernel, &launch, parameters);
}
