/* A forward: route, dispatch, two products with the activation between them, combine. */
#include "base/clock.h"
#include "cpu/combine.h"
#include "cpu/dispatch.h"
#include "cpu/grouped.h"
#include "cpu/passes.h"
#include "cpu/products.h"
#include "cpu/routing.h"
#include "cpu/setup.h"

/* Writes the slots, meets the peers. */
static mmoe_status exchange(struct mm_cpu_call *call, const mmoe_forward_args *args, const struct mm_leg *leg) {
    mmoe_status status = mm_dispatch_write(call, leg);
    if (status != MMOE_OK)
        return status;
    mm_routing_push(call, &args->ids, &args->weights);
    struct mm_header header = mm_cpu_header(call, MM_CALL_FORWARD);
    status = mm_call_post(call->group, &header);
    return status == MMOE_OK ? mm_call_meet(call->group) : status;
}

/* Pools for the rows of this call. Rows that are kept go to the saved state from the start. */
static mmoe_status reserve(struct mm_cpu_call *call, const mmoe_forward_args *args) {
    struct mm_pools *pools = &call->cpu->pools;
    struct mm_pool_bytes bytes = mm_pool_bytes_of(&call->layer->config, call->plan->view.padded_rows);
    struct mm_cpu_saved *kept =
        args->saved != NULL && args->saved->keep == MMOE_KEEP_ROWS ? args->saved->backend_state : NULL;
    mmoe_status status = kept != NULL ? mm_cpu_kept_reserve(kept, &bytes) : MMOE_OK;
    if (status != MMOE_OK)
        return status;
    const bool grouped = mm_is_grouped(call);
    struct mm_pool_bytes needed = {.x = kept == NULL ? bytes.x : 0,
                                   .dy = grouped ? bytes.dy : 0,
                                   .h = bytes.h,
                                   .runs = bytes.runs,
                                   .links = grouped ? bytes.links : 0};
    status = mm_cpu_pools_reserve(call->cpu, &needed);
    call->x = kept != NULL ? kept->x.data : pools->x.data;
    call->gate_up = kept != NULL ? kept->gate_up.data : NULL;
    call->h = pools->h.data;
    call->results = grouped ? pools->dy.data : NULL;
    return status;
}

/* The verdict on capacity is the same on all ranks; what fails here alone is told to the others. */
static mmoe_status plan(struct mm_cpu_call *call, const mmoe_forward_args *args) {
    mmoe_status status = mm_routing_count(call);
    if (status == MMOE_CAPACITY)
        return status;
    if (status == MMOE_OK)
        status = mm_routing_fill(call);
    if (status == MMOE_OK)
        status = reserve(call, args);
    return status == MMOE_OK ? MMOE_OK : mm_call_abort(call->group, status);
}

static mmoe_status compute(struct mm_cpu_call *call) {
    int64_t runs = mm_cpu_make_runs(call, NULL);
    mmoe_status status = mm_products_gate_up(call, runs, true);
    mm_cpu_phase_ends(call, &call->report.seconds_gate_up);
    if (status == MMOE_OK)
        status = mm_products_down(call, runs);
    const bool grouped = mm_is_grouped(call);
    if (status == MMOE_OK && grouped)
        status = mm_grouped_push(call);
    if (status == MMOE_OK) /* a sum stands for all its rows */
        status = mm_combine_arrived(call, MM_ARRIVAL_ROWS, NULL, grouped ? 0 : (size_t)call->hidden * sizeof(uint16_t));
    mm_cpu_phase_ends(call, &call->report.seconds_down);
    return status;
}

static mmoe_status combine(struct mm_cpu_call *call, const mmoe_forward_args *args) {
    mmoe_status status = mm_combine_await(call, MM_ARRIVAL_ROWS, true);
    if (status == MMOE_OK)
        status = mm_combine_sum(call, &args->y, mm_is_grouped(call));
    mm_cpu_phase_ends(call, &call->report.seconds_combine);
    return status;
}

/* The call has begun; the caller ends it. */
static mmoe_status forward(struct mm_cpu_call *call, const mmoe_forward_args *args) {
    struct mm_leg x = {.own = &args->x, .slot = call->group->layout.x};
    mmoe_status status = exchange(call, args, &x);
    mm_cpu_phase_ends(call, &call->report.seconds_exchange);
    if (status != MMOE_OK)
        return status;
    if (args->saved != NULL)
        args->saved->call = 0; /* until this forward has succeeded */
    status = plan(call, args);
    mm_cpu_phase_ends(call, &call->report.seconds_plan);
    if (status != MMOE_OK)
        return status;
    x.rows = call->x;
    status = mm_dispatch_pull(call, &x, 1, NULL);
    mm_cpu_phase_ends(call, &call->report.seconds_dispatch);
    if (status == MMOE_OK)
        status = compute(call);
    return status == MMOE_OK ? combine(call, args) : status;
}

mmoe_status mm_cpu_forward(struct mmoe_layer *layer, const mmoe_forward_args *args) {
    struct mmoe_group *group = layer->group;
    mmoe_status status = mm_routing_check(&layer->config, &args->ids, &args->weights);
    if (status != MMOE_OK)
        return mm_call_refuse(group, MM_CALL_FORWARD, status);
    struct mm_cpu_call call = mm_cpu_call_of(layer, args->x.shape[0]);
    status = mm_call_begin(group);
    if (status != MMOE_OK) {
        if (status != MMOE_BROKEN)
            mm_fill_nan(&args->y);
        return status;
    }
    call.plan = args->saved != NULL ? &args->saved->plan : &call.cpu->plan;
    call.gate = &args->gate;
    call.up = &args->up;
    call.down = &args->down;
    status = forward(&call, args);
    if (status == MMOE_OK && args->saved != NULL) {
        args->saved->call = group->call;
        args->saved->tokens = call.tokens;
    }
    if (status == MMOE_OK && args->report != NULL)
        *args->report = mm_cpu_report(&call);
    if (status != MMOE_OK && group->broken != MMOE_OK)
        mm_fill_nan(&args->y);
    mm_call_end(group);
    return status;
}
