/* Everything that is checked about the arguments of a forward and a backward. */
#include "api/check.h"

/* A [T, cols] argument. */
static struct mm_argument tokens_argument(const char *name, const mmoe_tensor *tensor, int64_t tokens, int64_t cols,
                                          unsigned dtypes) {
    return (struct mm_argument){
        .expect = {.name = name, .dims = 2, .shape = {tokens, cols}, .dtypes = dtypes},
        .tensor = tensor,
    };
}

/* A [El, rows, cols] argument. */
static struct mm_argument stack_argument(const char *name, const mmoe_tensor *tensor, const struct mmoe_layer *layer,
                                         int64_t rows, int64_t cols, unsigned dtypes) {
    return (struct mm_argument){
        .expect = {.name = name, .dims = 3, .shape = {layer->local_experts, rows, cols}, .dtypes = dtypes},
        .tensor = tensor,
    };
}

static struct mm_argument output(struct mm_argument argument) {
    argument.output = true;
    return argument;
}

static struct mm_argument gradient(struct mm_argument argument) {
    argument.output = argument.optional = true;
    return argument;
}

static mmoe_status check_each(const struct mm_argument *arguments, int count) {
    for (int i = 0; i < count; i++) {
        if (arguments[i].optional && mm_tensor_is_absent(arguments[i].tensor)) {
            continue;
        }
        mmoe_status status = mm_check_tensor(arguments[i].tensor, &arguments[i].expect);
        if (status == MMOE_OK && arguments[i].output) {
            status = mm_check_distinct(&arguments[i]);
        }
        if (status != MMOE_OK) {
            return status;
        }
    }
    return MMOE_OK;
}

/* The scratch belongs to the layer, which threads may share: the group's lock makes calls serial. */
static mmoe_status check_apart(struct mmoe_layer *layer, const struct mm_argument *arguments, int count) {
    pthread_mutex_lock(&layer->group->lock);
    mmoe_status status = mm_check_overlap(arguments, count, layer->check_scratch);
    pthread_mutex_unlock(&layer->group->lock);
    return status;
}

static mmoe_status check_tokens(const struct mmoe_layer *layer, int64_t tokens) {
    if (tokens > layer->group->config.max_tokens) {
        return mm_fail(MMOE_INVALID_ARGUMENT, "x has %lld tokens, expected at most the group's max_tokens of %lld",
                       (long long)tokens, (long long)layer->group->config.max_tokens);
    }
    return MMOE_OK;
}

static mmoe_status check_saved(const struct mmoe_layer *layer, const struct mmoe_saved *saved) {
    if (saved->layer != layer) {
        return mm_fail(MMOE_INVALID_ARGUMENT, "saved belongs to layer %d of its group, expected one made for layer %d",
                       saved->layer->index, layer->index);
    }
    return MMOE_OK;
}

mmoe_status mm_check_forward(struct mmoe_layer *layer, const mmoe_forward_args *args) {
    mmoe_status status = mm_check_pointer("args", args, "a mmoe_forward_args");
    if (status == MMOE_OK) {
        status = mm_check_struct_size("args", args->struct_size, sizeof *args, "mmoe_forward_args_default()");
    }
    if (status == MMOE_OK && args->saved != NULL) {
        status = check_saved(layer, args->saved);
    }
    if (status != MMOE_OK) {
        return status;
    }
    const mmoe_layer_config *config = &layer->config;
    const unsigned bf16 = MM_DTYPE(MMOE_BF16), fp32 = MM_DTYPE(MMOE_F32);
    const unsigned integers = MM_DTYPE(MMOE_I32) | MM_DTYPE(MMOE_I64);
    const int64_t tokens = args->x.shape[0];
    const struct mm_argument arguments[] = {
        tokens_argument("x", &args->x, MM_ANY, config->hidden, bf16),
        tokens_argument("ids", &args->ids, tokens, config->top_k, integers),
        tokens_argument("weights", &args->weights, tokens, config->top_k, fp32),
        stack_argument("gate", &args->gate, layer, config->intermediate, config->hidden, bf16),
        stack_argument("up", &args->up, layer, config->intermediate, config->hidden, bf16),
        stack_argument("down", &args->down, layer, config->hidden, config->intermediate, bf16),
        output(tokens_argument("y", &args->y, tokens, config->hidden, bf16)),
    };
    const int count = sizeof arguments / sizeof arguments[0];
    status = check_each(arguments, count);
    if (status == MMOE_OK) {
        status = check_tokens(layer, tokens);
    }
    return status == MMOE_OK ? check_apart(layer, arguments, count) : status;
}

/* x is an argument when the saved state does not hold it. */
static mmoe_status check_x_of_backward(const mmoe_backward_args *args) {
    if (args->saved->keep == MMOE_KEEP_ROWS && !mm_tensor_is_absent(&args->x)) {
        return mm_fail(MMOE_INVALID_ARGUMENT, "x has dims %d, expected an absent tensor: saved keeps the rows of x",
                       args->x.dims);
    }
    return MMOE_OK;
}

static mmoe_status check_backward_values(const struct mmoe_layer *layer, const mmoe_backward_args *args) {
    mmoe_status status = mm_check_pointer("args", args, "a mmoe_backward_args");
    if (status == MMOE_OK) {
        status = mm_check_struct_size("args", args->struct_size, sizeof *args, "mmoe_backward_args_default()");
    }
    if (status == MMOE_OK) {
        status = mm_check_pointer("saved", args->saved, "the saved state of a forward");
    }
    if (status == MMOE_OK) {
        status = check_saved(layer, args->saved);
    }
    if (status == MMOE_OK && args->saved->call == 0) {
        status = mm_fail(MMOE_INVALID_ARGUMENT, "saved holds no forward, expected one that succeeded");
    }
    if (status == MMOE_OK) {
        status = mm_check_range("accumulate", args->accumulate, 0, 1);
    }
    return status == MMOE_OK ? check_x_of_backward(args) : status;
}

mmoe_status mm_check_backward(struct mmoe_layer *layer, const mmoe_backward_args *args) {
    mmoe_status status = check_backward_values(layer, args);
    if (status != MMOE_OK) {
        return status;
    }
    const mmoe_layer_config *config = &layer->config;
    const int64_t tokens = args->saved->tokens;
    const unsigned bf16 = MM_DTYPE(MMOE_BF16), fp32 = MM_DTYPE(MMOE_F32);
    struct mm_argument arguments[] = {
        tokens_argument("x", &args->x, tokens, config->hidden, bf16),
        tokens_argument("dy", &args->dy, tokens, config->hidden, bf16),
        stack_argument("gate", &args->gate, layer, config->intermediate, config->hidden, bf16),
        stack_argument("up", &args->up, layer, config->intermediate, config->hidden, bf16),
        stack_argument("down", &args->down, layer, config->hidden, config->intermediate, bf16),
        gradient(tokens_argument("dx", &args->dx, tokens, config->hidden, bf16)),
        gradient(tokens_argument("dweights", &args->dweights, tokens, config->top_k, fp32)),
        gradient(stack_argument("dgate", &args->dgate, layer, config->intermediate, config->hidden, bf16 | fp32)),
        gradient(stack_argument("dup", &args->dup, layer, config->intermediate, config->hidden, bf16 | fp32)),
        gradient(stack_argument("ddown", &args->ddown, layer, config->hidden, config->intermediate, bf16 | fp32)),
    };
    const int count = sizeof arguments / sizeof arguments[0];
    arguments[0].optional = args->saved->keep == MMOE_KEEP_ROWS;
    status = check_each(arguments, count);
    return status == MMOE_OK ? check_apart(layer, arguments, count) : status;
}
