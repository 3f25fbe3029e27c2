/* The pools of a call as matrices of rows. */
#ifndef MM_CUDA_VIEWS_H
#define MM_CUDA_VIEWS_H

#include "cuda/maps.h"

static inline struct mm_pool_view mm_x_view(const struct mm_cuda_call *call) {
    return (struct mm_pool_view){call->x, call->hidden, call->hidden, "the token rows"};
}

static inline struct mm_pool_view mm_dy_view(const struct mm_cuda_call *call) {
    return (struct mm_pool_view){call->dy, call->hidden, call->hidden, "the gradient rows"};
}

static inline struct mm_pool_view mm_h_view(const struct mm_cuda_call *call) {
    return (struct mm_pool_view){call->h, call->intermediate, call->intermediate, "the activation rows"};
}

static inline struct mm_pool_view mm_out_view(const struct mm_cuda_call *call) {
    return (struct mm_pool_view){call->out, call->hidden, call->hidden, "the result rows"};
}

/* One half, or both, of a pool of gate and up. */
enum mm_half { MM_GATE, MM_UP, MM_BOTH };

static inline struct mm_pool_view mm_half_view(const struct mm_cuda_call *call, mm_cu_pointer pool, enum mm_half half,
                                               const char *name) {
    const uint32_t width = call->intermediate;
    return (struct mm_pool_view){pool + (half == MM_UP ? width * sizeof(uint16_t) : 0),
                                 half == MM_BOTH ? 2 * width : width, 2 * width, name};
}

static inline struct mm_pool_view mm_gate_up_view(const struct mm_cuda_call *call, enum mm_half half) {
    return mm_half_view(call, call->gate_up, half, "the gate and up rows");
}

static inline struct mm_pool_view mm_dgrad_view(const struct mm_cuda_call *call, enum mm_half half) {
    return mm_half_view(call, call->dgrad, half, "the gate and up gradient rows");
}

#endif
