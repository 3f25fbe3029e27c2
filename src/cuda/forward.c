/* A forward: the ranks meet, each makes its plan, and one fused kernel does the rest. */
#include "cuda/calls.h"
#include "cuda/exchange.h"
#include "cuda/failure.h"
#include "cuda/fill.h"
#include "cuda/fused.h"
#include "cuda/inputs.h"
#include "cuda/passes.h"
#include "cuda/pools.h"
#include "cuda/routing.h"
#include "cuda/trace.h"

static mmoe_status check(const struct mmoe_layer *layer, const mmoe_forward_args *args) {
    const struct mm_cuda_group *cuda = layer->group->backend_state;
    const struct mm_cuda_input all[] = {
        {"x", &args->x, mm_cuda_check_tokens},
        {"ids", &args->ids, mm_cuda_check_tokens},
        {"weights", &args->weights, mm_cuda_check_tokens},
        {"gate", &args->gate, mm_cuda_check_weight},
        {"up", &args->up, mm_cuda_check_weight},
        {"down", &args->down, mm_cuda_check_weight},
        {"y", &args->y, mm_cuda_check_tokens},
    };
    return mm_cuda_check_inputs(&cuda->gpu, all, sizeof all / sizeof all[0]);
}

static mmoe_status check_captured(const mmoe_forward_args *args) {
    const struct mm_cuda_input weights[] = {
        {"gate", &args->gate, NULL}, {"up", &args->up, NULL}, {"down", &args->down, NULL}};
    return mm_cuda_check_captured(weights, sizeof weights / sizeof weights[0]);
}

/* Where this call keeps rows and plan; NULL: nowhere. */
static struct mm_cuda_saved *kept_of(const mmoe_forward_args *args) {
    return args->saved != NULL && args->saved->keep == MMOE_KEEP_ROWS ? args->saved->backend_state : NULL;
}

static bool has_fixed_capacity(const struct mm_cuda_call *call) {
    return call->layer->config.capacity_policy == MMOE_CAPACITY_FIXED;
}

/* Where the rows of this call go. Rows that are kept go to the saved state from the start. */
static void use_pools(struct mm_cuda_call *call, const struct mm_cuda_saved *kept, int64_t rows) {
    const struct mm_cuda_pools *pools = &call->cuda->pools;
    call->pool_rows = (uint32_t)mm_cuda_pool_rows(rows);
    call->x = kept != NULL ? kept->x.address : pools->x.address;
    call->gate_up = kept != NULL ? kept->gate_up.address : 0;
    call->h = pools->h.address;
    call->out = mm_cuda_is_grouped(call) ? pools->dy.address : 0;
}

static mmoe_status reserve(struct mm_cuda_call *call, struct mm_cuda_saved *kept, int64_t rows) {
    const struct mm_cuda_pool_bytes bytes = mm_cuda_pool_bytes_of(&call->layer->config, mm_cuda_pool_rows(rows));
    const struct mm_cuda_pool_bytes needed = {
        .x = kept == NULL ? bytes.x : 0, .dy = mm_cuda_is_grouped(call) ? bytes.dy : 0, .h = bytes.h};
    mmoe_status status = kept != NULL ? mm_cuda_kept_reserve(call->gpu, call->stream, kept, &bytes) : MMOE_OK;
    if (status == MMOE_OK) {
        status = mm_cuda_pools_reserve(call->cuda, call->stream, &needed);
    }
    use_pools(call, kept, rows);
    return status;
}

/* Padded rows for which there is room already, in the pools and in the plan. */
static int64_t rows_at_hand(const struct mm_cuda_call *call, const struct mm_cuda_saved *kept) {
    const struct mm_cuda_pools *pools = &call->cuda->pools;
    const struct mm_cuda_pool_bytes row = mm_cuda_pool_bytes_of(&call->layer->config, 1);
    const size_t rows[] = {
        (kept != NULL ? kept->x.bytes : pools->x.bytes) / row.x,
        kept != NULL ? kept->gate_up.bytes / row.gate_up : SIZE_MAX,
        pools->h.bytes / row.h,
        mm_cuda_is_grouped(call) ? pools->dy.bytes / row.dy : SIZE_MAX,
    };
    size_t least = (size_t)call->plan->row_room;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        least = rows[i] < least ? rows[i] : least;
    }
    return (int64_t)least / MMOE_ROW_BLOCK * MMOE_ROW_BLOCK;
}

/* ---- Steps ---- */

static mmoe_status exchange(struct mm_cuda_call *call, const mmoe_forward_args *args) {
    mmoe_status status = mm_cuda_exchange_forward(call, args);
    if (status == MMOE_OK) {
        status = mm_cuda_phase_ends(call, &call->report.seconds_exchange);
    }
    if (status == MMOE_OK) {
        status = mm_cuda_make_plan(call);
    }
    if (status == MMOE_OK) {
        status = mm_cuda_await_copy(call);
    }
    return status == MMOE_OK ? mm_cuda_phase_ends(call, &call->report.seconds_plan) : status;
}

static mmoe_status compute_fixed(struct mm_cuda_call *call, const mmoe_forward_args *args, struct mm_cuda_saved *kept) {
    mmoe_status status = reserve(call, kept, call->plan->row_room);
    return status == MMOE_OK ? mm_cuda_fused_forward(call, args, MM_FUSED_FOR_GOOD) : status;
}

/* The kernel is queued before the host has read the demand, for the room that there is: the GPU goes on while the host
 * waits. When that is too little it does nothing, and a second one follows. `*known` becomes how the ranks have met. */
static mmoe_status compute_growing(struct mm_cuda_call *call, const mmoe_forward_args *args, struct mm_cuda_saved *kept,
                                   mmoe_status *known) {
    const int64_t room = rows_at_hand(call, kept);
    mmoe_status status = MMOE_OK;
    if (room > 0) {
        use_pools(call, kept, room);
        status = mm_cuda_fused_forward(call, args, MM_FUSED_IF_ROOM);
    }
    if (status == MMOE_OK) {
        status = mm_cuda_await_plan(call);
    }
    if (status != MMOE_OK) {
        return status;
    }
    *known = mm_cuda_failure_of(call->group, call->plan->summary.call);
    const int64_t rows = call->plan->summary.padded_rows;
    if (*known != MMOE_OK || (room > 0 && rows <= room)) {
        return MMOE_OK;
    }
    status = reserve(call, kept, rows);
    return status == MMOE_OK ? mm_cuda_fused_forward(call, args, MM_FUSED_FOR_GOOD) : status;
}

/* With a report, or a trace, which ends when it has been written. */
static mmoe_status await_end(struct mm_cuda_call *call, mmoe_report *out) {
    mmoe_status status = out != NULL ? mm_cuda_report(call, out) : MMOE_OK;
    if (status == MMOE_OK) {
        status = mm_cuda_trace_await(call);
    }
    return status == MMOE_OK ? mm_cuda_failure_of_ended(call->group) : mm_cuda_give_up(call, status);
}

/* Everything from the exchange on. A failure of this host's own breaks the group. */
static mmoe_status forward(struct mm_cuda_call *call, const mmoe_forward_args *args) {
    struct mm_cuda_saved *kept = kept_of(args);
    mmoe_status known = MMOE_OK;
    mmoe_status status = exchange(call, args);
    if (status == MMOE_OK) {
        status = has_fixed_capacity(call) ? compute_fixed(call, args, kept) : compute_growing(call, args, kept, &known);
    }
    if (status == MMOE_OK) {
        status = mm_cuda_phase_ends(call, &call->report.seconds_fused);
    }
    if (status != MMOE_OK) {
        return mm_cuda_give_up(call, status);
    }
    return known == MMOE_OK && (args->report != NULL || call->trace != NULL) ? await_end(call, args->report) : known;
}

/* A failure's own text stays, whatever becomes of the filling. */
static mmoe_status fail(const struct mm_cuda_call *call, const mmoe_forward_args *args, mmoe_status status) {
    if (call->group->broken == MMOE_OK || mm_cuda_fill_nan(call, &args->y) == MMOE_OK) {
        return status;
    }
    return mm_fail(status, "%s", call->group->broken_text);
}

static mmoe_status fail_to_begin(const struct mm_cuda_call *call, const mmoe_forward_args *args, mmoe_status status) {
    if (!call->broke) {
        return status;
    }
    if (mm_gpu_enter(call->gpu) == MMOE_OK) {
        mm_cuda_fill_nan(call, &args->y);
        mm_gpu_leave(call->gpu);
    }
    return mm_fail(status, "%s", call->group->broken_text);
}

static void choose_plan(struct mm_cuda_call *call, const mmoe_forward_args *args) {
    struct mm_cuda_saved *saved = args->saved != NULL ? args->saved->backend_state : NULL;
    if (args->saved != NULL) {
        args->saved->call = 0; /* until this forward has succeeded */
    }
    call->plan = saved != NULL ? &saved->plan : &call->cuda->plan;
}

/* A call that begins and ends here; `trace` NULL: it is not recorded. */
static mmoe_status make_call(struct mmoe_layer *layer, const mmoe_forward_args *args, struct mm_cuda_trace *trace) {
    struct mm_cuda_call call;
    mmoe_status status = check(layer, args);
    if (status != MMOE_OK) {
        return mm_cuda_refuse_whole(layer, MM_CALL_FORWARD, args->stream, status);
    }
    status = mm_cuda_begin(&call, layer, MM_CALL_FORWARD, args->x.shape[0], args->stream, args->report != NULL);
    if (status != MMOE_OK) {
        return fail_to_begin(&call, args, status);
    }
    call.gate = &args->gate;
    call.up = &args->up;
    call.down = &args->down;
    mm_cuda_bring(&call, &args->x, call.cuda->layout.x);
    choose_plan(&call, args);
    status = call.captured ? check_captured(args) : MMOE_OK;
    if (status == MMOE_OK) {
        status = mm_cuda_reserve_plan(&call);
    }
    if (status == MMOE_OK && trace != NULL) {
        status = mm_cuda_trace_make(&call, trace, 1);
    }
    if (status != MMOE_OK) {
        return mm_cuda_refuse(&call, status);
    }
    status = forward(&call, args);
    if (status != MMOE_OK) {
        status = fail(&call, args, status);
    } else if (args->saved != NULL) {
        args->saved->call = layer->group->call;
        args->saved->tokens = args->x.shape[0];
    }
    if (status == MMOE_OK && trace != NULL) {
        status = mm_cuda_trace_read(&call, trace);
    }
    if (trace != NULL) {
        mm_cuda_trace_free(&call, trace);
    }
    return mm_cuda_end(&call, status);
}

mmoe_status mm_cuda_forward(struct mmoe_layer *layer, const mmoe_forward_args *args) {
    return make_call(layer, args, NULL);
}

mmoe_status mm_cuda_forward_traced(struct mmoe_layer *layer, const mmoe_forward_args *args, int64_t records,
                                   mmoe_trace **made) {
    struct mm_cuda_trace trace = {.room = (uint32_t)records};
    mmoe_status status = make_call(layer, args, &trace);
    if (status != MMOE_OK) {
        mmoe_trace_destroy(&trace.made); /* an earlier call's failure is told by this one */
    }
    *made = trace.made;
    return status;
}
