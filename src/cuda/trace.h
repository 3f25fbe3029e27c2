/* The record of a call: its memory on the device, and how it comes to the caller. */
#ifndef MM_CUDA_TRACE_H
#define MM_CUDA_TRACE_H

#include "cuda/state.h"
#include "kernels/trace_params.h"

/* The kernels of a call that are recorded: a forward has the first alone. */
enum mm_trace_part {
    MM_TRACE_ROWS,  /* the fused one */
    MM_TRACE_END,   /* of a backward */
    MM_TRACE_WGRAD, /* and the next ones: gradients of weights */
    MM_TRACE_MOST_PARTS = MM_TRACE_WGRAD + 3
};

struct mm_cuda_trace {
    uint32_t room; /* given: records of a role and part */
    int parts;
    uint32_t first_tile[MM_TRACE_MOST_PARTS];
    struct mm_device_buffer memory;
    mmoe_trace *made;
};

/* Makes room for one call of so many parts, which is recorded from now on. */
mmoe_status mm_cuda_trace_make(struct mm_cuda_call *call, struct mm_cuda_trace *trace, int parts);

/* What the kernel of a part is told; nothing without a trace. `first_tile` is what it calls tile 0. */
struct trace_params mm_cuda_trace_part(const struct mm_cuda_call *call, int part, uint32_t first_tile);

/* Launches a kernel, or where the call is recorded the one that does the same and tells. */
mmoe_status mm_cuda_launch_part(const struct mm_cuda_call *call, enum mm_cuda_kernel which, struct mm_cuda_grid grid,
                                const void *parameters);

/* With a trace, until the call has ended on the device. */
mmoe_status mm_cuda_trace_await(const struct mm_cuda_call *call);

/* After that: `trace->made`. */
mmoe_status mm_cuda_trace_read(const struct mm_cuda_call *call, struct mm_cuda_trace *trace);

void mm_cuda_trace_free(const struct mm_cuda_call *call, struct mm_cuda_trace *trace);

/* What the kernels of a part have recorded, on the host: their CTAs', and of each in order the records of its roles
 * that were kept. */
struct mm_trace_records {
    const struct trace_cta *ctas;
    const struct trace_record *records;
    uint32_t first_tile;
};

/* `made->events` has room for as many events as there are records. */
void mm_trace_events(const struct mm_trace_records *parts, int part_count, unsigned cta_count, uint32_t room,
                     mmoe_trace *made, mmoe_trace_event *events);

/* Records of a role that were kept. */
static inline uint32_t mm_trace_kept(const struct trace_cta *cta, int role, uint32_t room) {
    return cta->records[role] < room ? cta->records[role] : room;
}

#endif
