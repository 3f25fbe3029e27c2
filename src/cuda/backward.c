/* A backward: the ranks meet, a fused kernel computes the gradients of rows, and while those of tokens travel the
 * gradients of weights are made; then the tokens' sums. */
#include "cuda/calls.h"
#include "cuda/exchange.h"
#include "cuda/failure.h"
#include "cuda/fill.h"
#include "cuda/fused.h"
#include "cuda/inputs.h"
#include "cuda/passes.h"
#include "cuda/pools.h"
#include "cuda/products.h"
#include "cuda/routing.h"
#include "cuda/trace.h"

static mmoe_status check(const struct mmoe_layer *layer, const mmoe_backward_args *args) {
    const struct mm_cuda_group *cuda = layer->group->backend_state;
    const struct mm_cuda_input all[] = {
        {"x", &args->x, mm_cuda_check_tokens},
        {"dy", &args->dy, mm_cuda_check_tokens},
        {"gate", &args->gate, mm_cuda_check_weight},
        {"up", &args->up, mm_cuda_check_weight},
        {"down", &args->down, mm_cuda_check_weight},
        {"dx", &args->dx, mm_cuda_check_tokens},
        {"dweights", &args->dweights, mm_cuda_check_tokens},
        {"dgate", &args->dgate, mm_cuda_check_weight},
        {"dup", &args->dup, mm_cuda_check_weight},
        {"ddown", &args->ddown, mm_cuda_check_weight},
    };
    return mm_cuda_check_inputs(&cuda->gpu, all, sizeof all / sizeof all[0]);
}

static mmoe_status check_captured(const mmoe_backward_args *args) {
    const struct mm_cuda_input weights[] = {{"gate", &args->gate, NULL}, {"up", &args->up, NULL},
                                            {"down", &args->down, NULL}, {"dgate", &args->dgate, NULL},
                                            {"dup", &args->dup, NULL},   {"ddown", &args->ddown, NULL}};
    return mm_cuda_check_captured(weights, sizeof weights / sizeof weights[0]);
}

/* ---- Before the ranks meet ---- */

static void use_pools(struct mm_cuda_call *call, const struct mm_cuda_saved *kept) {
    const struct mm_cuda_pools *pools = &call->cuda->pools;
    call->x = call->recompute ? pools->x.address : kept->x.address;
    call->gate_up = call->recompute ? pools->gate_up.address : kept->gate_up.address;
    call->dy = pools->dy.address;
    call->h = pools->h.address;
    call->dgrad = pools->dgrad.address;
    call->dw_parts = pools->dw_parts.address;
}

/* With a growing capacity for the rows of the plan, which the host knows; else there is room for every row. */
static mmoe_status reserve(struct mm_cuda_call *call, const struct mm_cuda_saved *kept) {
    const bool fixed = call->layer->config.capacity_policy == MMOE_CAPACITY_FIXED;
    mmoe_status status = fixed ? MMOE_OK : mm_cuda_look_at_plan(call);
    if (status != MMOE_OK) {
        return status;
    }
    call->pool_rows = (uint32_t)mm_cuda_pool_rows(fixed ? call->plan->row_room : call->plan->summary.padded_rows);
    struct mm_cuda_pool_bytes bytes = mm_cuda_pool_bytes_of(&call->layer->config, call->pool_rows);
    if (!call->recompute) {
        bytes.x = bytes.gate_up = 0;
    }
    status = mm_cuda_pools_reserve(call->cuda, call->stream, &bytes);
    use_pools(call, kept);
    return status;
}

static void describe(struct mm_cuda_call *call, const mmoe_backward_args *args) {
    struct mm_cuda_saved *kept = args->saved->backend_state;
    call->plan = &kept->plan;
    call->gate = &args->gate;
    call->up = &args->up;
    call->down = &args->down;
    call->recompute = args->saved->keep == MMOE_KEEP_PLAN;
    call->wants_weights = mm_wanted(&args->dgate) || mm_wanted(&args->dup) || mm_wanted(&args->ddown);
    mm_cuda_bring(call, &args->dy, call->cuda->layout.dy);
    if (call->recompute) {
        mm_cuda_bring(call, &args->x, call->cuda->layout.x);
    }
}

/* ---- Steps ---- */

static mmoe_status meet(struct mm_cuda_call *call, const mmoe_backward_args *args) {
    mmoe_status status = mm_cuda_exchange_backward(call, args);
    if (status == MMOE_OK) {
        status = mm_cuda_phase_ends(call, &call->report.seconds_exchange);
    }
    if (status == MMOE_OK) {
        status = mm_cuda_resume_plan(call, args);
    }
    if (status == MMOE_OK) {
        status = mm_cuda_await_copy(call);
    }
    return status == MMOE_OK ? mm_cuda_phase_ends(call, &call->report.seconds_plan) : status;
}

static mmoe_status weight_gradients(struct mm_cuda_call *call, const mmoe_backward_args *args,
                                    const struct mm_cuda_wgrads *wgrads) {
    call->adds = args->accumulate && call->wants_weights;
    mmoe_status status = mm_cuda_wgrad(call, wgrads, false);
    return status == MMOE_OK ? mm_cuda_phase_ends(call, &call->report.seconds_wgrad) : status;
}

static mmoe_status end(struct mm_cuda_call *call, const mmoe_backward_args *args, const struct mm_cuda_wgrads *wgrads) {
    mmoe_status status = mm_cuda_end_backward(call, args);
    if (status == MMOE_OK && !args->accumulate) {
        status = mm_cuda_wgrad(call, wgrads, true);
    }
    return status == MMOE_OK ? mm_cuda_phase_ends(call, &call->report.seconds_combine) : status;
}

static mmoe_status compute(struct mm_cuda_call *call, const mmoe_backward_args *args) {
    struct mm_cuda_wgrads wgrads;
    mmoe_status status = mm_cuda_wgrads_of(call, args, &wgrads);
    mm_cuda_wgrads_in_call(call, args, &wgrads);
    if (status == MMOE_OK) {
        status = mm_cuda_fused_backward(call);
    }
    if (status == MMOE_OK) {
        status = mm_cuda_phase_ends(call, &call->report.seconds_fused);
    }
    if (status == MMOE_OK) {
        status = weight_gradients(call, args, &wgrads);
    }
    return status == MMOE_OK ? end(call, args, &wgrads) : status;
}

/* Everything from the meeting on. A failure of this host's own breaks the group. */
static mmoe_status backward(struct mm_cuda_call *call, const mmoe_backward_args *args) {
    mmoe_status status = meet(call, args);
    if (status == MMOE_OK) {
        status = compute(call, args);
    }
    if (status == MMOE_OK && args->report != NULL) {
        status = mm_cuda_report(call, args->report);
    }
    if (status == MMOE_OK) {
        status = mm_cuda_trace_await(call);
    }
    if (status != MMOE_OK) {
        return mm_cuda_give_up(call, call->adds ? mm_cuda_spoilt(status, false) : status);
    }
    return args->report != NULL || call->trace != NULL ? mm_cuda_failure_of_ended(call->group) : MMOE_OK;
}

/* ---- Failures ---- */

/* Gradients that are added to stay as they are. */
static mmoe_status spoil(const struct mm_cuda_call *call, const mmoe_backward_args *args) {
    const mmoe_tensor *all[] = {&args->dx, &args->dweights, &args->dgate, &args->dup, &args->ddown};
    const size_t count = args->accumulate ? 2 : sizeof all / sizeof all[0];
    mmoe_status status = MMOE_OK;
    for (size_t i = 0; i < count && status == MMOE_OK; i++) {
        status = mm_cuda_fill_nan(call, all[i]);
    }
    return status;
}

/* A failure's own text stays, whatever becomes of the filling. */
static mmoe_status fail(const struct mm_cuda_call *call, const mmoe_backward_args *args, mmoe_status status) {
    if (call->group->broken == MMOE_OK || spoil(call, args) == MMOE_OK) {
        return status;
    }
    return mm_fail(status, "%s", call->group->broken_text);
}

static mmoe_status fail_to_begin(const struct mm_cuda_call *call, const mmoe_backward_args *args, mmoe_status status) {
    if (!call->broke) {
        return status;
    }
    if (mm_gpu_enter(call->gpu) == MMOE_OK) {
        spoil(call, args);
        mm_gpu_leave(call->gpu);
    }
    return mm_fail(status, "%s", call->group->broken_text);
}

/* A call that begins and ends here; `trace` NULL: it is not recorded. */
static mmoe_status make_call(struct mmoe_layer *layer, const mmoe_backward_args *args, struct mm_cuda_trace *trace) {
    struct mm_cuda_call call;
    mmoe_status status = check(layer, args);
    if (status != MMOE_OK) {
        return mm_cuda_refuse_whole(layer, MM_CALL_BACKWARD, args->stream, status);
    }
    status = mm_cuda_begin(&call, layer, MM_CALL_BACKWARD, args->saved->tokens, args->stream, args->report != NULL);
    if (status != MMOE_OK) {
        return fail_to_begin(&call, args, status);
    }
    describe(&call, args);
    status = call.captured ? check_captured(args) : MMOE_OK;
    if (status == MMOE_OK) {
        status = reserve(&call, args->saved->backend_state);
    }
    if (status == MMOE_OK && trace != NULL) {
        status = mm_cuda_trace_make(&call, trace, MM_TRACE_WGRAD + mm_cuda_wgrad_count(args));
    }
    if (status != MMOE_OK) {
        return mm_cuda_refuse(&call, status);
    }
    status = backward(&call, args);
    if (status != MMOE_OK) {
        status = fail(&call, args, status);
    } else if (trace != NULL) {
        status = mm_cuda_trace_read(&call, trace);
    }
    if (trace != NULL) {
        mm_cuda_trace_free(&call, trace);
    }
    return mm_cuda_end(&call, status);
}

mmoe_status mm_cuda_backward(struct mmoe_layer *layer, const mmoe_backward_args *args) {
    return make_call(layer, args, NULL);
}

mmoe_status mm_cuda_backward_traced(struct mmoe_layer *layer, const mmoe_backward_args *args, int64_t records,
                                    mmoe_trace **made) {
    struct mm_cuda_trace trace = {.room = (uint32_t)records};
    mmoe_status status = make_call(layer, args, &trace);
    if (status != MMOE_OK) {
        mmoe_trace_destroy(&trace.made); /* an earlier call's failure is told by this one */
    }
    *made = trace.made;
    return status;
}
