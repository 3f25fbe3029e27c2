/* The sizes and the data of a problem. */
#include "problem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "message.h"
#include "random.h"
#include "routing.h"

/* ---- Tensors ---- */

enum width { WIDTH_H, WIDTH_K, WIDTH_IH, WIDTH_HI };

static const struct {
    const char *name;
    enum npy_type type;
    enum width width;
} tensors[TENSORS] = {
    [TENSOR_X] = {"x", NPY_U16, WIDTH_H},        [TENSOR_DY] = {"dy", NPY_U16, WIDTH_H},
    [TENSOR_IDS] = {"ids", NPY_I64, WIDTH_K},    [TENSOR_WEIGHTS] = {"w", NPY_F32, WIDTH_K},
    [TENSOR_GATE] = {"W1", NPY_U16, WIDTH_IH},   [TENSOR_UP] = {"W3", NPY_U16, WIDTH_IH},
    [TENSOR_DOWN] = {"W2", NPY_U16, WIDTH_HI},   [TENSOR_Y] = {"y", NPY_U16, WIDTH_H},
    [TENSOR_DX] = {"dx", NPY_U16, WIDTH_H},      [TENSOR_DW] = {"dw", NPY_F32, WIDTH_K},
    [TENSOR_DGATE] = {"dW1", NPY_U16, WIDTH_IH}, [TENSOR_DUP] = {"dW3", NPY_U16, WIDTH_IH},
    [TENSOR_DDOWN] = {"dW2", NPY_U16, WIDTH_HI},
};

const char *tensor_name(enum tensor tensor) {
    return tensors[tensor].name;
}

enum npy_type tensor_type(enum tensor tensor) {
    return tensors[tensor].type;
}

bool tensor_of_experts(enum tensor tensor) {
    return tensors[tensor].width == WIDTH_IH || tensors[tensor].width == WIDTH_HI;
}

int tensor_shape(const struct problem *problem, enum tensor tensor, int64_t count, int64_t shape[3]) {
    const mmoe_layer_config *layer = &problem->layer;
    shape[0] = count;
    switch (tensors[tensor].width) {
    case WIDTH_H:
        shape[1] = layer->hidden;
        return 2;
    case WIDTH_K:
        shape[1] = layer->top_k;
        return 2;
    case WIDTH_IH:
        shape[1] = layer->intermediate;
        shape[2] = layer->hidden;
        return 3;
    default:
        shape[1] = layer->hidden;
        shape[2] = layer->intermediate;
        return 3;
    }
}

int64_t tensor_width(const struct problem *problem, enum tensor tensor) {
    int64_t shape[3];
    int dims = tensor_shape(problem, tensor, 1, shape);
    return dims == 2 ? shape[1] : shape[1] * shape[2];
}

/* ---- Sizes ---- */

/* Where this process stands among those that an environment like torchrun's starts. */
static int read_environment(struct problem *problem) {
    const char *rank = getenv("RANK"), *world = getenv("WORLD_SIZE");
    problem->rank = -1;
    problem->world = problem->options->ranks == NOT_GIVEN ? 1 : (int)problem->options->ranks;
    if (problem->options->ranks != NOT_GIVEN || !rank || !world)
        return 0;
    int64_t value;
    if (!read_integer(world, 1, MMOE_MAX_WORLD, &value))
        return complain(EXIT_INPUT, "WORLD_SIZE is '%s' in the environment, expected an integer from 1 to %d", world,
                        MMOE_MAX_WORLD);
    problem->world = (int)value;
    if (!read_integer(rank, 0, problem->world - 1, &value))
        return complain(EXIT_INPUT, "RANK is '%s' in the environment, expected an integer from 0 to %d", rank,
                        problem->world - 1);
    problem->rank = (int)value;
    return 0;
}

static int64_t given_or(int64_t given, int64_t otherwise) {
    return given != NOT_GIVEN ? given : otherwise;
}

static int set_layer(struct problem *problem) {
    const struct options *options = problem->options;
    struct preset base = {.hidden = 256, .intermediate = 128, .experts = 16, .top_k = 4};
    if (options->preset)
        base = preset_scaled(options->preset, given_or(options->scale, 1), problem->world);
    mmoe_layer_config *layer = &problem->layer;
    *layer = mmoe_layer_config_default();
    layer->hidden = given_or(options->hidden, base.hidden);
    layer->intermediate = given_or(options->intermediate, base.intermediate);
    layer->experts = given_or(options->experts, base.experts);
    layer->top_k = given_or(options->top_k, base.top_k);
    layer->weight_on = options->weight_on;
    layer->combine = options->combine;
    layer->limit = (float)(options->limit < 0 ? base.limit : options->limit);
    if (options->capacity != NOT_GIVEN) {
        layer->capacity_policy = MMOE_CAPACITY_FIXED;
        layer->capacity = options->capacity;
        layer->drop = options->drop;
    }
    if (layer->experts % problem->world)
        return complain(EXIT_INPUT, "--experts is %lld, expected a multiple of the %d ranks", (long long)layer->experts,
                        problem->world);
    if (options->routing != ROUTING_FILE && options->routing != ROUTING_ONE && layer->top_k > layer->experts)
        return complain(EXIT_INPUT, "--top-k is %lld, expected at most the %lld experts", (long long)layer->top_k,
                        (long long)layer->experts);
    if (options->routing == ROUTING_ONE && options->hot_expert >= layer->experts)
        return complain(EXIT_INPUT, "--routing is 'one:%lld', expected an expert from 0 to %lld",
                        (long long)options->hot_expert, (long long)layer->experts - 1);
    return 0;
}

/* ---- Files ---- */

/* Looks only at inputs of tokens: how many tokens the files hold, or NOT_GIVEN when there is no such file. */
static int64_t tokens_in_files(const struct problem *problem) {
    for (int i = 0; i < INPUTS; i++)
        if (problem->file[i].map && !tensor_of_experts((enum tensor)i) && problem->file[i].array.dims == 2)
            return problem->file[i].array.shape[0];
    return NOT_GIVEN;
}

static int set_tokens(struct problem *problem) {
    const struct options *options = problem->options;
    int64_t all = tokens_in_files(problem), scale = given_or(options->scale, 1);
    if (options->tokens_given > 1 && options->tokens_given != problem->world)
        return complain(EXIT_INPUT, "--tokens lists %d ranks, expected one number or %d", options->tokens_given,
                        problem->world);
    for (int r = 0; r < problem->world; r++) {
        if (options->tokens_given)
            problem->tokens[r] = options->tokens[options->tokens_given > 1 ? r : 0];
        else if (all != NOT_GIVEN) /* evenly, the first ranks one more */
            problem->tokens[r] = all / problem->world + (r < all % problem->world);
        else
            problem->tokens[r] = options->preset ? preset_tokens(scale) : 64;
        if (problem->tokens[r] > MMOE_MAX_TOKENS)
            return complain(EXIT_INPUT, "the files bring %lld tokens to rank %d, expected at most %d",
                            (long long)problem->tokens[r], r, MMOE_MAX_TOKENS);
        problem->first[r + 1] = problem->first[r] + problem->tokens[r];
    }
    return 0;
}

static int check_type(const struct problem *problem, enum input input) {
    enum npy_type type = problem->file[input].array.type;
    bool good;
    const char *expected;
    if (input == INPUT_IDS) {
        good = type == NPY_I32 || type == NPY_I64;
        expected = "<i4 or <i8";
    } else if (input == INPUT_WEIGHTS) {
        good = type == NPY_F32 || type == NPY_F64;
        expected = "<f4 or <f8";
    } else {
        good = type == NPY_U16 || type == NPY_F32 || type == NPY_F64;
        expected = "<u2 (the bits of bf16), <f4 or <f8";
    }
    if (good)
        return 0;
    return complain(EXIT_INPUT, "%s is '%s', which holds %s, expected %s", input_option[input],
                    problem->options->input[input], npy_type_name(type), expected);
}

static int check_shape(const struct problem *problem, enum input input) {
    const struct npy *array = &problem->file[input].array;
    int64_t shape[3], count = problem->first[problem->world];
    if (tensor_of_experts((enum tensor)input))
        count = problem->layer.experts;
    int dims = tensor_shape(problem, (enum tensor)input, count, shape);
    if (array->dims == dims && !memcmp(array->shape, shape, (size_t)dims * sizeof shape[0]))
        return 0;
    char found[128], expected[128];
    npy_shape_text(array->shape, array->dims, found, sizeof found);
    npy_shape_text(shape, dims, expected, sizeof expected);
    return complain(EXIT_INPUT, "%s is '%s', which has shape %s, expected %s", input_option[input],
                    problem->options->input[input], found, expected);
}

/* The library checks ids too, but knows only a rank's own tokens; a file's reader counts the file's. */
static int check_ids(const struct problem *problem) {
    const struct npy *ids = &problem->file[INPUT_IDS].array;
    int64_t experts = problem->layer.experts, top_k = problem->layer.top_k;
    for (int64_t s = 0; s < ids->count; s++) {
        int64_t id = npy_integer(ids, s);
        if (id < -1 || id >= experts)
            return complain(EXIT_INPUT, "--ids is '%s', where token %lld, slot %lld has id %lld, expected -1 to %lld",
                            problem->options->input[INPUT_IDS], (long long)(s / top_k), (long long)(s % top_k),
                            (long long)id, (long long)experts - 1);
    }
    return 0;
}

static int open_files(struct problem *problem) {
    char error[512];
    for (int i = 0; i < INPUTS; i++)
        if (problem->options->input[i] && npy_open(&problem->file[i], problem->options->input[i], error, sizeof error))
            return complain(EXIT_INPUT, "%s is '%s', which can't be used: %s", input_option[i],
                            problem->options->input[i], error);
    return 0;
}

static int check_files(const struct problem *problem) {
    int code = 0;
    for (int i = 0; i < INPUTS && !code; i++) {
        if (!problem->file[i].map)
            continue;
        code = check_type(problem, (enum input)i);
        if (!code)
            code = check_shape(problem, (enum input)i);
    }
    return code || !problem->file[INPUT_IDS].map ? code : check_ids(problem);
}

static int check_supported(const struct problem *problem) {
    const char *reason = mmoe_unsupported_reason(problem->options->backend, &problem->layer, problem->world);
    return reason ? complain(EXIT_INPUT, "%s", reason) : 0;
}

int problem_open(struct problem *problem, struct options *options, const struct argp_option *own, const char *help,
                 int argc, char **argv) {
    *problem = (struct problem){.options = options};
    int code = options_read(options, own, help, argc, argv);
    if (!code)
        code = read_environment(problem);
    if (!code)
        code = set_layer(problem);
    if (!code)
        code = open_files(problem);
    if (!code)
        code = set_tokens(problem);
    if (!code)
        code = check_files(problem);
    if (!code)
        code = check_supported(problem);
    if (code)
        problem_close(problem);
    return code;
}

void problem_close(struct problem *problem) {
    for (int i = 0; i < INPUTS; i++)
        npy_close(&problem->file[i]);
}

/* ---- Data ---- */

static void fill_from_file(const struct npy *array, enum npy_type type, int64_t first, int64_t count, void *out) {
    if (array->type == type) {
        size_t bytes = npy_type_bytes(type);
        memcpy(out, array->data + (size_t)first * bytes, (size_t)count * bytes);
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        if (type == NPY_I64)
            ((int64_t *)out)[i] = npy_integer(array, first + i);
        else if (type == NPY_F32)
            ((float *)out)[i] = (float)npy_number(array, first + i);
        else
            ((uint16_t *)out)[i] = mm_bf16_from_float((float)npy_number(array, first + i));
    }
}

/* Sizes that keep every intermediate value near 1. */
static float scale_of(const struct problem *problem, enum tensor tensor) {
    if (!tensor_of_experts(tensor))
        return 1;
    return 1 / sqrtf((float)(tensor == TENSOR_DOWN ? problem->layer.intermediate : problem->layer.hidden));
}

void problem_fill(const struct problem *problem, enum tensor tensor, int64_t first, int64_t count, void *out) {
    const struct options *options = problem->options;
    const mmoe_layer_config *layer = &problem->layer;
    int64_t width = tensor_width(problem, tensor);
    if (problem->file[tensor].map)
        fill_from_file(&problem->file[tensor].array, tensors[tensor].type, first * width, count * width, out);
    else if (tensor == TENSOR_IDS)
        routing_ids(options, layer->experts, layer->top_k, first, count, out);
    else if (tensor == TENSOR_WEIGHTS)
        routing_weights(options->seed, layer->top_k, first, count, out);
    else
        random_fill_bf16(random_key(options->seed, tensor), (uint64_t)(first * width), count * width,
                         scale_of(problem, tensor), out);
}
