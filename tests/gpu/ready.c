/* Calls that are made again and again; see ready.h. */
#include "ready.h"

#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"

static const char *const names[RIG_OPERANDS] = {[RIG_Y] = "y",         [RIG_DX] = "dx",   [RIG_DWEIGHTS] = "dweights",
                                                [RIG_DGATE] = "dgate", [RIG_DUP] = "dup", [RIG_DDOWN] = "ddown"};

static size_t bytes_of(const struct rig_tensor *tensor) {
    const mmoe_tensor *view = &tensor->view;
    const int64_t elements = view->shape[0] * view->shape[1] * (view->dims == 3 ? view->shape[2] : 1);
    return (size_t)elements * rig_element_bytes(view->dtype);
}

/* ---- What must come out ---- */

static void *narrow(const double *values, int64_t count) {
    uint16_t *made = malloc((size_t)count * sizeof *made + 1);
    for (int64_t i = 0; i < count; i++)
        made[i] = mm_bf16_from_float((float)values[i]);
    return made;
}

static void *single(const double *values, int64_t count) {
    float *made = malloc((size_t)count * sizeof *made + 1);
    for (int64_t i = 0; i < count; i++)
        made[i] = (float)values[i];
    return made;
}

static bool expert_has_rows(const struct rig_batch *batch, int64_t expert) {
    for (int64_t s = 0; s < rig_batch_slots(batch); s++)
        if (batch->ids[s] == expert)
            return true;
    return false;
}

/* A rank's share. A sum of nothing added to -0 would be 0: an expert without rows keeps its bits. */
static void *gradient(const struct rig_batch *batch, const struct rig_options *options, int rank, const double *sums,
                      const float *start) {
    const int64_t local = batch->layer.experts / batch->world, share = rig_batch_stack(batch) / batch->world;
    double *values = malloc((size_t)share * sizeof *values + 1);
    for (int64_t e = 0; e < local; e++) {
        const bool adds = expert_has_rows(batch, rank * local + e);
        for (int64_t i = e * share / local; i < (e + 1) * share / local; i++) {
            const int64_t at = rank * share + i;
            values[i] = !options->accumulate ? sums[at] : adds ? (double)start[at] + sums[at] : (double)start[at];
        }
    }
    void *made = options->narrow_gradients ? narrow(values, share) : single(values, share);
    free(values);
    return made;
}

static void expect_all(const struct rig_batch *batch, const struct rig_options *options, int rank,
                       struct ready *ready) {
    const struct rig_reference *reference = batch->reference;
    const int64_t first = rig_batch_first(batch, rank), tokens = batch->tokens[rank];
    const int64_t hidden = batch->layer.hidden, top_k = batch->layer.top_k, stack = rig_batch_stack(batch);
    void **expected = ready->expected;
    expected[RIG_Y] = narrow(reference->y + first * hidden, tokens * hidden);
    if (options->forward_only)
        return;
    expected[RIG_DX] = narrow(reference->dx + first * hidden, tokens * hidden);
    expected[RIG_DWEIGHTS] = single(reference->dweights + first * top_k, tokens * top_k);
    expected[RIG_DGATE] = gradient(batch, options, rank, reference->dgate, batch->start);
    expected[RIG_DUP] = gradient(batch, options, rank, reference->dup, batch->start + stack);
    expected[RIG_DDOWN] = gradient(batch, options, rank, reference->ddown, batch->start + 2 * stack);
}

/* ---- Calls ---- */

bool ready_make(struct rig_rank *rank, const struct rig_batch *batch, const struct rig_options *options,
                mmoe_saved *saved, struct ready *ready) {
    size_t most = 0;
    *ready = (struct ready){.call = rig_call_make(rank, batch, options, saved, 0xff)};
    expect_all(batch, options, rank->rank, ready);
    for (int i = 0; i < RIG_OPERANDS; i++)
        if (ready->expected[i] != NULL && bytes_of(&ready->call.tensor[i]) > most)
            most = bytes_of(&ready->call.tensor[i]);
    ready->found = malloc(most + 1);
    return rig_call_place(rank, &ready->call, &ready->placed);
}

void ready_free(struct rig_rank *rank, struct ready *ready) {
    rig_placed_free(rank, &ready->placed);
    rig_call_free(&ready->call);
    for (int i = 0; i < RIG_OPERANDS; i++)
        free(ready->expected[i]);
    free(ready->found);
}

bool ready_poison(struct rig_rank *rank, const struct ready *ready) {
    for (int i = 0; i < RIG_OPERANDS; i++) {
        const struct rig_tensor *tensor = &ready->call.tensor[i];
        if (ready->expected[i] != NULL && !rig_send(rank, ready->placed.memory[i], tensor->snapshot, tensor->bytes))
            return false;
    }
    return true;
}

static bool compare_output(struct rig_rank *rank, struct ready *ready, int operand, int number) {
    struct rig_tensor *tensor = &ready->call.tensor[operand];
    if (!rig_fetch(rank, tensor->memory, ready->placed.memory[operand], tensor->bytes))
        return false;
    RIG_TRY(rank, rig_tensor_take(tensor, ready->found), "call %d wrote outside of %s", number, names[operand]);
    RIG_TRY(rank, memcmp(ready->found, ready->expected[operand], bytes_of(tensor)) == 0,
            "%s of call %d is not the expected one", names[operand], number);
    return true;
}

bool ready_compare(struct rig_rank *rank, struct ready *ready, int number) {
    for (int i = 0; i < RIG_OPERANDS; i++)
        if (ready->expected[i] != NULL && !compare_output(rank, ready, i, number))
            return false;
    return true;
}
