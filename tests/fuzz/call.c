/* Fuzz target: the argument checks of a layer, a saved state, forward and backward, on one rank.
 *
 * A legal call is made first and then a few fields of its arguments are replaced. The caller's side of the contract is
 * kept: memory stands behind whatever shape and strides say, or the pointer is NULL. The library's side is checked:
 * a refused call has a sentence and wrote nothing, a call that succeeds wrote nothing but its outputs, and a legal call
 * works afterwards. */
#include "input.h"
#include "megamoe.h"

#include <stdbool.h>

enum {
    TOKENS = 3,
    HIDDEN = 8,
    INTERMEDIATE = 8,
    EXPERTS = 2,
    TOP_K = 2,
    REGION = 1024, /* bytes behind each tensor, its elements begin in the middle */
    TENSORS = 13
};

enum name { X, IDS, WEIGHTS, GATE, UP, DOWN, Y, DY, DX, DWEIGHTS, DGATE, DUP, DDOWN };

struct caller {
    mmoe_group *group;
    unsigned char *memory, *snapshot; /* TENSORS regions each */
    void *experts[TENSORS][EXPERTS];  /* the same stacks as one pointer an expert */
};

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static struct caller caller;

static size_t element_bytes(mmoe_dtype dtype) {
    return dtype == MMOE_BF16 ? 2 : dtype == MMOE_I64 ? 8 : 4;
}

static unsigned char *region(int name) {
    return caller.memory + name * REGION + REGION / 4;
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    mmoe_group_config config = mmoe_group_config_default();
    config.max_tokens = 2 * TOKENS;
    config.max_hidden = 2 * HIDDEN;
    config.max_top_k = 2 * TOP_K;
    config.max_experts = 2 * EXPERTS;
    config.threads = 1;
    REQUIRE(mmoe_group_create_threads(&config, 1, &caller.group) == MMOE_OK);
    caller.memory = malloc(TENSORS * REGION);
    caller.snapshot = malloc(TENSORS * REGION);
    REQUIRE(caller.memory != NULL && caller.snapshot != NULL);
    for (int name = 0; name < TENSORS; name++)
        for (int e = 0; e < EXPERTS; e++)
            caller.experts[name][e] = region(name) + e * INTERMEDIATE * HIDDEN * 2;
    return 0;
}

static mmoe_tensor legal_tensor(int name) {
    void *data = region(name);
    switch (name) {
    case IDS:
        return mmoe_matrix(data, MMOE_I32, TOKENS, TOP_K);
    case WEIGHTS:
    case DWEIGHTS:
        return mmoe_matrix(data, MMOE_F32, TOKENS, TOP_K);
    case GATE:
    case UP:
    case DGATE:
    case DUP:
        return mmoe_stack(data, MMOE_BF16, EXPERTS, INTERMEDIATE, HIDDEN);
    case DOWN:
    case DDOWN:
        return mmoe_stack(data, MMOE_BF16, EXPERTS, HIDDEN, INTERMEDIATE);
    default:
        return mmoe_matrix(data, MMOE_BF16, TOKENS, HIDDEN);
    }
}

/* Small finite numbers everywhere, legal ids, and poison in the outputs. */
static void fill_memory(void) {
    memset(caller.memory, 0x3c, TENSORS * REGION);
    for (int name = Y; name < TENSORS; name++)
        if (name != DY)
            memset(caller.memory + name * REGION, 0xff, REGION);
    for (int i = 0; i < TOKENS * TOP_K; i++) {
        ((int32_t *)(void *)region(IDS))[i] = i % EXPERTS;
        ((float *)(void *)region(WEIGHTS))[i] = 0.5f;
    }
}

/* Whether every element that the view describes lies in the region of the tensor that it points to. */
static bool within_memory(const mmoe_tensor *tensor, const unsigned char *start, const unsigned char *end) {
    __extension__ typedef __int128 wide;
    wide low = 0, high = 0;
    for (int d = 0; d < tensor->dims && d < 3; d++) {
        if (tensor->shape[d] <= 0)
            return true;
        wide reach = (wide)(tensor->shape[d] - 1) * tensor->stride[d];
        low += reach < 0 ? reach : 0;
        high += reach > 0 ? reach : 0;
    }
    wide bytes = (wide)element_bytes(tensor->dtype);
    wide at = (const unsigned char *)tensor->data - start;
    return at + low * bytes >= 0 && at + (high + 1) * bytes <= end - start;
}

static void change_tensor(struct input *input, mmoe_tensor *tensors) {
    int name = input_below(input, TENSORS), axis = input_below(input, 3);
    mmoe_tensor *tensor = &tensors[name];
    switch (input_below(input, 10)) {
    case 0:
        *tensor = (mmoe_tensor){0};
        break;
    case 1:
        tensor->data = NULL;
        break;
    case 2:
        tensor->dtype = (mmoe_dtype)input_number(input, tensor->dtype);
        break;
    case 3:
        tensor->dims = (int32_t)input_number(input, tensor->dims);
        break;
    case 4:
        tensor->shape[axis] = input_number(input, tensor->shape[axis]);
        break;
    case 5:
        tensor->stride[axis] = input_number(input, tensor->stride[axis]);
        break;
    case 6: /* overlaps another, or is not aligned to its elements */
        if (tensor->data != NULL)
            tensor->data = region(input_below(input, TENSORS)) + input_below(input, 9);
        break;
    case 7:
        tensor->data = NULL;
        tensor->experts = caller.experts[name];
        break;
    case 8: /* both at once */
        tensor->experts = caller.experts[name];
        break;
    default: /* every token count of the call at once, so that the call may stay legal */
        for (int each = 0; each < TENSORS; each++)
            if (tensors[each].dims == 2)
                tensors[each].shape[0] = axis;
    }
}

static void keep_callers_promise(mmoe_tensor *tensors) {
    for (int name = 0; name < TENSORS; name++) {
        mmoe_tensor *tensor = &tensors[name];
        if (tensor->data != NULL && !within_memory(tensor, caller.memory, caller.memory + TENSORS * REGION))
            tensor->data = NULL;
        /* The pointers of a stack are El contiguous matrices in their own region. */
        mmoe_tensor matrix = *tensor;
        matrix.data = region(name);
        matrix.dims = 2;
        for (int d = 0; d < 2; d++) {
            matrix.shape[d] = tensor->shape[d + 1];
            matrix.stride[d] = tensor->stride[d + 1];
        }
        if (tensor->experts != NULL && !within_memory(&matrix, region(name), region(name) + INTERMEDIATE * HIDDEN * 2))
            tensor->experts = NULL;
    }
}

/* Puts back the elements of an output, so that what is left of a difference was written elsewhere. */
static void restore_output(const mmoe_tensor *tensor) {
    int64_t shape[3] = {1, 1, 1}, stride[3] = {0, 0, 0};
    size_t bytes = element_bytes(tensor->dtype);
    for (int d = 0; d < tensor->dims; d++) {
        shape[d] = tensor->shape[d];
        stride[d] = tensor->stride[d];
    }
    for (int64_t i = 0; i < shape[0]; i++)
        for (int64_t j = 0; j < shape[1]; j++)
            for (int64_t k = 0; k < shape[2]; k++) {
                unsigned char *base = tensor->experts != NULL ? tensor->experts[i] : tensor->data;
                int64_t outer = tensor->experts != NULL ? 0 : i * stride[0];
                unsigned char *at = base + (outer + j * stride[1] + k * stride[2]) * (int64_t)bytes;
                memcpy(at, caller.snapshot + (at - caller.memory), bytes);
            }
}

static void check_writes(mmoe_status status, const mmoe_tensor *tensors, int first, int last) {
    if (status == MMOE_OK)
        for (int name = first; name <= last; name++)
            if (tensors[name].dims != 0)
                restore_output(&tensors[name]);
    REQUIRE(memcmp(caller.memory, caller.snapshot, TENSORS * REGION) == 0);
    REQUIRE(status == MMOE_OK || mmoe_last_error()[0] != '\0');
}

static mmoe_status forward(mmoe_layer *layer, const mmoe_tensor *tensors, mmoe_saved *saved, size_t struct_size) {
    mmoe_forward_args args = mmoe_forward_args_default();
    args.struct_size = struct_size;
    args.x = tensors[X];
    args.ids = tensors[IDS];
    args.weights = tensors[WEIGHTS];
    args.gate = tensors[GATE];
    args.up = tensors[UP];
    args.down = tensors[DOWN];
    args.y = tensors[Y];
    args.saved = saved;
    memcpy(caller.snapshot, caller.memory, TENSORS * REGION);
    mmoe_status status = mmoe_forward(layer, &args);
    check_writes(status, tensors, Y, Y);
    return status;
}

static mmoe_status backward(mmoe_layer *layer, const mmoe_tensor *tensors, mmoe_saved *saved, size_t struct_size,
                            bool with_x, int32_t accumulate) {
    mmoe_backward_args args = mmoe_backward_args_default();
    args.struct_size = struct_size;
    args.saved = saved;
    if (with_x)
        args.x = tensors[X];
    args.dy = tensors[DY];
    args.gate = tensors[GATE];
    args.up = tensors[UP];
    args.down = tensors[DOWN];
    args.dx = tensors[DX];
    args.dweights = tensors[DWEIGHTS];
    args.dgate = tensors[DGATE];
    args.dup = tensors[DUP];
    args.ddown = tensors[DDOWN];
    args.accumulate = accumulate;
    memcpy(caller.snapshot, caller.memory, TENSORS * REGION);
    mmoe_status status = mmoe_backward(layer, &args);
    check_writes(status, tensors, DX, DDOWN);
    return status;
}

static void all_legal(mmoe_tensor *tensors) {
    for (int name = 0; name < TENSORS; name++)
        tensors[name] = legal_tensor(name);
    fill_memory();
}

static mmoe_layer *make_layer(struct input *input) {
    mmoe_layer_config config = mmoe_layer_config_default();
    config.hidden = HIDDEN;
    config.intermediate = INTERMEDIATE;
    config.experts = EXPERTS;
    config.top_k = TOP_K;
    config.weight_on = (mmoe_weight_on)input_below(input, 2);
    config.limit = input_below(input, 2) ? 1.0f : 0.0f;
    if (input_below(input, 2)) {
        config.capacity_policy = MMOE_CAPACITY_FIXED;
        config.capacity = TOKENS * TOP_K;
    }
    mmoe_layer *layer = NULL;
    REQUIRE(mmoe_layer_create(caller.group, &config, &layer) == MMOE_OK);
    return layer;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    struct input input = {bytes, bytes + n};
    mmoe_tensor tensors[TENSORS];
    mmoe_layer *layer = make_layer(&input);
    mmoe_keep keep = (mmoe_keep)input_below(&input, 2);
    mmoe_saved *saved = NULL;
    REQUIRE(mmoe_saved_create(layer, keep, &saved) == MMOE_OK);

    all_legal(tensors);
    if (input_below(&input, 8) == 7)
        ((int32_t *)(void *)region(IDS))[input_below(&input, TOKENS * TOP_K)] = (int32_t)input_number(&input, 0);
    if (input_below(&input, 8) == 7)
        ((uint32_t *)(void *)region(WEIGHTS))[input_below(&input, TOKENS * TOP_K)] = 0x7f800001u;
    bool backward_changed = input_below(&input, 2);
    if (backward_changed)
        REQUIRE(forward(layer, tensors, saved, sizeof(mmoe_forward_args)) != MMOE_BROKEN);
    for (int changes = input_below(&input, 4); changes > 0; changes--)
        change_tensor(&input, tensors);
    keep_callers_promise(tensors);

    size_t shift = input_below(&input, 16) == 15 ? (size_t)input_number(&input, 0) : 0;
    if (backward_changed)
        backward(layer, tensors, saved, sizeof(mmoe_backward_args) + shift, input_below(&input, 2),
                 (int32_t)(input_byte(&input) % 3));
    else
        forward(layer, tensors, input_below(&input, 2) ? saved : NULL, sizeof(mmoe_forward_args) + shift);

    all_legal(tensors);
    REQUIRE(forward(layer, tensors, saved, sizeof(mmoe_forward_args)) == MMOE_OK);
    REQUIRE(backward(layer, tensors, saved, sizeof(mmoe_backward_args), keep == MMOE_KEEP_PLAN, 0) == MMOE_OK);
    mmoe_saved_destroy(&saved);
    mmoe_layer_destroy(&layer);
    return 0;
}
