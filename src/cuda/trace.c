/* Memory of traces; see trace.h. It holds the CTAs of all parts, and then their records. */
#include "cuda/trace.h"

static const char *name_of(const struct mm_cuda_call *call) {
    return call->kind == MM_CALL_FORWARD ? "the trace of a forward" : "the trace of a backward";
}

/* That a part can have. */
static size_t cta_count(const struct mm_cuda_call *call) {
    return (size_t)call->gpu->device.multiprocessors;
}

static size_t bytes_of_ctas(const struct mm_cuda_call *call, const struct mm_cuda_trace *trace) {
    return mm_align((size_t)trace->parts * cta_count(call) * sizeof(struct trace_cta));
}

static size_t record_count(const struct mm_cuda_call *call, const struct mm_cuda_trace *trace) {
    return cta_count(call) * TRACE_ROLES * trace->room;
}

void mm_cuda_trace_free(const struct mm_cuda_call *call, struct mm_cuda_trace *trace) {
    mm_device_free(call->gpu, &trace->memory);
}

mmoe_status mm_cuda_trace_make(struct mm_cuda_call *call, struct mm_cuda_trace *trace, int parts) {
    if (call->captured) {
        return mm_fail(MMOE_UNSUPPORTED, "trace is wanted of a call that is captured, expected a stream that runs");
    }
    trace->parts = parts;
    const size_t records = (size_t)parts * record_count(call, trace);
    mmoe_status status = mm_device_reserve(
        call->gpu, &trace->memory, bytes_of_ctas(call, trace) + records * sizeof(struct trace_record), name_of(call));
    if (status != MMOE_OK) {
        return status;
    }
    status = MM_CU(&call->gpu->driver, cuMemsetD8Async, name_of(call), trace->memory.address, 0,
                   bytes_of_ctas(call, trace), call->stream);
    if (status != MMOE_OK) {
        mm_cuda_trace_free(call, trace);
        return status;
    }
    call->trace = trace;
    return MMOE_OK;
}

static struct trace_params params_of(const struct mm_cuda_call *call, int part) {
    const struct mm_cuda_trace *trace = call->trace;
    struct trace_cta *ctas = mm_at(trace->memory.address);
    struct trace_record *records = mm_at(trace->memory.address + bytes_of_ctas(call, trace));
    return (struct trace_params){ctas + (size_t)part * cta_count(call),
                                 records + (size_t)part * record_count(call, trace), trace->room};
}

struct trace_params mm_cuda_trace_part(const struct mm_cuda_call *call, int part, uint32_t first_tile) {
    if (call->trace == NULL) {
        return (struct trace_params){0};
    }
    call->trace->first_tile[part] = first_tile;
    return params_of(call, part);
}

static enum mm_cuda_kernel recording(enum mm_cuda_kernel which) {
    switch (which) {
    case MM_KERNEL_FORWARD:
        return MM_KERNEL_FORWARD_TRACED;
    case MM_KERNEL_FORWARD_GROUPED:
        return MM_KERNEL_FORWARD_GROUPED_TRACED;
    case MM_KERNEL_BACKWARD:
        return MM_KERNEL_BACKWARD_TRACED;
    case MM_KERNEL_BACKWARD_END:
        return MM_KERNEL_BACKWARD_END_TRACED;
    case MM_KERNEL_WGRAD_BF16:
        return MM_KERNEL_WGRAD_BF16_TRACED;
    case MM_KERNEL_WGRAD_F32:
        return MM_KERNEL_WGRAD_F32_TRACED;
    default:
        return which;
    }
}

mmoe_status mm_cuda_launch_part(const struct mm_cuda_call *call, enum mm_cuda_kernel which, struct mm_cuda_grid grid,
                                const void *parameters) {
    if (call->trace == NULL) {
        return mm_cuda_launch(call, which, grid, parameters);
    }
    grid.shared_bytes = TRACED_SMEM_BYTES;
    return mm_cuda_launch(call, recording(which), grid, parameters);
}

/* ---- To the host ---- */

mmoe_status mm_cuda_trace_await(const struct mm_cuda_call *call) {
    return call->trace == NULL ? MMOE_OK : MM_CU(&call->gpu->driver, cuStreamSynchronize, name_of(call), call->stream);
}

static mmoe_status copy(const struct mm_cuda_call *call, void *to, const void *from, size_t bytes) {
    return mm_copy_to_host(call->gpu, to, (mm_cu_pointer)(uintptr_t)from, bytes, call->stream, name_of(call));
}

/* Of one part. */
static size_t kept_of(const struct mm_cuda_call *call, const struct trace_cta *ctas) {
    size_t kept = 0;
    for (size_t c = 0; c < cta_count(call); c++) {
        for (int role = 0; role < TRACE_ROLES; role++) {
            kept += mm_trace_kept(&ctas[c], role, call->trace->room);
        }
    }
    return kept;
}

/* Without the room that was not used. */
static mmoe_status copy_records(const struct mm_cuda_call *call, int part, const struct trace_cta *ctas,
                                struct trace_record *records) {
    const struct trace_params params = params_of(call, part);
    mmoe_status status = MMOE_OK;
    for (size_t c = 0; c < cta_count(call); c++) {
        for (int role = 0; role < TRACE_ROLES && status == MMOE_OK; role++) {
            const size_t kept = mm_trace_kept(&ctas[c], role, params.room);
            const size_t first = (c * TRACE_ROLES + (size_t)role) * params.room;
            status = copy(call, records, params.records + first, kept * sizeof *records);
            records += kept;
        }
    }
    return status;
}

static mmoe_status make_events(const struct mm_cuda_call *call, struct mm_cuda_trace *trace,
                               const struct mm_trace_records *parts, size_t kept) {
    const size_t header = mm_align(sizeof(mmoe_trace));
    mmoe_status status = mm_alloc_zero((void **)&trace->made, header + kept * sizeof(mmoe_trace_event), name_of(call));
    if (status != MMOE_OK) {
        return status;
    }
    mmoe_trace_event *events = (mmoe_trace_event *)((char *)trace->made + header);
    *trace->made = (mmoe_trace){.rank = call->group->rank, .world = call->group->world, .events = events};
    mm_trace_events(parts, trace->parts, (unsigned)cta_count(call), trace->room, trace->made, events);
    return MMOE_OK;
}

/* `ctas` are those of all parts. */
static mmoe_status read_records(const struct mm_cuda_call *call, struct mm_cuda_trace *trace,
                                const struct trace_cta *ctas) {
    struct mm_trace_records parts[MM_TRACE_MOST_PARTS];
    struct trace_record *records = NULL;
    size_t kept = 0, copied = 0;
    for (int part = 0; part < trace->parts; part++) {
        kept += kept_of(call, ctas + (size_t)part * cta_count(call));
    }
    mmoe_status status = mm_alloc((void **)&records, kept * sizeof *records, "the records of a trace");
    for (int part = 0; part < trace->parts && status == MMOE_OK; part++) {
        const struct trace_cta *own = ctas + (size_t)part * cta_count(call);
        parts[part] = (struct mm_trace_records){own, records + copied, trace->first_tile[part]};
        status = copy_records(call, part, own, records + copied);
        copied += kept_of(call, own);
    }
    if (status == MMOE_OK) {
        status = make_events(call, trace, parts, kept);
    }
    mm_free(&records);
    return status;
}

mmoe_status mm_cuda_trace_read(const struct mm_cuda_call *call, struct mm_cuda_trace *trace) {
    const size_t bytes = (size_t)trace->parts * cta_count(call) * sizeof(struct trace_cta);
    struct trace_cta *ctas = NULL;
    mmoe_status status = mm_alloc((void **)&ctas, bytes, "the CTAs of a trace");
    if (status == MMOE_OK) {
        status = copy(call, ctas, mm_at(trace->memory.address), bytes);
    }
    if (status == MMOE_OK) {
        status = read_records(call, trace, ctas);
    }
    mm_free(&ctas);
    return status;
}
