/* The record of a forward: its memory on the device, and how it comes to the caller. */
#ifndef MM_CUDA_TRACE_H
#define MM_CUDA_TRACE_H

#include "cuda/state.h"
#include "kernels/trace_params.h"

struct mm_cuda_trace {
    struct trace_params params; /* `room` is given */
    struct mm_device_buffer memory;
    mmoe_trace *made;
};

/* Makes room for one call, whose forward is recorded from now on. */
mmoe_status mm_cuda_trace_make(struct mm_cuda_call *call, struct mm_cuda_trace *trace);

/* When the call has ended on the device: `trace->made`. */
mmoe_status mm_cuda_trace_read(const struct mm_cuda_call *call, struct mm_cuda_trace *trace);

void mm_cuda_trace_free(const struct mm_cuda_call *call, struct mm_cuda_trace *trace);

/* What a traced kernel has recorded, on the host: the CTAs', and of each in order the records of its roles that were
 * kept. `made->events` has room for `made->count` of them, as many as there are records. */
void mm_trace_events(const struct trace_cta *ctas, unsigned cta_count, const struct trace_record *records,
                     uint32_t room, mmoe_trace *made, mmoe_trace_event *events);

/* Records of a role that were kept. */
static inline uint32_t mm_trace_kept(const struct trace_cta *cta, int role, uint32_t room) {
    return cta->records[role] < room ? cta->records[role] : room;
}

#endif
