/* Forward and backward with every bad argument: the sentence, nothing written, peers told, and the next call works. */
#include <stdio.h>
#include <string.h>

#include "rig/rig.h"
#include "undisturbed.h"

enum { TOKENS = 4, MOST_TOKENS = 6, HIDDEN = 8, INTERMEDIATE = 6, EXPERTS = 4, TOP_K = 2 };

/* What a rank needs to spoil a call. */
struct scene {
    mmoe_layer *layer, *other_layer;
    mmoe_saved *saved;       /* keeps the plan, and holds a forward */
    mmoe_saved *saved_rows;  /* keeps the rows, and holds a forward */
    mmoe_saved *saved_empty; /* holds none */
    mmoe_saved *saved_other; /* of the other layer */
    void *experts[EXPERTS];
};

typedef void spoiler(struct scene *scene, struct rig_call *call);

struct bad_call {
    spoiler *spoil; /* NULL: the arguments themselves are NULL */
    const char *sentence;
};

/* Adds bytes to an address that the call must not follow. */
static void *shifted(const void *data, uintptr_t bytes) {
    return (void *)((uintptr_t)data + bytes);
}

/* A stack given as one pointer an expert, all into the tensor's own memory. */
static mmoe_tensor scattered(struct scene *scene, mmoe_tensor stack) {
    for (int64_t e = 0; e < stack.shape[0]; e++)
        scene->experts[e] = shifted(stack.data, (uintptr_t)(e * stack.stride[0]) * rig_element_bytes(stack.dtype));
    stack.data = NULL;
    stack.experts = scene->experts;
    return stack;
}

/* ---- Bad forwards */

#define FORWARD(name, change)                                                                                          \
    static void name(struct scene *scene, struct rig_call *call) {                                                     \
        mmoe_forward_args *args = &call->forward;                                                                      \
        (void)scene;                                                                                                   \
        change;                                                                                                        \
    }

FORWARD(f_struct_size, args->struct_size -= 8)
FORWARD(f_saved_of_other_layer, args->saved = scene->saved_other)
FORWARD(f_no_x, args->x = (mmoe_tensor){0})
FORWARD(f_no_ids, args->ids = (mmoe_tensor){0})
FORWARD(f_no_weights, args->weights = (mmoe_tensor){0})
FORWARD(f_no_gate, args->gate = (mmoe_tensor){0})
FORWARD(f_no_up, args->up = (mmoe_tensor){0})
FORWARD(f_no_down, args->down = (mmoe_tensor){0})
FORWARD(f_no_y, args->y = (mmoe_tensor){0})
FORWARD(f_x_dims, args->x.dims = 3)
FORWARD(f_x_dims_negative, args->x.dims = -1)
FORWARD(f_x_dims_0, args->x.dims = 0)
FORWARD(f_gate_dims, args->gate.dims = 2)
FORWARD(f_x_dtype, args->x.dtype = MMOE_F32)
FORWARD(f_x_dtype_0, args->x.dtype = (mmoe_dtype)0)
FORWARD(f_y_dtype, args->y.dtype = MMOE_F32)
FORWARD(f_ids_dtype, args->ids.dtype = MMOE_F32)
FORWARD(f_ids_dtype_unknown, args->ids.dtype = (mmoe_dtype)40)
FORWARD(f_weights_dtype, args->weights.dtype = MMOE_BF16)
FORWARD(f_down_dtype, args->down.dtype = MMOE_F32)
FORWARD(f_x_hidden, args->x.shape[1]--)
FORWARD(f_x_tokens_negative, args->x.shape[0] = -1)
FORWARD(f_x_tokens_low, args->x.shape[0]--)
FORWARD(f_ids_tokens, args->ids.shape[0]++)
FORWARD(f_ids_top_k, args->ids.shape[1]++)
FORWARD(f_weights_tokens, args->weights.shape[0] = 0)
FORWARD(f_weights_top_k, args->weights.shape[1] = 1)
FORWARD(f_y_tokens, args->y.shape[0]--)
FORWARD(f_y_hidden, args->y.shape[1]++)
FORWARD(f_gate_experts, args->gate.shape[0] = 9)
FORWARD(f_up_swapped, args->up.shape[1] = HIDDEN; args->up.shape[2] = INTERMEDIATE)
FORWARD(f_down_swapped, args->down.shape[1] = INTERMEDIATE; args->down.shape[2] = HIDDEN)
FORWARD(f_too_many_tokens, args->x.shape[0] = args->ids.shape[0] = args->weights.shape[0] = args->y.shape[0] = 7)
FORWARD(f_x_null, args->x.data = NULL)
FORWARD(f_y_null, args->y.data = NULL)
FORWARD(f_gate_null, args->gate.data = NULL)
FORWARD(f_x_odd, args->x.data = shifted(args->x.data, 1))
FORWARD(f_weights_odd, args->weights.data = shifted(args->weights.data, 2))
FORWARD(f_ids_odd, args->ids.dtype = MMOE_I64; args->ids.data = shifted(args->ids.data, 4))
FORWARD(f_expert_null, args->up = scattered(scene, args->up); scene->experts[1] = NULL)
FORWARD(f_expert_odd, args->up = scattered(scene, args->up); scene->experts[0] = shifted(scene->experts[0], 1))
FORWARD(f_data_and_experts, void *data = args->gate.data; args->gate = scattered(scene, args->gate);
        args->gate.data = data)
FORWARD(f_experts_of_a_matrix, args->x.data = NULL; args->x.experts = scene->experts)
FORWARD(f_stride_far, args->x.stride[0] = INT64_MAX / 4)
FORWARD(f_stride_farthest, args->down.stride[0] = INT64_MIN)
FORWARD(f_strides_far_together, args->up.stride[1] = INT64_MAX / 24; args->up.stride[2] = INT64_MAX / 24)
FORWARD(f_y_repeats, args->y.stride[0] = 0)
FORWARD(f_y_rows_touch, args->y.stride[0] = HIDDEN - 1)
FORWARD(f_y_folds, args->y.stride[0] = 2; args->y.stride[1] = 3)
FORWARD(f_y_is_x, args->y.data = args->x.data)
FORWARD(f_y_is_weights, args->y.data = args->weights.data)
FORWARD(f_y_is_ids, args->y.data = args->ids.data)
FORWARD(f_y_in_gate, args->y.data = shifted(args->gate.data, 2))
FORWARD(f_y_in_expert, args->down = scattered(scene, args->down); args->y.data = scene->experts[1])
FORWARD(f_y_ends_in_x, args->y.data = shifted(args->x.data, -(uintptr_t)(2 * (TOKENS * HIDDEN - 1))))

static const struct bad_call bad_forwards[] = {
    {NULL, "args is NULL, expected a mmoe_forward_args"},
    {f_struct_size, "as mmoe_forward_args_default() sets it"},
    {f_saved_of_other_layer, "saved belongs to layer 1 of its group, expected one made for layer 0"},
    {f_no_x, "x is absent, expected a tensor [T, 8]"},
    {f_no_ids, "ids is absent, expected a tensor [4, 2]"},
    {f_no_weights, "weights is absent, expected a tensor [4, 2]"},
    {f_no_gate, "gate is absent, expected a tensor ["},
    {f_no_up, "up is absent, expected a tensor ["},
    {f_no_down, "down is absent, expected a tensor ["},
    {f_no_y, "y is absent, expected a tensor [4, 8]"},
    {f_x_dims, "x has dims 3, expected 2"},
    {f_x_dims_negative, "x has dims -1, expected 2"},
    {f_x_dims_0, "x has dims 0, expected 2"},
    {f_gate_dims, "gate has dims 2, expected 3"},
    {f_x_dtype, "x has dtype 2 (fp32), expected bf16"},
    {f_x_dtype_0, "x has dtype 0 (unknown), expected bf16"},
    {f_y_dtype, "y has dtype 2 (fp32), expected bf16"},
    {f_ids_dtype, "ids has dtype 2 (fp32), expected int32 or int64"},
    {f_ids_dtype_unknown, "ids has dtype 40 (unknown), expected int32 or int64"},
    {f_weights_dtype, "weights has dtype 1 (bf16), expected fp32"},
    {f_down_dtype, "down has dtype 2 (fp32), expected bf16"},
    {f_x_hidden, "x has shape [4, 7], expected [T, 8]"},
    {f_x_tokens_negative, "x has shape [-1, 8], expected [T, 8]"},
    {f_x_tokens_low, "ids has shape [4, 2], expected [3, 2]"},
    {f_ids_tokens, "ids has shape [5, 2], expected [4, 2]"},
    {f_ids_top_k, "ids has shape [4, 3], expected [4, 2]"},
    {f_weights_tokens, "weights has shape [0, 2], expected [4, 2]"},
    {f_weights_top_k, "weights has shape [4, 1], expected [4, 2]"},
    {f_y_tokens, "y has shape [3, 8], expected [4, 8]"},
    {f_y_hidden, "y has shape [4, 9], expected [4, 8]"},
    {f_gate_experts, "gate has shape [9, 6, 8], expected ["},
    {f_up_swapped, ", 8, 6], expected ["},
    {f_down_swapped, ", 6, 8], expected ["},
    {f_too_many_tokens, "x has 7 tokens, expected at most the group's max_tokens of 6"},
    {f_x_null, "x.data is NULL"},
    {f_y_null, "y.data is NULL"},
    {f_gate_null, "gate.data is NULL"},
    {f_x_odd, "1, expected a multiple of the 2 bytes of an element"},
    {f_weights_odd, "2, expected a multiple of the 4 bytes of an element"},
    {f_ids_odd, "4, expected a multiple of the 8 bytes of an element"},
    {f_expert_null, "up.experts[1] is NULL"},
    {f_expert_odd, "up.experts[0] is 0x"},
    {f_data_and_experts, "gate has both data and experts, expected one of them"},
    {f_experts_of_a_matrix, "x.experts is set, expected NULL"},
    {f_stride_far, "x has stride[0] 2305843009213693951, expected its elements to lie within 2^63 bytes"},
    {f_stride_farthest, "down has stride[0] -9223372036854775808, expected its elements to lie within 2^63 bytes"},
    {f_strides_far_together, "up has stride[2] 384307168202282325, expected its elements to lie within 2^63 bytes"},
    {f_y_repeats, "y has strides [0, 1] for shape [4, 8], expected no two elements at one address"},
    {f_y_rows_touch, "y has strides [7, 1] for shape [4, 8], expected no two elements at one address"},
    {f_y_folds, "y has strides [2, 3] for shape [4, 8], expected no two elements at one address"},
    {f_y_is_x, "overlaps x at 0x"},
    {f_y_is_weights, "overlaps weights at 0x"},
    {f_y_is_ids, "overlaps ids at 0x"},
    {f_y_in_gate, "overlaps gate at 0x"},
    {f_y_in_expert, "overlaps down.experts["},
    {f_y_ends_in_x, "overlaps x at 0x"},
};

/* ---- Bad backwards */

#define BACKWARD(name, change)                                                                                         \
    static void name(struct scene *scene, struct rig_call *call) {                                                     \
        mmoe_backward_args *args = &call->backward;                                                                    \
        (void)scene;                                                                                                   \
        change;                                                                                                        \
    }

BACKWARD(b_struct_size, args->struct_size = 0)
BACKWARD(b_no_saved, args->saved = NULL)
BACKWARD(b_saved_of_other_layer, args->saved = scene->saved_other)
BACKWARD(b_saved_empty, args->saved = scene->saved_empty)
BACKWARD(b_accumulate, args->accumulate = 2)
BACKWARD(b_accumulate_negative, args->accumulate = -1)
BACKWARD(b_no_x, args->x = (mmoe_tensor){0})
BACKWARD(b_x_kept, args->saved = scene->saved_rows)
BACKWARD(b_no_dy, args->dy = (mmoe_tensor){0})
BACKWARD(b_no_gate, args->gate = (mmoe_tensor){0})
BACKWARD(b_no_up, args->up = (mmoe_tensor){0})
BACKWARD(b_no_down, args->down = (mmoe_tensor){0})
BACKWARD(b_tokens, args->x.shape[0] = args->dy.shape[0] = args->dx.shape[0] = args->dweights.shape[0] = 3)
BACKWARD(b_dy_tokens, args->dy.shape[0]++)
BACKWARD(b_dy_dtype, args->dy.dtype = MMOE_F32)
BACKWARD(b_dx_hidden, args->dx.shape[1] = 1)
BACKWARD(b_dx_dtype, args->dx.dtype = MMOE_F32)
BACKWARD(b_dweights_dtype, args->dweights.dtype = MMOE_BF16)
BACKWARD(b_dweights_shape, args->dweights.shape[1] = 5)
BACKWARD(b_dgate_dtype, args->dgate.dtype = MMOE_I32)
BACKWARD(b_dup_dims, args->dup.dims = 2)
BACKWARD(b_ddown_shape, args->ddown.shape[2] = 7)
BACKWARD(b_ddown_null, args->ddown.data = NULL)
BACKWARD(b_dgate_odd, args->dgate.data = shifted(args->dgate.data, 2))
BACKWARD(b_dx_folds, args->dx.stride[1] = 0)
BACKWARD(b_dgate_folds, args->dgate.stride[0] = 1)
BACKWARD(b_dup_far, args->dup.stride[1] = INT64_MIN)
BACKWARD(b_dx_is_dy, args->dx = args->dy)
BACKWARD(b_dx_is_x, args->dx = args->x)
BACKWARD(b_dup_is_dgate, args->dup = args->dgate)
BACKWARD(b_dgate_is_gate, args->dgate = args->gate)
BACKWARD(b_dweights_in_ddown, args->dweights.data = shifted(args->ddown.data, 8))
BACKWARD(b_two_experts_are_one, args->dup = scattered(scene, args->dup); scene->experts[1] = scene->experts[0])

static const struct bad_call bad_backwards[] = {
    {NULL, "args is NULL, expected a mmoe_backward_args"},
    {b_struct_size, "args.struct_size is 0, expected "},
    {b_no_saved, "saved is NULL, expected the saved state of a forward"},
    {b_saved_of_other_layer, "saved belongs to layer 1 of its group, expected one made for layer 0"},
    {b_saved_empty, "saved holds no forward"},
    {b_accumulate, "accumulate is 2, expected 0 .. 1"},
    {b_accumulate_negative, "accumulate is -1, expected 0 .. 1"},
    {b_no_x, "x is absent, expected a tensor [4, 8]"},
    {b_x_kept, "x has dims 2, expected an absent tensor"},
    {b_no_dy, "dy is absent, expected a tensor [4, 8]"},
    {b_no_gate, "gate is absent, expected a tensor ["},
    {b_no_up, "up is absent, expected a tensor ["},
    {b_no_down, "down is absent, expected a tensor ["},
    {b_tokens, "x has shape [3, 8], expected [4, 8]"},
    {b_dy_tokens, "dy has shape [5, 8], expected [4, 8]"},
    {b_dy_dtype, "dy has dtype 2 (fp32), expected bf16"},
    {b_dx_hidden, "dx has shape [4, 1], expected [4, 8]"},
    {b_dx_dtype, "dx has dtype 2 (fp32), expected bf16"},
    {b_dweights_dtype, "dweights has dtype 1 (bf16), expected fp32"},
    {b_dweights_shape, "dweights has shape [4, 5], expected [4, 2]"},
    {b_dgate_dtype, "dgate has dtype 3 (int32), expected bf16 or fp32"},
    {b_dup_dims, "dup has dims 2, expected 3"},
    {b_ddown_shape, ", 8, 7], expected ["},
    {b_ddown_null, "ddown.data is NULL"},
    {b_dgate_odd, "expected a multiple of the 4 bytes of an element"},
    {b_dx_folds, "dx has strides [8, 0] for shape [4, 8], expected no two elements at one address"},
    {b_dgate_folds, "dgate has strides [1, 8, 1] for shape ["},
    {b_dup_far, "dup has stride[1] -9223372036854775808, expected its elements to lie within 2^63 bytes"},
    {b_dx_is_dy, "overlaps dy at 0x"},
    {b_dx_is_x, "overlaps x at 0x"},
    {b_dup_is_dgate, ", expected outputs apart from inputs and from one another"},
    {b_dgate_is_gate, "overlaps gate at 0x"},
    {b_dweights_in_ddown, ", expected outputs apart from inputs and from one another"},
    {b_two_experts_are_one, "overlaps dup.experts["},
};

/* ---- The stage */

/* One kind of call and its bad arguments. */
struct play {
    const struct bad_call *cases;
    int count;
    bool backward;
    struct rig_batch batch;
};

static const struct rig_options plan_kept, rows_kept = {.keep = MMOE_KEEP_ROWS};

static mmoe_status make_call(const struct scene *scene, const struct rig_call *call, bool backward, bool null_args) {
    if (backward)
        return mmoe_backward(scene->layer, null_args ? NULL : &call->backward);
    return mmoe_forward(scene->layer, null_args ? NULL : &call->forward);
}

/* The spoiler's own status and sentence, or what its peers are told of it. */
static bool check_verdict(struct rig_rank *rank, int spoiler_rank, mmoe_status status, const char *sentence) {
    bool own = rank->rank == spoiler_rank;
    RIG_TRY(rank, status == (own ? MMOE_INVALID_ARGUMENT : MMOE_REFUSED), "%s (%s), expected \"%s\"",
            mmoe_status_name(status), mmoe_last_error(), sentence);
    RIG_TRY(rank, strstr(mmoe_last_error(), sentence) != NULL, "\"%s\", expected \"%s\"", mmoe_last_error(), sentence);
    char culprit[24];
    snprintf(culprit, sizeof culprit, "rank %d", spoiler_rank);
    RIG_TRY(rank, own || strstr(mmoe_last_error(), culprit) != NULL, "\"%s\" doesn't name %s", mmoe_last_error(),
            culprit);
    return true;
}

static bool play_case(struct rig_rank *rank, struct scene *scene, struct play *play, int index) {
    const struct bad_call *bad = &play->cases[index];
    int spoiler_rank = index % rank->world;
    bool spoils = rank->rank == spoiler_rank;
    struct rig_call call = rig_call_make(rank, &play->batch, &plan_kept, scene->saved, 0xff);
    if (spoils && bad->spoil != NULL)
        bad->spoil(scene, &call);
    mmoe_status status = make_call(scene, &call, play->backward, spoils && bad->spoil == NULL);
    bool good = check_verdict(rank, spoiler_rank, status, bad->sentence);
    RIG_TRY(rank, rig_call_untouched(&call), "a refused call wrote something (\"%s\")", bad->sentence);
    rig_call_free(&call);
    return good && rig_step(rank, scene->layer, scene->saved, &play->batch, &plan_kept, 0xff);
}

static void play_on_a_rank(struct rig_rank *rank, void *context) {
    struct play *play = context;
    struct scene scene = {0};
    RIG_OK(rank, mmoe_layer_create(rank->group, &play->batch.layer, &scene.layer));
    RIG_OK(rank, mmoe_layer_create(rank->group, &play->batch.layer, &scene.other_layer));
    RIG_OK(rank, mmoe_saved_create(scene.layer, MMOE_KEEP_PLAN, &scene.saved));
    RIG_OK(rank, mmoe_saved_create(scene.layer, MMOE_KEEP_ROWS, &scene.saved_rows));
    RIG_OK(rank, mmoe_saved_create(scene.layer, MMOE_KEEP_PLAN, &scene.saved_empty));
    RIG_OK(rank, mmoe_saved_create(scene.other_layer, MMOE_KEEP_PLAN, &scene.saved_other));
    if (!rig_step(rank, scene.layer, scene.saved_rows, &play->batch, &rows_kept, 0xff) ||
        !rig_step(rank, scene.layer, scene.saved, &play->batch, &plan_kept, 0xff))
        return;
    for (int i = 0; i < play->count; i++)
        if (!play_case(rank, &scene, play, i))
            return;
    mmoe_saved_destroy(&scene.saved);
    mmoe_saved_destroy(&scene.saved_rows);
    mmoe_saved_destroy(&scene.saved_empty);
    mmoe_saved_destroy(&scene.saved_other);
    mmoe_layer_destroy(&scene.layer);
    mmoe_layer_destroy(&scene.other_layer);
}

/* At W = 1, and at W = 2, where the ranks take turns at being wrong. The good calls between are compared too. */
static void play_all(const struct bad_call *cases, int count, bool backward) {
    const int64_t tokens[] = {TOKENS, TOKENS};
    mmoe_layer_config layer = rig_layer(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K);
    for (int world = 1; world <= 2; world++) {
        struct play play = {.cases = cases, .count = count, .backward = backward};
        play.batch = rig_batch_make(&layer, world, tokens, RIG_UNIFORM, 1);
        struct rig_world stage = rig_world_make(world, RIG_THREADS, MOST_TOKENS, HIDDEN, TOP_K, EXPERTS);
        rig_world_run(&stage, play_on_a_rank, &play);
        compare_with_undisturbed(&play.batch, &plan_kept, 1);
        rig_batch_free(&play.batch);
    }
}

static void bad_forwards_are_refused_on_every_rank(void **state) {
    (void)state;
    play_all(bad_forwards, sizeof bad_forwards / sizeof bad_forwards[0], false);
}

static void bad_backwards_are_refused_on_every_rank(void **state) {
    (void)state;
    play_all(bad_backwards, sizeof bad_backwards / sizeof bad_backwards[0], true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_forwards_are_refused_on_every_rank),
        cmocka_unit_test(bad_backwards_are_refused_on_every_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
