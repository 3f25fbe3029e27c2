/* A backward: dispatch the gradients (and x, when gate and up are computed again), the gradients of rows, combine, then
 * the gradients of the weights. These come last, when nothing can fail any more. */
#include "base/clock.h"
#include "cpu/combine.h"
#include "cpu/dispatch.h"
#include "cpu/passes.h"
#include "cpu/products.h"
#include "cpu/setup.h"
#include "cpu/wgrad.h"

/* What must be computed for the rows of each source. */
struct needs {
    bool rows[MMOE_MAX_WORLD];  /* anything */
    bool dh[MMOE_MAX_WORLD];    /* gradients of gate and up */
    bool dx[MMOE_MAX_WORLD];    /* gradients of tokens */
    bool no_dh[MMOE_MAX_WORLD]; /* w*h alone, for dW2 */
    bool recompute;             /* x and gate and up were not kept */
};

static bool wanted(const mmoe_tensor *tensor) {
    return tensor->dims != 0;
}

static bool weight_on_input(const struct mm_cpu_call *call) {
    return call->layer->config.weight_on == MMOE_WEIGHT_ON_INPUT;
}

/* Reads what every rank wants; a header may be gone once its rank has been left. */
static void find_needs(struct mm_cpu_call *call, const mmoe_backward_args *args, struct needs *needs) {
    const bool inner = wanted(&args->dgate) || wanted(&args->dup), outer = wanted(&args->ddown);
    for (int r = 0; r < call->group->world; r++) {
        const struct mm_header *header = mm_call_header(call->group, r);
        call->wants_dx[r] = header->wants_dx;
        call->wants_dw[r] = header->wants_dw;
        needs->dh[r] = inner || header->wants_dx || header->wants_dw;
        needs->rows[r] = needs->dh[r] || outer;
        needs->no_dh[r] = !needs->dh[r] && outer;
        needs->dx[r] = header->wants_dx || (weight_on_input(call) && header->wants_dw);
    }
}

static mmoe_status exchange(struct mm_cpu_call *call, const mmoe_backward_args *args, const struct mm_leg *legs,
                            struct needs *needs) {
    mmoe_status status = mm_dispatch_write(call, &legs[0]);
    if (status == MMOE_OK && needs->recompute)
        status = mm_dispatch_write(call, &legs[1]);
    if (status != MMOE_OK)
        return status;
    struct mm_header header = mm_cpu_header(call, MM_CALL_BACKWARD);
    header.agreed.forward_call = args->saved->call;
    header.agreed.recompute = needs->recompute;
    header.wants_dx = wanted(&args->dx);
    header.wants_dw = wanted(&args->dweights);
    status = mm_call_post(call->group, &header);
    if (status == MMOE_OK)
        status = mm_call_meet(call->group);
    if (status == MMOE_OK)
        find_needs(call, args, needs);
    return status;
}

static mmoe_status reserve(struct mm_cpu_call *call, const mmoe_backward_args *args, bool recompute) {
    struct mm_pools *pools = &call->cpu->pools;
    struct mm_pool_bytes bytes = mm_pool_bytes_of(&call->layer->config, call->plan->view.padded_rows);
    if (!recompute)
        bytes.x = bytes.gate_up = 0;
    mmoe_status status = mm_cpu_pools_reserve(call->cpu, &bytes);
    if (status != MMOE_OK)
        return mm_call_abort(call->group, status);
    const struct mm_cpu_saved *kept = args->saved->backend_state;
    call->x = recompute ? pools->x.data : kept->x.data;
    call->gate_up = recompute ? pools->gate_up.data : kept->gate_up.data;
    call->dy = pools->dy.data;
    call->h = pools->h.data;
    call->dgrad = pools->dgrad.data;
    call->dw = pools->dw.data;
    return MMOE_OK;
}

static mmoe_status dispatch(struct mm_cpu_call *call, struct mm_leg legs[2], const struct needs *needs) {
    legs[0].rows = call->dy;
    legs[1].rows = call->x;
    mmoe_status status = mm_dispatch_pull(call, legs, needs->recompute ? 2 : 1, needs->rows);
    mm_cpu_phase_ends(call, &call->report.seconds_dispatch);
    if (status != MMOE_OK || !needs->recompute)
        return status;
    status = mm_products_gate_up(call, mm_cpu_make_runs(call, needs->rows), false);
    mm_cpu_phase_ends(call, &call->report.seconds_gate_up);
    return status;
}

/* dw is complete after the product whose tiles hold its parts: dh, or dx when the weight is on the input. */
static mmoe_status push_dw(struct mm_cpu_call *call, enum mm_product product) {
    mm_combine_push_dw(call, call->products->product[product].tiling.count, call->wants_dw);
    return mm_combine_arrived(call, MM_ARRIVAL_DW, call->wants_dw, sizeof(float));
}

static mmoe_status row_gradients(struct mm_cpu_call *call, const struct needs *needs) {
    mmoe_status status = mm_products_weighted_h(call, mm_cpu_make_runs(call, needs->no_dh));
    if (status == MMOE_OK)
        status = mm_products_dh(call, mm_cpu_make_runs(call, needs->dh));
    if (status == MMOE_OK && !weight_on_input(call))
        status = push_dw(call, MM_PRODUCT_DH);
    if (status == MMOE_OK)
        status = mm_products_dx(call, mm_cpu_make_runs(call, needs->dx));
    if (status == MMOE_OK && weight_on_input(call))
        status = push_dw(call, MM_PRODUCT_DX);
    if (status == MMOE_OK)
        status = mm_combine_arrived(call, MM_ARRIVAL_ROWS, call->wants_dx, (size_t)call->hidden * sizeof(uint16_t));
    mm_cpu_phase_ends(call, &call->report.seconds_dgrad);
    return status;
}

static mmoe_status combine(struct mm_cpu_call *call, const mmoe_backward_args *args) {
    mmoe_status status = mm_combine_await(call, MM_ARRIVAL_DW, wanted(&args->dweights));
    if (status == MMOE_OK)
        status = mm_combine_await(call, MM_ARRIVAL_ROWS, wanted(&args->dx));
    if (status == MMOE_OK && wanted(&args->dweights))
        mm_combine_dw(call, &args->dweights);
    if (status == MMOE_OK && wanted(&args->dx))
        status = mm_combine_sum(call, &args->dx, false);
    mm_cpu_phase_ends(call, &call->report.seconds_combine);
    return status;
}

/* The call has begun; the caller ends it. */
static mmoe_status backward(struct mm_cpu_call *call, const mmoe_backward_args *args) {
    struct needs needs = {.recompute = args->saved->keep == MMOE_KEEP_PLAN};
    struct mm_leg legs[2] = {{.own = &args->dy, .slot = call->group->layout.dy},
                             {.own = &args->x, .slot = call->group->layout.x}};
    mmoe_status status = exchange(call, args, legs, &needs);
    mm_cpu_phase_ends(call, &call->report.seconds_exchange);
    if (status == MMOE_OK)
        status = reserve(call, args, needs.recompute);
    mm_cpu_phase_ends(call, &call->report.seconds_plan);
    if (status == MMOE_OK)
        status = dispatch(call, legs, &needs);
    if (status == MMOE_OK)
        status = row_gradients(call, &needs);
    if (status == MMOE_OK)
        status = combine(call, args);
    if (status != MMOE_OK)
        return status;
    mm_wgrad(call, args);
    mm_cpu_phase_ends(call, &call->report.seconds_wgrad);
    return MMOE_OK;
}

/* Gradients that are added to stay as they were. */
static void spoil(const mmoe_backward_args *args) {
    mm_fill_nan(&args->dx);
    mm_fill_nan(&args->dweights);
    if (args->accumulate)
        return;
    mm_fill_nan(&args->dgate);
    mm_fill_nan(&args->dup);
    mm_fill_nan(&args->ddown);
}

mmoe_status mm_cpu_backward(struct mmoe_layer *layer, const mmoe_backward_args *args) {
    struct mmoe_group *group = layer->group;
    struct mm_cpu_call call = mm_cpu_call_of(layer, args->dy.shape[0]);
    mmoe_status status = mm_call_begin(group);
    if (status != MMOE_OK) {
        if (status != MMOE_BROKEN)
            spoil(args);
        return status;
    }
    call.plan = &args->saved->plan;
    call.gate = &args->gate;
    call.up = &args->up;
    call.down = &args->down;
    status = backward(&call, args);
    if (status == MMOE_OK && args->report != NULL)
        *args->report = mm_cpu_report(&call);
    if (status != MMOE_OK && group->broken != MMOE_OK)
        spoil(args);
    mm_call_end(group);
    return status;
}
