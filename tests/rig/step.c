/* One rank's forward and backward of a batch. */
#include "rig/step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "rig/compare.h"
#include "rig/device.h"
#include "rig/one_gpu.h"

/* ---- Operands */

static const char *const operand_name[RIG_OPERANDS] = {"x",  "ids", "weights",  "gate",  "up",  "down", "y",
                                                       "dy", "dx",  "dweights", "dgate", "dup", "ddown"};

/* Narrows ids to int32 when the call wants them so. */
static struct rig_tensor ids_tensor(const struct rig_options *options, const int64_t *ids, int64_t tokens,
                                    int64_t top_k) {
    mmoe_dtype dtype = options->wide_ids ? MMOE_I64 : MMOE_I32;
    struct rig_tensor tensor = rig_tensor_make(options->layout[RIG_IDS], dtype, 0, tokens, top_k);
    int32_t *narrow = malloc((size_t)(tokens * top_k) * sizeof *narrow + 1);
    for (int64_t s = 0; s < tokens * top_k; s++)
        narrow[s] = (int32_t)ids[s];
    rig_tensor_put(&tensor, options->wide_ids ? (const void *)ids : narrow);
    free(narrow);
    return tensor;
}

/* Per expert `first` [rows,cols] then `second` [rows,cols]: the values of a joint stack. */
static void *join(const void *first, const void *second, int64_t count, size_t matrix_bytes) {
    char *joint = malloc(2 * (size_t)count * matrix_bytes + 1);
    for (int64_t e = 0; e < count; e++) {
        memcpy(joint + (size_t)(2 * e) * matrix_bytes, (const char *)first + (size_t)e * matrix_bytes, matrix_bytes);
        memcpy(joint + (size_t)(2 * e + 1) * matrix_bytes, (const char *)second + (size_t)e * matrix_bytes,
               matrix_bytes);
    }
    return joint;
}

/* A rank's share of the experts. */
struct share {
    int64_t local, hidden, intermediate, first; /* El, H, I, first element in a stack of all experts */
};

static struct share share_of(const struct rig_batch *batch, int rank) {
    const mmoe_layer_config *layer = &batch->layer;
    int64_t local = layer->experts / batch->world;
    return (struct share){local, layer->hidden, layer->intermediate,
                          rank * local * layer->hidden * layer->intermediate};
}

static void make_matrices(struct rig_call *call, const struct rig_batch *batch, struct share share) {
    const enum rig_layout *layout = call->options->layout;
    int64_t local = share.local, hidden = share.hidden, intermediate = share.intermediate;
    const uint16_t *gate = batch->gate + share.first, *up = batch->up + share.first;
    struct rig_tensor *tensor = call->tensor;
    if (call->options->halves) {
        tensor[RIG_GATE] = rig_tensor_make(layout[RIG_GATE], MMOE_BF16, local, 2 * intermediate, hidden);
        void *joint = join(gate, up, local, (size_t)(hidden * intermediate) * sizeof *gate);
        rig_tensor_put(&tensor[RIG_GATE], joint);
        free(joint);
        call->forward.gate = mmoe_stack_rows(tensor[RIG_GATE].view, 0, intermediate);
        call->forward.up = mmoe_stack_rows(tensor[RIG_GATE].view, intermediate, intermediate);
    } else {
        tensor[RIG_GATE] = rig_tensor_make(layout[RIG_GATE], MMOE_BF16, local, intermediate, hidden);
        tensor[RIG_UP] = rig_tensor_make(layout[RIG_UP], MMOE_BF16, local, intermediate, hidden);
        rig_tensor_put(&tensor[RIG_GATE], gate);
        rig_tensor_put(&tensor[RIG_UP], up);
        call->forward.gate = tensor[RIG_GATE].view;
        call->forward.up = tensor[RIG_UP].view;
    }
    tensor[RIG_DOWN] = rig_tensor_make(layout[RIG_DOWN], MMOE_BF16, local, hidden, intermediate);
    rig_tensor_put(&tensor[RIG_DOWN], batch->down + share.first);
    call->forward.down = tensor[RIG_DOWN].view;
}

static bool omitted(const struct rig_call *call, int rank, enum rig_operand operand) {
    return call->options->omit[rank] >> operand & 1;
}

static mmoe_dtype gradient_dtype(const struct rig_options *options) {
    return options->narrow_gradients ? MMOE_BF16 : MMOE_F32;
}

/* Poison, or the values accumulation starts from. */
static void start_gradient(const struct rig_call *call, struct rig_tensor *tensor, const float *start, int64_t n,
                           int poison) {
    if (!call->options->accumulate) {
        rig_tensor_poison(tensor, poison);
        return;
    }
    if (!call->options->narrow_gradients) {
        rig_tensor_put(tensor, start);
        return;
    }
    uint16_t *narrow = malloc((size_t)n * sizeof *narrow + 1);
    for (int64_t i = 0; i < n; i++)
        narrow[i] = mm_bf16_from_float(start[i]);
    rig_tensor_put(tensor, narrow);
    free(narrow);
}

static void make_gradients(struct rig_call *call, const struct rig_batch *batch, struct share share, int rank,
                           int poison) {
    const enum rig_layout *layout = call->options->layout;
    mmoe_dtype dtype = gradient_dtype(call->options);
    int64_t local = share.local, hidden = share.hidden, intermediate = share.intermediate;
    int64_t n = local * hidden * intermediate, stack = rig_batch_stack(batch);
    const float *gate = batch->start + share.first, *up = gate + stack, *down = up + stack;
    struct rig_tensor *tensor = call->tensor;
    mmoe_backward_args *args = &call->backward;
    if (call->options->halves) {
        tensor[RIG_DGATE] = rig_tensor_make(layout[RIG_DGATE], dtype, local, 2 * intermediate, hidden);
        float *joint = join(gate, up, local, (size_t)(hidden * intermediate) * sizeof *gate);
        start_gradient(call, &tensor[RIG_DGATE], joint, 2 * n, poison);
        free(joint);
        args->dgate = mmoe_stack_rows(tensor[RIG_DGATE].view, 0, intermediate);
        args->dup = mmoe_stack_rows(tensor[RIG_DGATE].view, intermediate, intermediate);
    } else {
        tensor[RIG_DGATE] = rig_tensor_make(layout[RIG_DGATE], dtype, local, intermediate, hidden);
        tensor[RIG_DUP] = rig_tensor_make(layout[RIG_DUP], dtype, local, intermediate, hidden);
        start_gradient(call, &tensor[RIG_DGATE], gate, n, poison);
        start_gradient(call, &tensor[RIG_DUP], up, n, poison);
        args->dgate = tensor[RIG_DGATE].view;
        args->dup = tensor[RIG_DUP].view;
    }
    tensor[RIG_DDOWN] = rig_tensor_make(layout[RIG_DDOWN], dtype, local, hidden, intermediate);
    start_gradient(call, &tensor[RIG_DDOWN], down, n, poison);
    args->ddown = tensor[RIG_DDOWN].view;

    mmoe_tensor *views[] = {&args->dx, &args->dweights, &args->dgate, &args->dup, &args->ddown};
    for (int i = 0; i < 5; i++)
        if (omitted(call, rank, RIG_DX + i))
            *views[i] = (mmoe_tensor){0};
}

static struct rig_tensor output(const struct rig_options *options, enum rig_operand operand, mmoe_dtype dtype,
                                int64_t rows, int64_t cols, int poison) {
    struct rig_tensor tensor = rig_tensor_make(options->layout[operand], dtype, 0, rows, cols);
    rig_tensor_poison(&tensor, poison);
    return tensor;
}

static void make_forward(struct rig_call *call, const struct rig_batch *batch, int rank, int poison) {
    const struct rig_options *options = call->options;
    struct rig_tensor *tensor = call->tensor;
    int64_t tokens = batch->tokens[rank], first = rig_batch_first(batch, rank);
    int64_t hidden = batch->layer.hidden, top_k = batch->layer.top_k;
    tensor[RIG_X] = rig_tensor_make(options->layout[RIG_X], MMOE_BF16, 0, tokens, hidden);
    rig_tensor_put(&tensor[RIG_X], batch->x + first * hidden);
    tensor[RIG_IDS] = ids_tensor(options, batch->ids + first * top_k, tokens, top_k);
    tensor[RIG_WEIGHTS] = rig_tensor_make(options->layout[RIG_WEIGHTS], MMOE_F32, 0, tokens, top_k);
    rig_tensor_put(&tensor[RIG_WEIGHTS], batch->weights + first * top_k);
    tensor[RIG_Y] = output(options, RIG_Y, MMOE_BF16, tokens, hidden, poison);
    make_matrices(call, batch, share_of(batch, rank));

    call->forward.x = tensor[RIG_X].view;
    call->forward.ids = tensor[RIG_IDS].view;
    call->forward.weights = tensor[RIG_WEIGHTS].view;
    call->forward.y = tensor[RIG_Y].view;
}

/* After the forward's, whose operands it shares. */
static void make_backward(struct rig_call *call, const struct rig_batch *batch, int rank, int poison) {
    const struct rig_options *options = call->options;
    struct rig_tensor *tensor = call->tensor;
    int64_t tokens = batch->tokens[rank], hidden = batch->layer.hidden;
    tensor[RIG_DY] = rig_tensor_make(options->layout[RIG_DY], MMOE_BF16, 0, tokens, hidden);
    rig_tensor_put(&tensor[RIG_DY], batch->dy + rig_batch_first(batch, rank) * hidden);
    tensor[RIG_DX] = output(options, RIG_DX, MMOE_BF16, tokens, hidden, poison);
    tensor[RIG_DWEIGHTS] = output(options, RIG_DWEIGHTS, MMOE_F32, tokens, batch->layer.top_k, poison);

    if (options->keep == MMOE_KEEP_PLAN)
        call->backward.x = tensor[RIG_X].view;
    call->backward.dy = tensor[RIG_DY].view;
    call->backward.gate = call->forward.gate;
    call->backward.up = call->forward.up;
    call->backward.down = call->forward.down;
    call->backward.dx = tensor[RIG_DX].view;
    call->backward.dweights = tensor[RIG_DWEIGHTS].view;
    call->backward.accumulate = options->accumulate;
    make_gradients(call, batch, share_of(batch, rank), rank, poison);
}

struct rig_call rig_call_make(const struct rig_rank *rank, const struct rig_batch *batch,
                              const struct rig_options *options, mmoe_saved *saved, int poison) {
    struct rig_call call = {
        .options = options, .forward = mmoe_forward_args_default(), .backward = mmoe_backward_args_default()};
    make_forward(&call, batch, rank->rank, poison);
    if (!options->forward_only)
        make_backward(&call, batch, rank->rank, poison);
    call.forward.saved = call.backward.saved = saved;
    if (rank->share != NULL)
        call.forward.stream = call.backward.stream = rank->share->stream;
    return call;
}

void rig_call_free(struct rig_call *call) {
    for (int i = 0; i < RIG_OPERANDS; i++)
        rig_tensor_free(&call->tensor[i]);
}

static bool intact(const struct rig_tensor *tensor) {
    return !tensor->memory || rig_tensor_intact(tensor);
}

bool rig_call_untouched(const struct rig_call *call) {
    for (int i = 0; i < RIG_OPERANDS; i++)
        if (!intact(&call->tensor[i]))
            return false;
    return true;
}

bool rig_operand_is_nan(const struct rig_call *call, enum rig_operand operand) {
    const mmoe_tensor *view = &call->tensor[operand].view;
    int64_t n = view->shape[0] * view->shape[1] * (view->dims == 3 ? view->shape[2] : 1);
    for (int64_t i = 0; i < n; i++) {
        float value = view->dtype == MMOE_F32 ? ((const float *)view->data)[i]
                                              : mm_bf16_to_float(((const uint16_t *)view->data)[i]);
        if (!isnan(value))
            return false;
    }
    return true;
}

/* ---- Results */

static bool inputs_intact(struct rig_rank *rank, const struct rig_call *call) {
    for (int i = 0; i < RIG_OPERANDS; i++)
        if (i <= RIG_DOWN || i == RIG_DY)
            RIG_TRY(rank, intact(&call->tensor[i]), "the call wrote to its input %s", operand_name[i]);
    return true;
}

static bool take(struct rig_rank *rank, struct rig_call *call, enum rig_operand operand, void *values) {
    RIG_TRY(rank, rig_tensor_take(&call->tensor[operand], values), "the call wrote outside the elements of %s",
            operand_name[operand]);
    return true;
}

bool rig_call_take_forward(struct rig_rank *rank, struct rig_call *call, struct rig_batch *batch) {
    return inputs_intact(rank, call) &&
           take(rank, call, RIG_Y, batch->y + rig_batch_first(batch, rank->rank) * batch->layer.hidden);
}

/* Takes a stack of n elements as fp32, whatever its dtype. */
static bool take_wide(struct rig_rank *rank, struct rig_call *call, enum rig_operand operand, float *values,
                      int64_t n) {
    if (!call->options->narrow_gradients)
        return take(rank, call, operand, values);
    uint16_t *narrow = malloc((size_t)n * sizeof *narrow + 1);
    bool taken = take(rank, call, operand, narrow);
    for (int64_t i = 0; taken && i < n; i++)
        values[i] = mm_bf16_to_float(narrow[i]);
    free(narrow);
    return taken;
}

/* Takes the joint stack apart; a half that the rank left out must have kept its bytes. */
static bool take_halves(struct rig_rank *rank, struct rig_call *call, struct rig_batch *batch, struct share share) {
    int64_t matrix = share.hidden * share.intermediate, n = 2 * share.local * matrix;
    float *joint = malloc((size_t)n * sizeof *joint + 1);
    bool taken = take_wide(rank, call, RIG_DGATE, joint, n);
    for (int64_t e = 0; taken && e < share.local; e++)
        for (int64_t i = 0; i < matrix; i++) {
            if (!omitted(call, rank->rank, RIG_DGATE))
                batch->dgate[share.first + e * matrix + i] = joint[2 * e * matrix + i];
            if (!omitted(call, rank->rank, RIG_DUP))
                batch->dup[share.first + e * matrix + i] = joint[(2 * e + 1) * matrix + i];
        }
    free(joint);
    return taken;
}

/* Takes a gradient that the rank wants; one that it left out must be untouched. */
static bool take_wanted(struct rig_rank *rank, struct rig_call *call, enum rig_operand operand, void *values,
                        int64_t n) {
    if (omitted(call, rank->rank, operand)) {
        RIG_TRY(rank, intact(&call->tensor[operand]), "the call wrote to %s, which was left out",
                operand_name[operand]);
        return true;
    }
    return operand >= RIG_DGATE ? take_wide(rank, call, operand, values, n) : take(rank, call, operand, values);
}

bool rig_call_take_backward(struct rig_rank *rank, struct rig_call *call, struct rig_batch *batch) {
    int64_t first = rig_batch_first(batch, rank->rank);
    struct share share = share_of(batch, rank->rank);
    int64_t n = share.local * share.hidden * share.intermediate;
    if (!inputs_intact(rank, call) || !take_wanted(rank, call, RIG_DX, batch->dx + first * batch->layer.hidden, 0) ||
        !take_wanted(rank, call, RIG_DWEIGHTS, batch->dweights + first * batch->layer.top_k, 0) ||
        !take_wanted(rank, call, RIG_DDOWN, batch->ddown + share.first, n))
        return false;
    if (call->options->halves)
        return take_halves(rank, call, batch, share);
    return take_wanted(rank, call, RIG_DGATE, batch->dgate + share.first, n) &&
           take_wanted(rank, call, RIG_DUP, batch->dup + share.first, n);
}

bool rig_call_forward(struct rig_rank *rank, mmoe_layer *layer, struct rig_call *call, const struct rig_placed *placed,
                      struct rig_batch *batch) {
    mmoe_status status = mmoe_forward(layer, &call->forward);
    RIG_TRY(rank, status == MMOE_OK, "forward: %s: %s", mmoe_status_name(status), mmoe_last_error());
    return rig_call_fetch(rank, call, placed) && rig_call_take_forward(rank, call, batch);
}

bool rig_call_backward(struct rig_rank *rank, mmoe_layer *layer, struct rig_call *call, const struct rig_placed *placed,
                       struct rig_batch *batch) {
    mmoe_status status = mmoe_backward(layer, &call->backward);
    RIG_TRY(rank, status == MMOE_OK, "backward: %s: %s", mmoe_status_name(status), mmoe_last_error());
    return rig_call_fetch(rank, call, placed) && rig_call_take_backward(rank, call, batch);
}

bool rig_step(struct rig_rank *rank, mmoe_layer *layer, mmoe_saved *saved, struct rig_batch *batch,
              const struct rig_options *options, int poison) {
    struct rig_call call = rig_call_make(rank, batch, options, saved, poison);
    struct rig_placed placed;
    if (!rig_call_place(rank, &call, &placed) || !rig_poison_scratch(rank, poison))
        return false;
    bool taken = rig_call_forward(rank, layer, &call, &placed, batch);
    if (!options->forward_only)
        taken = rig_call_backward(rank, layer, &call, &placed, batch) && taken;
    rig_placed_free(rank, &placed);
    rig_call_free(&call);
    return taken;
}

/* ---- Runs */

struct steps {
    struct rig_batch *batches;
    int count, poison;
    const struct rig_options *options;
};

static void steps_body(struct rig_rank *rank, void *context) {
    struct steps *steps = context;
    mmoe_layer *layer;
    mmoe_saved *saved;
    RIG_OK(rank, mmoe_layer_create(rank->group, &steps->batches[0].layer, &layer));
    RIG_OK(rank, mmoe_saved_create(layer, steps->options->keep, &saved));
    for (int i = 0; i < steps->count; i++)
        if (!rig_step(rank, layer, saved, &steps->batches[i], steps->options, steps->poison))
            return;
    mmoe_saved_destroy(&saved);
    mmoe_layer_destroy(&layer);
}

void rig_run(const struct rig_world *world, struct rig_batch *batches, int count, const struct rig_options *options) {
    struct steps steps = {batches, count, world->poison ? world->poison : 0xff, options};
    for (int i = 0; i < count; i++)
        rig_batch_reset(&batches[i]);
    rig_world_run(world, steps_body, &steps);
}

void rig_prove(const struct rig_world *world, struct rig_batch *batches, int count, const struct rig_options *options) {
    static const int poisons[] = {0xff, 0x7f};
    static int turn;
    const int runs = rig_scaled("poisons, in turn", 2, 1);
    for (int p = 0; p < runs; p++) {
        struct rig_world poisoned = *world;
        poisoned.poison = poisons[turn++ % 2];
        rig_run(&poisoned, batches, count, options);
        for (int i = 0; i < count; i++)
            rig_compare(&batches[i], options, RIG_BOUND);
    }
}

struct rig_world rig_world_for(const struct rig_batch *batches, int count, enum rig_kind kind) {
    const mmoe_layer_config *layer = &batches[0].layer;
    int64_t most = 0;
    for (int i = 0; i < count; i++)
        for (int r = 0; r < batches[i].world; r++)
            most = batches[i].tokens[r] > most ? batches[i].tokens[r] : most;
    return rig_world_make(batches[0].world, kind, most, layer->hidden, layer->top_k, layer->experts);
}
