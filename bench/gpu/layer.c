/* The whole layer through the public interface; see bench.h. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "bench.h"
#include "group.h"

enum operand { X, IDS, WEIGHTS, W13, W2, Y, DY, DX, DWEIGHTS, DW13, DW2, OPERANDS };

static const char *const operand_names[OPERANDS] = {
    [X] = "x",   [IDS] = "ids", [WEIGHTS] = "weights",   [W13] = "w13",   [W2] = "w2",   [Y] = "y",
    [DY] = "dy", [DX] = "dx",   [DWEIGHTS] = "dweights", [DW13] = "dw13", [DW2] = "dw2",
};

struct bench_layer {
    mmoe_layer *layer;
    mmoe_saved *saved;
    mmoe_layer_config config;
    int64_t local_experts;
    mmoe_keep keep;
    void *address[OPERANDS];
    mmoe_report report;
};

/* ---- Making ---- */

int bench_layer_make(struct bench_group *group, int64_t hidden, int64_t intermediate, int64_t experts, int64_t top_k,
                     int64_t capacity, int keep, int grouped, struct bench_layer **made) {
    mmoe_status status = mm_alloc_zero((void **)made, sizeof **made, "the layer");
    if (status != MMOE_OK) {
        return status;
    }
    struct bench_layer *layer = *made;
    layer->config = mmoe_layer_config_default();
    layer->config.hidden = hidden;
    layer->config.intermediate = intermediate;
    layer->config.experts = experts;
    layer->config.top_k = top_k;
    layer->config.capacity_policy = capacity > 0 ? MMOE_CAPACITY_FIXED : MMOE_CAPACITY_GROW;
    layer->config.capacity = capacity;
    layer->config.combine = grouped ? MMOE_COMBINE_GROUPED : MMOE_COMBINE_EXACT;
    layer->local_experts = experts / mmoe_group_world(group->group);
    layer->keep = keep == MMOE_KEEP_ROWS ? MMOE_KEEP_ROWS : MMOE_KEEP_PLAN;
    status = mmoe_layer_create(group->group, &layer->config, &layer->layer);
    if (status == MMOE_OK) {
        status = mmoe_saved_create(layer->layer, layer->keep, &layer->saved);
    }
    if (status != MMOE_OK) {
        bench_layer_free(layer);
        *made = NULL;
    }
    return status;
}

void bench_layer_free(struct bench_layer *layer) {
    mmoe_saved_destroy(&layer->saved);
    mmoe_layer_destroy(&layer->layer);
    mm_free(&layer);
}

int bench_layer_bind(struct bench_layer *layer, const char *operand, void *address) {
    for (int i = 0; i < OPERANDS; i++) {
        if (strcmp(operand_names[i], operand) == 0) {
            layer->address[i] = address;
            return MMOE_OK;
        }
    }
    return mm_fail(MMOE_INVALID_ARGUMENT, "operand is \"%s\", expected one of bench.h", operand);
}

/* ---- Calls ---- */

static mmoe_tensor tokens_of(const struct bench_layer *layer, enum operand operand, mmoe_dtype dtype, int64_t tokens,
                             int64_t columns) {
    void *address = layer->address[operand];
    return address != NULL ? mmoe_matrix(address, dtype, tokens, columns) : (mmoe_tensor){0};
}

/* A weight, or its gradient: [El, 2I, H], or [El, H, I]. */
static mmoe_tensor joint_of(const struct bench_layer *layer, enum operand operand, mmoe_dtype dtype) {
    const mmoe_layer_config *config = &layer->config;
    void *address = layer->address[operand];
    return address != NULL ? mmoe_stack(address, dtype, layer->local_experts, 2 * config->intermediate, config->hidden)
                           : (mmoe_tensor){0};
}

static mmoe_tensor down_of(const struct bench_layer *layer, enum operand operand, mmoe_dtype dtype) {
    const mmoe_layer_config *config = &layer->config;
    void *address = layer->address[operand];
    return address != NULL ? mmoe_stack(address, dtype, layer->local_experts, config->hidden, config->intermediate)
                           : (mmoe_tensor){0};
}

int bench_layer_forward(struct bench_layer *layer, int64_t tokens, int timed, void *stream) {
    const mmoe_layer_config *config = &layer->config;
    const mmoe_tensor w13 = joint_of(layer, W13, MMOE_BF16);
    mmoe_forward_args args = mmoe_forward_args_default();
    args.x = tokens_of(layer, X, MMOE_BF16, tokens, config->hidden);
    args.ids = tokens_of(layer, IDS, MMOE_I64, tokens, config->top_k);
    args.weights = tokens_of(layer, WEIGHTS, MMOE_F32, tokens, config->top_k);
    args.gate = mmoe_stack_rows(w13, 0, config->intermediate);
    args.up = mmoe_stack_rows(w13, config->intermediate, config->intermediate);
    args.down = down_of(layer, W2, MMOE_BF16);
    args.y = tokens_of(layer, Y, MMOE_BF16, tokens, config->hidden);
    args.saved = layer->saved;
    args.report = timed ? &layer->report : NULL;
    args.stream = stream;
    return mmoe_forward(layer->layer, &args);
}

int bench_layer_backward(struct bench_layer *layer, int64_t tokens, int wide, int accumulate, int timed, void *stream) {
    const mmoe_layer_config *config = &layer->config;
    const mmoe_dtype dtype = wide ? MMOE_F32 : MMOE_BF16;
    const mmoe_tensor w13 = joint_of(layer, W13, MMOE_BF16), dw13 = joint_of(layer, DW13, dtype);
    mmoe_backward_args args = mmoe_backward_args_default();
    args.saved = layer->saved;
    if (layer->keep == MMOE_KEEP_PLAN) {
        args.x = tokens_of(layer, X, MMOE_BF16, tokens, config->hidden);
    }
    args.dy = tokens_of(layer, DY, MMOE_BF16, tokens, config->hidden);
    args.gate = mmoe_stack_rows(w13, 0, config->intermediate);
    args.up = mmoe_stack_rows(w13, config->intermediate, config->intermediate);
    args.down = down_of(layer, W2, MMOE_BF16);
    args.dx = tokens_of(layer, DX, MMOE_BF16, tokens, config->hidden);
    args.dweights = tokens_of(layer, DWEIGHTS, MMOE_F32, tokens, config->top_k);
    args.dgate = mmoe_stack_rows(dw13, 0, config->intermediate);
    args.dup = mmoe_stack_rows(dw13, config->intermediate, config->intermediate);
    args.ddown = down_of(layer, DW2, dtype);
    args.accumulate = accumulate;
    args.report = timed ? &layer->report : NULL;
    args.stream = stream;
    return mmoe_backward(layer->layer, &args);
}

double bench_layer_seconds(const struct bench_layer *layer, const char *phase) {
    const mmoe_report *report = &layer->report;
    const struct {
        const char *name;
        double seconds;
    } phases[] = {
        {"exchange", report->seconds_exchange}, {"plan", report->seconds_plan},
        {"dispatch", report->seconds_dispatch}, {"gate_up", report->seconds_gate_up},
        {"down", report->seconds_down},         {"dgrad", report->seconds_dgrad},
        {"wgrad", report->seconds_wgrad},       {"combine", report->seconds_combine},
        {"fused", report->seconds_fused},       {"total", report->seconds_total},
    };
    for (size_t i = 0; i < sizeof phases / sizeof phases[0]; i++) {
        if (strcmp(phases[i].name, phase) == 0) {
            return phases[i].seconds;
        }
    }
    return -1;
}

int64_t bench_layer_count(const struct bench_layer *layer, const char *what) {
    const mmoe_report *report = &layer->report;
    const struct {
        const char *name;
        int64_t value;
    } counts[] = {
        {"rows", report->rows},
        {"padded_rows", report->padded_rows},
        {"bytes_pulled", report->bytes_pulled},
        {"bytes_pushed", report->bytes_pushed},
    };
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        if (strcmp(counts[i].name, what) == 0) {
            return counts[i].value;
        }
    }
    return -1;
}
