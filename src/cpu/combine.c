/* Combine; see combine.h. */
#include <string.h>

#include "cpu/combine.h"
#include "cpu/grouped.h"

mmoe_status mm_combine_arrived(struct mm_cpu_call *call, enum mm_arrival what, const bool *wanted, size_t bytes) {
    struct mmoe_group *group = call->group;
    for (int i = 0; i < group->world; i++) {
        int owner = (group->rank + i) % group->world;
        int64_t rows = wanted == NULL || wanted[owner] ? mm_plan_rows_between(call->plan, owner, group->rank) : 0;
        mmoe_status status = mm_call_arrived(group, owner, what, rows);
        if (status != MMOE_OK)
            return status;
        if (owner != group->rank)
            call->report.bytes_pushed += rows * (int64_t)bytes;
    }
    return MMOE_OK;
}

mmoe_status mm_combine_await(struct mm_cpu_call *call, enum mm_arrival what, bool wanted) {
    struct mmoe_group *group = call->group;
    int64_t counts[MMOE_MAX_WORLD];
    for (int r = 0; r < group->world; r++)
        counts[r] = wanted ? mm_plan_rows_between(call->plan, group->rank, r) : 0;
    return mm_call_await(group, what, counts);
}

uint16_t *mm_combine_slot(const struct mm_cpu_call *call, int64_t row) {
    const mmoe_plan *plan = &call->plan->view;
    const struct mmoe_group *group = call->group;
    int64_t slot = plan->row_token[row] * call->top_k + plan->row_slot[row];
    unsigned char *slots = group->segment[plan->row_source[row]] + group->layout.combine;
    return (uint16_t *)(void *)slots + slot * call->hidden;
}

void mm_sum_rows(int64_t hidden, const uint16_t *rows, const int64_t *which, int count, float *sum) {
    memset(sum, 0, (size_t)hidden * sizeof *sum);
    for (int i = 0; i < count; i++)
        mm_add_widened(hidden, rows + which[i] * hidden, sum);
}

enum { TOKENS = 32 }; /* of a task */

struct summing {
    const struct mm_cpu_call *call;
    struct mm_matrix out;
    const uint16_t *slots;
    bool grouped;
};

/* The slots with a row, in order. */
static int used_slots(const struct mm_cpu_call *call, int64_t token, int64_t *slots) {
    int count = 0;
    for (int64_t slot = token * call->top_k; slot < (token + 1) * call->top_k; slot++)
        if (call->plan->view.slot_row[slot] >= 0)
            slots[count++] = slot;
    return count;
}

/* Scratch: the sum in fp32, then the rounded row. */
static void sum_token(const struct summing *summing, int64_t token, const struct mm_workspace *space) {
    const struct mm_cpu_call *call = summing->call;
    const int64_t hidden = call->hidden;
    int64_t slots[MMOE_MAX_TOP_K];
    const int count = summing->grouped ? mm_grouped_slots(call, token, slots) : used_slots(call, token, slots);
    float *sum = space->a;
    uint16_t *rounded = (uint16_t *)(void *)space->c;
    mm_sum_rows(hidden, summing->slots, slots, count, sum);
    mm_narrow(hidden, sum, rounded);
    mm_write_row(&summing->out, token, hidden, rounded);
}

static void sum_task(const void *context, int64_t index, int thread) {
    const struct summing *summing = context;
    const struct mm_cpu_call *call = summing->call;
    int64_t end = (index + 1) * TOKENS < call->tokens ? (index + 1) * TOKENS : call->tokens;
    for (int64_t token = index * TOKENS; token < end; token++)
        sum_token(summing, token, mm_cpu_space(call, thread));
}

mmoe_status mm_combine_sum(const struct mm_cpu_call *call, const mmoe_tensor *out, bool grouped) {
    const struct mmoe_group *group = call->group;
    const unsigned char *slots = group->segment[group->rank] + group->layout.combine;
    struct summing summing = {call, mm_matrix_of(out), (const uint16_t *)(const void *)slots, grouped};
    return mm_cpu_run(call, (call->tokens + TOKENS - 1) / TOKENS, sum_task, &summing);
}

void mm_combine_push_dw(const struct mm_cpu_call *call, int64_t parts, const bool *wanted) {
    const mmoe_plan *plan = &call->plan->view;
    const struct mmoe_group *group = call->group;
    for (int64_t row = 0; row < plan->padded_rows; row++) {
        int32_t source = plan->row_source[row];
        if (source < 0 || !wanted[source])
            continue;
        float sum = call->dw[row];
        for (int64_t part = 1; part < parts; part++)
            sum += call->dw[part * plan->padded_rows + row];
        float *slots = (float *)(void *)(group->segment[source] + group->layout.dw);
        slots[plan->row_token[row] * call->top_k + plan->row_slot[row]] = sum;
    }
}

void mm_combine_dw(const struct mm_cpu_call *call, const mmoe_tensor *out) {
    const struct mmoe_group *group = call->group;
    const float *slots = (const float *)(const void *)(group->segment[group->rank] + group->layout.dw);
    for (int64_t t = 0; t < call->tokens; t++)
        for (int64_t k = 0; k < call->top_k; k++) {
            int64_t slot = t * call->top_k + k;
            float *to = (float *)out->data + t * out->stride[0] + k * out->stride[1];
            *to = call->plan->view.slot_row[slot] >= 0 ? slots[slot] : 0.0f;
        }
}
