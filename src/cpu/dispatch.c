/* Dispatch; see dispatch.h. Tasks are blocks of rows or of tokens. */
#include <string.h>

#include "cpu/dispatch.h"

enum { BLOCK = 128 };

static int64_t blocks_of(int64_t n) {
    return (n + BLOCK - 1) / BLOCK;
}
static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

struct writing {
    struct mm_matrix from;
    uint16_t *to;
    int64_t tokens, hidden;
};

static void write_block(const void *context, int64_t block, int thread) {
    (void)thread;
    const struct writing *writing = context;
    for (int64_t t = block * BLOCK; t < smaller((block + 1) * BLOCK, writing->tokens); t++)
        mm_read_row(&writing->from, t, writing->hidden, writing->to + t * writing->hidden);
}

mmoe_status mm_dispatch_write(const struct mm_cpu_call *call, const struct mm_leg *leg) {
    const struct mmoe_group *group = call->group;
    if (group->world == 1)
        return MMOE_OK;
    struct writing writing = {mm_matrix_of(leg->own), (uint16_t *)(void *)(group->segment[group->rank] + leg->slot),
                              call->tokens, call->hidden};
    return mm_cpu_run(call, blocks_of(call->tokens), write_block, &writing);
}

struct pulling {
    const mmoe_plan *plan;
    struct mm_matrix from; /* the tokens of `source` */
    int source;
    uint16_t *rows;
    int64_t hidden;
    const bool *wanted;
};

/* The first row of each token of the source. */
static void pull_block(const void *context, int64_t block, int thread) {
    (void)thread;
    const struct pulling *pulling = context;
    const mmoe_plan *plan = pulling->plan;
    for (int64_t row = block * BLOCK; row < smaller((block + 1) * BLOCK, plan->padded_rows); row++)
        if (plan->row_source[row] == pulling->source && plan->row_primary[row] == row)
            mm_read_row(&pulling->from, plan->row_token[row], pulling->hidden, pulling->rows + row * pulling->hidden);
}

/* The other rows of tokens that were pulled. */
static void copy_block(const void *context, int64_t block, int thread) {
    (void)thread;
    const struct pulling *pulling = context;
    const mmoe_plan *plan = pulling->plan;
    const int64_t hidden = pulling->hidden;
    for (int64_t row = block * BLOCK; row < smaller((block + 1) * BLOCK, plan->padded_rows); row++) {
        int32_t primary = plan->row_primary[row];
        if (primary < 0 || primary == row || (pulling->wanted != NULL && !pulling->wanted[plan->row_source[row]]))
            continue;
        memcpy(pulling->rows + row * hidden, pulling->rows + primary * hidden, (size_t)hidden * sizeof(uint16_t));
    }
}

static int64_t tokens_from(const mmoe_plan *plan, int source) {
    int64_t tokens = 0;
    for (int64_t row = 0; row < plan->padded_rows; row++)
        tokens += plan->row_source[row] == source && plan->row_primary[row] == row;
    return tokens;
}

static mmoe_status pull_from(struct mm_cpu_call *call, const struct mm_leg *leg, int source) {
    const struct mmoe_group *group = call->group;
    const mmoe_plan *plan = &call->plan->view;
    struct pulling pulling = {plan, mm_matrix_of(leg->own), source, leg->rows, call->hidden, NULL};
    if (group->world > 1)
        pulling.from = (struct mm_matrix){group->segment[source] + leg->slot, MMOE_BF16, {call->hidden, 1}};
    if (source != group->rank)
        call->report.bytes_pulled += tokens_from(plan, source) * call->hidden * (int64_t)sizeof(uint16_t);
    return mm_cpu_run(call, blocks_of(plan->padded_rows), pull_block, &pulling);
}

/* From the own rank on, so that not all ranks pull from the same one. */
static mmoe_status pull_from_all(struct mm_cpu_call *call, const struct mm_leg *legs, int count, const bool *wanted) {
    struct mmoe_group *group = call->group;
    for (int i = 0; i < group->world; i++) {
        int source = (group->rank + i) % group->world;
        mmoe_status status = mm_call_pull(group, source);
        for (int leg = 0; leg < count && status == MMOE_OK && (wanted == NULL || wanted[source]); leg++)
            status = pull_from(call, &legs[leg], source);
        if (status == MMOE_OK)
            status = mm_call_left(group, source);
        if (status != MMOE_OK)
            return status;
    }
    return MMOE_OK;
}

mmoe_status mm_dispatch_pull(struct mm_cpu_call *call, const struct mm_leg *legs, int count, const bool *wanted) {
    const mmoe_plan *plan = &call->plan->view;
    mmoe_status status = pull_from_all(call, legs, count, wanted);
    for (int leg = 0; leg < count && status == MMOE_OK; leg++) {
        struct pulling copying = {.plan = plan, .rows = legs[leg].rows, .hidden = call->hidden, .wanted = wanted};
        status = mm_cpu_run(call, blocks_of(plan->padded_rows), copy_block, &copying);
    }
    return status;
}
