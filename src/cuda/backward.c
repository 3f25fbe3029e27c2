/* A backward: rows in (with x and its gate and up, when they were not kept), the gradients of rows, rows out, and the
 * gradients of the weights. */
#include "cuda/calls.h"
#include "cuda/inputs.h"
#include "cuda/passes.h"
#include "cuda/products.h"
#include "cuda/routing.h"
#include "cuda/rows.h"
#include "cuda/setup.h"

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

static mmoe_status reserve(struct mm_cuda_call *call, const mmoe_backward_args *args, bool recompute) {
    struct mm_cuda_pools *pools = &call->cuda->pools;
    const struct mm_cuda_saved *kept = args->saved->backend_state;
    call->pool_rows = (uint32_t)mm_cuda_pool_rows(call->plan->summary.padded_rows);
    struct mm_cuda_pool_bytes bytes = mm_cuda_pool_bytes_of(&call->layer->config, call->pool_rows);
    if (!recompute) {
        bytes.x = bytes.gate_up = 0;
    }
    mmoe_status status = mm_cuda_pools_reserve(call->cuda, call->stream, &bytes);
    call->x = recompute ? pools->x.address : kept->x.address;
    call->gate_up = recompute ? pools->gate_up.address : kept->gate_up.address;
    call->dy = pools->dy.address;
    call->h = pools->h.address;
    call->dgrad = pools->dgrad.address;
    call->out = pools->out.address;
    call->dw_parts = pools->dw_parts.address;
    return status;
}

static mmoe_status rows_in(struct mm_cuda_call *call, const mmoe_backward_args *args, bool recompute) {
    mmoe_status status = mm_cuda_gather(call, &args->dy, call->dy);
    if (status == MMOE_OK && recompute) {
        status = mm_cuda_gather(call, &args->x, call->x);
    }
    if (status == MMOE_OK) {
        status = mm_cuda_phase_ends(call, &call->report.seconds_dispatch);
    }
    if (status == MMOE_OK && recompute) {
        status = mm_cuda_gate_up(call, true);
    }
    return status == MMOE_OK ? mm_cuda_phase_ends(call, &call->report.seconds_gate_up) : status;
}

static mmoe_status row_gradients(struct mm_cuda_call *call, const mmoe_backward_args *args) {
    mmoe_status status = mm_cuda_dgate_up(call);
    if (status == MMOE_OK && mm_wanted(&args->dx)) {
        status = mm_cuda_dx(call);
    }
    return status == MMOE_OK ? mm_cuda_phase_ends(call, &call->report.seconds_dgrad) : status;
}

static mmoe_status rows_out(struct mm_cuda_call *call, const mmoe_backward_args *args) {
    mmoe_status status = mm_wanted(&args->dweights) ? mm_cuda_combine_dw(call, &args->dweights) : MMOE_OK;
    if (status == MMOE_OK && mm_wanted(&args->dx)) {
        status = mm_cuda_combine(call, &args->dx);
    }
    return status == MMOE_OK ? mm_cuda_phase_ends(call, &call->report.seconds_combine) : status;
}

static mmoe_status weight_gradients(struct mm_cuda_call *call, const mmoe_backward_args *args) {
    mmoe_status status = mm_cuda_wgrad(call, args);
    return status == MMOE_OK ? mm_cuda_phase_ends(call, &call->report.seconds_wgrad) : status;
}

static bool anything_wanted(const mmoe_backward_args *args) {
    return mm_wanted(&args->dx) || mm_wanted(&args->dweights) || mm_wanted(&args->dgate) || mm_wanted(&args->dup) ||
           mm_wanted(&args->ddown);
}

static mmoe_status compute(struct mm_cuda_call *call, const mmoe_backward_args *args) {
    const bool recompute = args->saved->keep == MMOE_KEEP_PLAN;
    if (!anything_wanted(args)) {
        return MMOE_OK;
    }
    mmoe_status status = reserve(call, args, recompute);
    if (status == MMOE_OK) {
        status = rows_in(call, args, recompute);
    }
    if (status == MMOE_OK) {
        status = row_gradients(call, args);
    }
    if (status == MMOE_OK) {
        status = rows_out(call, args);
    }
    return status == MMOE_OK ? weight_gradients(call, args) : status;
}

/* What fails here breaks the group. */
static mmoe_status backward(struct mm_cuda_call *call, const mmoe_backward_args *args) {
    mmoe_status status = mm_cuda_look_at_plan(call);
    if (status == MMOE_OK) {
        status = compute(call, args);
    }
    if (status == MMOE_OK && args->report != NULL) {
        status = mm_cuda_report(call, args->report);
    }
    return status == MMOE_OK ? MMOE_OK : mm_call_abort(call->group, status);
}

/* Gradients that are added to stay as they were, unless adding had begun. A failure's own text stays, whatever becomes
 * of the filling. */
static mmoe_status fail(const struct mm_cuda_call *call, const mmoe_backward_args *args, mmoe_status status) {
    const mmoe_tensor *all[] = {&args->dx, &args->dweights, &args->dgate, &args->dup, &args->ddown};
    const size_t count = args->accumulate ? 2 : sizeof all / sizeof all[0];
    mmoe_status filled = MMOE_OK;
    for (size_t i = 0; i < count && call->group->broken != MMOE_OK && filled == MMOE_OK; i++) {
        filled = mm_cuda_fill_nan(call, all[i]);
    }
    return filled == MMOE_OK ? status : mm_fail(status, "%s", call->group->broken_text);
}

mmoe_status mm_cuda_backward(struct mmoe_layer *layer, const mmoe_backward_args *args) {
    struct mm_cuda_call call;
    struct mm_cuda_saved *saved = args->saved->backend_state;
    mmoe_status status = check(layer, args);
    if (status == MMOE_OK && layer->group->world > 1) {
        status = mm_fail(MMOE_UNSUPPORTED, "world is %d, expected 1: backend \"cuda\" computes gradients on one rank",
                         layer->group->world);
    }
    if (status != MMOE_OK) {
        return mm_cuda_refuse_whole(layer, MM_CALL_BACKWARD, args->stream, status);
    }
    status = mm_cuda_begin(&call, layer, MM_CALL_BACKWARD, args->saved->tokens, args->stream, args->report != NULL);
    if (status != MMOE_OK) {
        return status;
    }
    call.plan = &saved->plan;
    call.gate = &args->gate;
    call.up = &args->up;
    call.down = &args->down;
    status = backward(&call, args);
    if (status != MMOE_OK) {
        status = fail(&call, args, status);
    }
    return mm_cuda_end(&call, status);
}
