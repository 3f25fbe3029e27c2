/* A forward: plan, rows in, two products with the activation between them, rows out. */
#include "cuda/calls.h"
#include "cuda/inputs.h"
#include "cuda/passes.h"
#include "cuda/products.h"
#include "cuda/routing.h"
#include "cuda/rows.h"
#include "cuda/setup.h"

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

/* Where this call keeps rows and plan; NULL: nowhere. */
static struct mm_cuda_saved *kept_of(const mmoe_forward_args *args) {
    return args->saved != NULL && args->saved->keep == MMOE_KEEP_ROWS ? args->saved->backend_state : NULL;
}

/* Pools for the rows of this call. Rows that are kept go to the saved state from the start. */
static mmoe_status reserve(struct mm_cuda_call *call, struct mm_cuda_saved *kept) {
    struct mm_cuda_pools *pools = &call->cuda->pools;
    call->pool_rows = (uint32_t)mm_cuda_pool_rows(call->plan->summary.padded_rows);
    const struct mm_cuda_pool_bytes bytes = mm_cuda_pool_bytes_of(&call->layer->config, call->pool_rows);
    const struct mm_cuda_pool_bytes needed = {.x = kept == NULL ? bytes.x : 0, .h = bytes.h, .out = bytes.out};
    mmoe_status status = kept != NULL ? mm_cuda_kept_reserve(call->gpu, kept, &bytes) : MMOE_OK;
    if (status == MMOE_OK) {
        status = mm_cuda_pools_reserve(call->gpu, pools, &needed);
    }
    call->x = kept != NULL ? kept->x.address : pools->x.address;
    call->gate_up = kept != NULL ? kept->gate_up.address : 0;
    call->h = pools->h.address;
    call->out = pools->out.address;
    return status;
}

static mmoe_status compute(struct mm_cuda_call *call, const mmoe_forward_args *args, bool keep) {
    mmoe_status status = mm_cuda_gather(call, &args->x, call->x);
    if (status == MMOE_OK) {
        status = mm_cuda_phase_ends(call, &call->report.seconds_dispatch);
    }
    if (status == MMOE_OK) {
        status = mm_cuda_gate_up(call, keep);
    }
    if (status == MMOE_OK) {
        status = mm_cuda_phase_ends(call, &call->report.seconds_gate_up);
    }
    if (status == MMOE_OK) {
        status = mm_cuda_down(call);
    }
    if (status == MMOE_OK) {
        status = mm_cuda_phase_ends(call, &call->report.seconds_down);
    }
    if (status == MMOE_OK) {
        status = mm_cuda_combine(call, &args->y);
    }
    return status == MMOE_OK ? mm_cuda_phase_ends(call, &call->report.seconds_combine) : status;
}

/* Everything after the plan. What fails here breaks the group. */
static mmoe_status forward(struct mm_cuda_call *call, const mmoe_forward_args *args) {
    struct mm_cuda_saved *kept = kept_of(args);
    mmoe_status status = mm_cuda_meet(call);
    if (status != MMOE_OK) {
        return status;
    }
    status = reserve(call, kept);
    if (status == MMOE_OK) {
        status = compute(call, args, kept != NULL);
    }
    if (status == MMOE_OK && args->report != NULL) {
        status = mm_cuda_report(call, args->report);
    }
    return status == MMOE_OK ? MMOE_OK : mm_call_abort(call->group, status);
}

/* A failure's own text stays, whatever becomes of the filling. */
static mmoe_status fail(const struct mm_cuda_call *call, const mmoe_forward_args *args, mmoe_status status) {
    if (call->group->broken == MMOE_OK || mm_cuda_fill_nan(call, &args->y) == MMOE_OK) {
        return status;
    }
    return mm_fail(status, "%s", call->group->broken_text);
}

static mmoe_status plan(struct mm_cuda_call *call, const mmoe_forward_args *args) {
    struct mm_cuda_saved *saved = args->saved != NULL ? args->saved->backend_state : NULL;
    if (args->saved != NULL) {
        args->saved->call = 0; /* until this forward has succeeded */
    }
    call->plan = saved != NULL ? &saved->plan : &call->cuda->plan;
    mmoe_status status = mm_cuda_route(call, &args->ids, &args->weights);
    return status == MMOE_OK ? mm_cuda_phase_ends(call, &call->report.seconds_plan) : status;
}

mmoe_status mm_cuda_forward(struct mmoe_layer *layer, const mmoe_forward_args *args) {
    struct mm_cuda_call call;
    mmoe_status status = check(layer, args);
    if (status != MMOE_OK) {
        return mm_call_refuse(layer->group, MM_CALL_FORWARD, status);
    }
    status = mm_cuda_begin(&call, layer, MM_CALL_FORWARD, args->x.shape[0], args->stream, args->report != NULL);
    if (status != MMOE_OK) {
        return status;
    }
    call.gate = &args->gate;
    call.up = &args->up;
    call.down = &args->down;
    status = plan(&call, args);
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
    mm_cuda_end(&call);
    return status;
}
