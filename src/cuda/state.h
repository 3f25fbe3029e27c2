/* What the backend keeps for a group, a layer and a saved state, and the passage of one call. */
#ifndef MM_CUDA_STATE_H
#define MM_CUDA_STATE_H

#include "backend/backend.h"
#include "cuda/kernel.h"
#include "cuda/plan.h"
#include "cuda/shared_memory.h"
#include "cuda/sizes.h"
#include "cuda/workspace.h"

enum mm_cuda_kernel {
    MM_KERNEL_CALL_OPEN,
    MM_KERNEL_CALL_COPY,
    MM_KERNEL_CALL_ENTER,
    MM_KERNEL_CALL_MEET,
    MM_KERNEL_CALL_STOP,
    MM_KERNEL_COUNT_SLOTS,
    MM_KERNEL_PLACE_SLOTS,
    MM_KERNEL_FORWARD,
    MM_KERNEL_FORWARD_TRACED,
    MM_KERNEL_FORWARD_GROUPED,
    MM_KERNEL_FORWARD_GROUPED_TRACED,
    MM_KERNEL_PLAN_RESUME,
    MM_KERNEL_BACKWARD,
    MM_KERNEL_BACKWARD_TRACED,
    MM_KERNEL_BACKWARD_END,
    MM_KERNEL_BACKWARD_END_TRACED,
    MM_KERNEL_GATE_UP,
    MM_KERNEL_DOWN,
    MM_KERNEL_DGATE_UP,
    MM_KERNEL_DX,
    MM_KERNEL_WGRAD_BF16,
    MM_KERNEL_WGRAD_BF16_TRACED,
    MM_KERNEL_WGRAD_F32,
    MM_KERNEL_WGRAD_F32_TRACED,
    MM_KERNEL_FILL_NAN,
    MM_KERNELS
};

/* Rows, bf16 unless said otherwise; scratch that the layers of a group share. */
struct mm_cuda_pools {
    struct mm_device_buffer x;        /* [rows, H] tokens */
    struct mm_device_buffer dy;       /* [rows, H] gradients of the tokens' outputs; grouped forward: results */
    struct mm_device_buffer gate_up;  /* [rows, 2I] gate, then up */
    struct mm_device_buffer h;        /* [rows, I] forward: h; backward: w*h */
    struct mm_device_buffer dgrad;    /* [rows, 2I] gradients of gate, then of up */
    struct mm_device_buffer dw_parts; /* [tiles, rows] fp32 */
};

#define MM_CUDA_PHASES 8

struct mm_cuda_group {
    struct mm_gpu gpu;
    struct mm_shared_memory shared; /* the blocks of all ranks */
    struct mm_layout layout;        /* what lies where in a block */
    struct mm_kernel kernels[MM_KERNELS];
    struct mm_cuda_pools pools;
    struct mm_cuda_workspace workspace;
    struct mm_device_buffer weight_maps; /* of weights given as one pointer an expert */
    struct plan_summary *summary;        /* where the host reads it to; pinned, as is the next one */
    struct call_told *told;              /* what devices tell the host of calls */
    uint32_t told_behind;                /* failures behind a first one that has not been seen, already told */
    bool stop_seen;                      /* that it tells of */
    struct mm_cuda_plan plan;            /* of a forward that keeps nothing */
    mm_cu_event phase_ends[MM_CUDA_PHASES + 1];
    mm_cu_stream side;     /* for what goes on beside a call's stream */
    mm_cu_stream orders;   /* for what ends waits: nothing in it waits */
    mm_cu_event summed;    /* the host has the sums of the plan */
    mm_cu_event opened;    /* the current call has been opened */
    mm_cu_event copied;    /* its tokens are in the slot */
    mm_cu_event planned;   /* the plan of the current call is there */
    mm_cu_event call_ends; /* of the last call that was not captured, if there was any */
    bool any_call;
    bool adds;                         /* one that had not ended when it was looked at adds to gradients */
    bool graphs;                       /* calls have been captured: */
    struct mm_cuda_outgrown *outgrown; /* buffers that they use and later calls don't */
};

struct mm_cuda_outgrown {
    struct mm_device_buffer buffer;
    struct mm_cuda_outgrown *next;
};

struct mm_cuda_saved {
    struct mm_cuda_plan plan;
    struct mm_device_buffer x, gate_up; /* kept rows, as in the pools */
};

/* Rows of this rank's tokens that a call brings to where all ranks read them. */
struct mm_cuda_slot {
    const mmoe_tensor *from; /* [T, H] */
    size_t offset;           /* of the slot, in the block of each rank */
    mm_cu_pointer own;       /* where they lie as in a slot already: this rank reads them there; 0: nowhere */
};

/* One call on its way. */
struct mm_cuda_call {
    struct mmoe_layer *layer;
    struct mmoe_group *group;
    struct mm_cuda_group *cuda;
    const struct mm_gpu *gpu;
    enum mm_call_kind kind;
    mm_cu_stream stream;
    uint32_t hidden, intermediate, top_k, tokens;
    struct mm_cuda_plan *plan;
    uint32_t pool_rows; /* rows of the pools in use: the plan's, but at least one block */
    struct mm_cuda_slot slots[2];
    uint32_t slot_count;
    mm_cu_pointer x, dy, gate_up, h, dgrad, dw_parts;
    mm_cu_pointer out;                   /* results: of a product alone, or those that a grouped forward sums; else 0 */
    const mmoe_tensor *gate, *up, *down; /* the weights */
    int64_t maps_used;                   /* of weight_maps */
    bool recompute;                      /* backward: x and gate and up were not kept */
    bool wants_weights;                  /* backward: gradients of weights are wanted */

    mmoe_status earlier; /* not MMOE_OK: an earlier call has failed, which this one tells */
    char earlier_text[MM_ERROR_BYTES];

    struct mm_cuda_trace *trace; /* where the call is recorded, or NULL */

    bool captured; /* kept for a graph, not run */
    bool broke;    /* its beginning broke the group */
    bool adds;     /* what adds to gradients of weights may have been queued */
    mmoe_report report;
    bool timed;
    double started;
    int phases;
    double *phase_seconds[MM_CUDA_PHASES]; /* in `report` */
};

/* A forward whose ranks sum what they computed of a token. */
static inline bool mm_cuda_is_grouped(const struct mm_cuda_call *call) {
    return call->kind == MM_CALL_FORWARD && call->layer->config.combine == MMOE_COMBINE_GROUPED &&
           call->group->world > 1;
}

/* A call with `tokens` own tokens. With `timed` it notes when phases end, for the report. */
struct mm_cuda_call mm_cuda_call_of(struct mmoe_layer *layer, enum mm_call_kind kind, int64_t tokens, void *stream,
                                    bool timed);

/* What is queued from now on counts to the first phase. */
mmoe_status mm_cuda_phases_begin(const struct mm_cuda_call *call);

/* What was queued since the last phase ended counts to `*seconds`, which lies in the call's report. */
mmoe_status mm_cuda_phase_ends(struct mm_cuda_call *call, double *seconds);

/* Waits for the end of the call and writes its report. */
mmoe_status mm_cuda_report(struct mm_cuda_call *call, mmoe_report *report);

struct mm_cuda_grid {
    unsigned ctas, threads;
    unsigned cluster;      /* 0: none */
    bool overlapping;      /* see struct mm_launch */
    unsigned shared_bytes; /* at most what the kernel was found with */
};

/* That kernels of a CTA on each may take. */
static inline unsigned mm_cuda_multiprocessors(const struct mm_cuda_call *call) {
    return (unsigned)(call->gpu->device.multiprocessors - call->group->config.spare_multiprocessors);
}

/* In the call's stream. */
mmoe_status mm_cuda_launch(const struct mm_cuda_call *call, enum mm_cuda_kernel which, struct mm_cuda_grid grid,
                           const void *parameters);

static inline void *mm_at(mm_cu_pointer address) {
    return (void *)(uintptr_t)address;
}

static inline bool mm_wanted(const mmoe_tensor *tensor) {
    return tensor->dims != 0;
}

#endif
