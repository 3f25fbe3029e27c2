/* The grouped combine; see grouped.h. */
#include <string.h>

#include "cpu/combine.h"
#include "cpu/grouped.h"
#include "cpu/routing.h"

bool mm_is_grouped(const struct mm_cpu_call *call) {
    return call->layer->config.combine == MMOE_COMBINE_GROUPED && call->group->world > 1;
}

/* ---- Where the experts are ---- */

/* Links the rows of each token, from the lowest one up. */
static void link_rows(const struct mm_cpu_call *call) {
    const mmoe_plan *plan = &call->plan->view;
    struct mm_row_link *links = call->cpu->pools.links.data;
    for (int32_t row = 0; row < plan->padded_rows; row++) {
        const int32_t first = plan->row_primary[row];
        if (first < 0)
            continue;
        links[row].next = -1;
        if (first != row)
            links[links[first].last].next = row;
        links[first].last = row;
    }
}

/* The rows of the token whose lowest one is `first`, in slot order. */
static int rows_of_token(const struct mm_cpu_call *call, int32_t first, int64_t *rows) {
    const mmoe_plan *plan = &call->plan->view;
    const struct mm_row_link *links = call->cpu->pools.links.data;
    int count = 0;
    for (int32_t row = first; row >= 0; row = links[row].next) {
        int at = count++;
        for (; at > 0 && plan->row_slot[rows[at - 1]] > plan->row_slot[row]; at--)
            rows[at] = rows[at - 1];
        rows[at] = row;
    }
    return count;
}

/* Scratch: the sum in fp32. */
static void push_token(const struct mm_cpu_call *call, int32_t first, const struct mm_workspace *space) {
    int64_t rows[MMOE_MAX_TOP_K];
    const int count = rows_of_token(call, first, rows);
    float *sum = space->a;
    mm_sum_rows(call->hidden, call->results, rows, count, sum);
    mm_narrow(call->hidden, sum, mm_combine_slot(call, rows[0]));
}

enum { ROWS = 128 }; /* of a task */

static void push_task(const void *context, int64_t index, int thread) {
    const struct mm_cpu_call *call = context;
    const mmoe_plan *plan = &call->plan->view;
    const int64_t end = (index + 1) * ROWS < plan->padded_rows ? (index + 1) * ROWS : plan->padded_rows;
    for (int64_t row = index * ROWS; row < end; row++)
        if (plan->row_primary[row] == row)
            push_token(call, (int32_t)row, mm_cpu_space(call, thread));
}

static void count_pushed(struct mm_cpu_call *call) {
    const mmoe_plan *plan = &call->plan->view;
    int64_t sums = 0;
    for (int64_t row = 0; row < plan->padded_rows; row++)
        sums += plan->row_primary[row] == row && plan->row_source[row] != call->group->rank;
    call->report.bytes_pushed += sums * call->hidden * (int64_t)sizeof(uint16_t);
}

mmoe_status mm_grouped_push(struct mm_cpu_call *call) {
    link_rows(call);
    count_pushed(call);
    return mm_cpu_run(call, (call->plan->view.padded_rows + ROWS - 1) / ROWS, push_task, call);
}

/* ---- Where the tokens are ---- */

int mm_grouped_slots(const struct mm_cpu_call *call, int64_t token, int64_t *slots) {
    const mmoe_plan *plan = &call->plan->view;
    const int32_t *ids = mm_routing_own_ids(call);
    int32_t ranks[MMOE_MAX_TOP_K];
    int count = 0;
    for (int64_t slot = token * call->top_k; slot < (token + 1) * call->top_k; slot++) {
        if (plan->slot_row[slot] < 0)
            continue;
        const int32_t rank = ids[slot] / plan->local_experts;
        int at = 0;
        while (at < count && ranks[at] < rank)
            at++;
        if (at < count && ranks[at] == rank)
            continue;
        memmove(&ranks[at + 1], &ranks[at], (size_t)(count - at) * sizeof *ranks);
        memmove(&slots[at + 1], &slots[at], (size_t)(count - at) * sizeof *slots);
        ranks[at] = rank;
        slots[at] = slot;
        count++;
    }
    return count;
}
