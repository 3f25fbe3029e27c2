/* Memory of traces; see trace.h. */
#include "cuda/trace.h"

#define BYTES_OF_CTAS(count) mm_align((count) * sizeof(struct trace_cta))

static size_t cta_count(const struct mm_cuda_call *call) {
    return (size_t)call->gpu->device.multiprocessors;
}

mmoe_status mm_cuda_trace_make(struct mm_cuda_call *call, struct mm_cuda_trace *trace) {
    static const char what[] = "the trace of a forward";
    const size_t ctas = cta_count(call), records = ctas * TRACE_ROLES * trace->params.room;
    if (call->captured) {
        return mm_fail(MMOE_UNSUPPORTED, "trace is wanted of a call that is captured, expected a stream that runs");
    }
    mmoe_status status =
        mm_device_reserve(call->gpu, &trace->memory, BYTES_OF_CTAS(ctas) + records * sizeof(struct trace_record), what);
    if (status != MMOE_OK) {
        return status;
    }
    trace->params.ctas = mm_at(trace->memory.address);
    trace->params.records = mm_at(trace->memory.address + BYTES_OF_CTAS(ctas));
    call->trace = &trace->params;
    return MM_CU(&call->gpu->driver, cuMemsetD8Async, what, trace->memory.address, 0, BYTES_OF_CTAS(ctas),
                 call->stream);
}

void mm_cuda_trace_free(const struct mm_cuda_call *call, struct mm_cuda_trace *trace) {
    mm_device_free(call->gpu, &trace->memory);
}

static mmoe_status copy(const struct mm_cuda_call *call, void *to, const void *from, size_t bytes) {
    return mm_copy_to_host(call->gpu, to, (mm_cu_pointer)(uintptr_t)from, bytes, call->stream,
                           "reading the trace of a forward");
}

static size_t kept_of(const struct trace_cta *ctas, size_t count, uint32_t room) {
    size_t kept = 0;
    for (size_t c = 0; c < count; c++) {
        for (int role = 0; role < TRACE_ROLES; role++) {
            kept += mm_trace_kept(&ctas[c], role, room);
        }
    }
    return kept;
}

/* Without the room that was not used. */
static mmoe_status copy_records(const struct mm_cuda_call *call, const struct trace_params *params,
                                const struct trace_cta *ctas, struct trace_record *records) {
    mmoe_status status = MMOE_OK;
    for (size_t c = 0; c < cta_count(call); c++) {
        for (int role = 0; role < TRACE_ROLES && status == MMOE_OK; role++) {
            const size_t kept = mm_trace_kept(&ctas[c], role, params->room);
            const size_t first = (c * TRACE_ROLES + (size_t)role) * params->room;
            status = copy(call, records, params->records + first, kept * sizeof *records);
            records += kept;
        }
    }
    return status;
}

static mmoe_status make_events(const struct mm_cuda_call *call, struct mm_cuda_trace *trace,
                               const struct trace_cta *ctas, struct trace_record *records, size_t kept) {
    const size_t header = mm_align(sizeof(mmoe_trace));
    mmoe_status status = copy_records(call, &trace->params, ctas, records);
    if (status == MMOE_OK) {
        status = mm_alloc_zero((void **)&trace->made, header + kept * sizeof(mmoe_trace_event), "a trace");
    }
    if (status != MMOE_OK) {
        return status;
    }
    mmoe_trace_event *events = (mmoe_trace_event *)((char *)trace->made + header);
    *trace->made =
        (mmoe_trace){.rank = call->group->rank, .world = call->group->world, .events = events, .count = (int64_t)kept};
    mm_trace_events(ctas, (unsigned)cta_count(call), records, trace->params.room, trace->made, events);
    return MMOE_OK;
}

mmoe_status mm_cuda_trace_read(const struct mm_cuda_call *call, struct mm_cuda_trace *trace) {
    const size_t count = cta_count(call);
    struct trace_cta *ctas = NULL;
    struct trace_record *records = NULL;
    mmoe_status status = mm_alloc((void **)&ctas, count * sizeof *ctas, "the CTAs of a trace");
    if (status == MMOE_OK) {
        status = copy(call, ctas, trace->params.ctas, count * sizeof *ctas);
    }
    const size_t kept = status == MMOE_OK ? kept_of(ctas, count, trace->params.room) : 0;
    if (status == MMOE_OK) {
        status = mm_alloc((void **)&records, kept * sizeof *records, "the records of a trace");
    }
    if (status == MMOE_OK) {
        status = make_events(call, trace, ctas, records, kept);
    }
    mm_free(&records);
    mm_free(&ctas);
    return status;
}
