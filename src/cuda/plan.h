/* A routing plan in device memory, as the plan kernels write it, and its copy for the host. */
#ifndef MM_CUDA_PLAN_H
#define MM_CUDA_PLAN_H

#include "cuda/device_memory.h"
#include "kernels/plan_params.h"
#include "plan/plan.h"

/* Where the arrays of a plan are, in a block of device memory or in a copy of it. */
struct mm_plan_arrays {
    struct plan_tables tables;
    struct plan_rows rows;
    struct plan_slots slots;
    int32_t *token_rows; /* [W, Tmax, K] of all ranks' slots: the row on this rank; negative: none */
};

/* A zeroed struct is empty. */
struct mm_cuda_plan {
    struct mm_plan_shape shape;
    int64_t tokens, row_room; /* that there is room for */
    struct mm_device_buffer memory;
    struct mm_plan_arrays arrays; /* on the device */
    struct plan_summary summary;  /* as the host has read it */
    bool summary_known;
    struct mm_buffer copy; /* of the memory, made when it is asked for */
    mmoe_plan view;        /* into the copy */
    bool copied;
    bool replayed; /* by graphs: what the host has read of it may be old */
};

/* In a stream, room for this rank's plan of up to `tokens` tokens of each rank and `row_room` padded rows. */
mmoe_status mm_cuda_plan_reserve(const struct mm_gpu *gpu, mm_cu_stream stream, struct mm_cuda_plan *plan,
                                 const struct mm_plan_shape *shape, int64_t tokens, int64_t row_room);
void mm_cuda_plan_free(const struct mm_gpu *gpu, mm_cu_stream stream, struct mm_cuda_plan *plan);

/* Bytes of device memory of such a plan. */
size_t mm_cuda_plan_bytes(const struct mm_plan_shape *shape, int64_t tokens, int64_t row_room);

/* The plan as the user sees it; waits for the device. */
mmoe_status mm_cuda_plan_view(const struct mm_gpu *gpu, struct mm_cuda_plan *plan, const mmoe_plan **view);

#endif
