/* What every call does: clock, header, tasks, runs of rows. */
#include "base/clock.h"
#include "cpu/state.h"

struct mm_cpu_call mm_cpu_call_of(struct mmoe_layer *layer, int64_t tokens) {
    double now = mm_now();
    return (struct mm_cpu_call){
        .layer = layer,
        .group = layer->group,
        .cpu = layer->group->backend_state,
        .products = layer->backend_state,
        .hidden = layer->config.hidden,
        .intermediate = layer->config.intermediate,
        .top_k = layer->config.top_k,
        .tokens = tokens,
        .started = now,
        .phase_started = now,
    };
}

void mm_cpu_phase_ends(struct mm_cpu_call *call, double *seconds) {
    double now = mm_now();
    *seconds += now - call->phase_started;
    call->phase_started = now;
}

mmoe_report mm_cpu_report(const struct mm_cpu_call *call) {
    mmoe_report report = call->report;
    report.call = call->group->call;
    report.rows = call->plan->view.rows;
    report.padded_rows = call->plan->view.padded_rows;
    report.dropped = call->plan->view.slots_dropped;
    report.seconds_total = mm_now() - call->started;
    return report;
}

static bool working(void *group) {
    return mm_call_working(group);
}

static bool working_to_end(void *group) {
    mm_call_working(group);
    return false;
}

mmoe_status mm_cpu_run(const struct mm_cpu_call *call, int64_t count, mm_cpu_task *task, const void *context) {
    struct mm_pool_loop loop = {count, task, context, working, call->group};
    return mm_pool_run(call->cpu->pool, &loop) ? MMOE_OK : mm_call_check(call->group);
}

void mm_cpu_run_to_end(const struct mm_cpu_call *call, int64_t count, mm_cpu_task *task, const void *context) {
    struct mm_pool_loop loop = {count, task, context, working_to_end, call->group};
    mm_pool_run(call->cpu->pool, &loop);
}

/* Rows `first` .. `end` - 1 of an expert in pieces. A tail too short for a run of its own joins the last one. */
static int64_t add_runs(struct mm_run *runs, int64_t count, int32_t expert, int32_t first, int32_t end) {
    while (first < end) {
        int32_t rows = end - first < MM_GEMM_RUN_MAX ? end - first : MM_GEMM_RUN;
        runs[count++] = (struct mm_run){expert, first, rows};
        first += rows;
    }
    return count;
}

int64_t mm_cpu_make_runs(const struct mm_cpu_call *call, const bool *wanted) {
    const mmoe_plan *plan = &call->plan->view;
    int64_t count = 0;
    for (int32_t e = 0; e < plan->local_experts; e++) {
        int32_t row = plan->expert_offset[e], end = row + plan->expert_rows[e];
        while (row < end) {
            if (wanted != NULL && !wanted[plan->row_source[row]]) {
                row++;
                continue;
            }
            int32_t first = row;
            while (row < end && (wanted == NULL || wanted[plan->row_source[row]]))
                row++;
            count = add_runs(mm_cpu_runs(call), count, e, first, row);
        }
    }
    return count;
}

struct mm_header mm_cpu_header(const struct mm_cpu_call *call, enum mm_call_kind kind) {
    struct mm_header header = {.tokens = call->tokens, .status = MMOE_OK};
    mm_layer_agreement(call->layer, kind, &header.agreed);
    return header;
}
