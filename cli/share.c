/* One rank's tensors and calls. */
#include "share.h"

#include <stdlib.h>
#include <string.h>

#include "checksum.h"
#include "message.h"

int64_t share_count(const struct share *share, enum tensor tensor) {
    return tensor_of_experts(tensor) ? problem_local_experts(share->problem)
                                     : share->problem->tokens[share->rank->index];
}

int64_t share_first(const struct share *share, enum tensor tensor) {
    int rank = share->rank->index;
    return tensor_of_experts(tensor) ? rank * problem_local_experts(share->problem) : share->problem->first[rank];
}

int64_t share_elements(const struct share *share, enum tensor tensor) {
    return share_count(share, tensor) * tensor_width(share->problem, tensor);
}

static size_t tensor_bytes(const struct share *share, enum tensor tensor) {
    return (size_t)share_elements(share, tensor) * npy_type_bytes(tensor_type(tensor));
}

/* A forward alone has no gradients. */
static bool is_needed(const struct share *share, enum tensor tensor) {
    return tensor <= TENSOR_Y || !share->problem->options->forward;
}

static int make_tensor(struct share *share, enum tensor tensor) {
    size_t bytes = tensor_bytes(share, tensor);
    share->data[tensor] = malloc(bytes + 1); /* never NULL for no bytes */
    if (!share->data[tensor])
        return rank_fail(share->rank, EXIT_RUN, "no memory for %s, %zu bytes", tensor_name(tensor), bytes);
    if ((int)tensor < INPUTS)
        problem_fill(share->problem, tensor, share_first(share, tensor), share_count(share, tensor),
                     share->data[tensor]);
    else
        memset(share->data[tensor], 0xff, bytes); /* NaN, so that what is not written shows */
    return 0;
}

static bool on_device(const struct share *share) {
    return mmoe_group_device(share->rank->group) >= 0;
}

static void place_tensor(struct share *share, enum tensor tensor) {
    mmoe_group *group = share->rank->group;
    size_t bytes = tensor_bytes(share, tensor);
    share->placed[tensor] = share->data[tensor];
    if (!on_device(share))
        return;
    mmoe_status status = mmoe_device_alloc(group, bytes, &share->placed[tensor]);
    if (status == MMOE_OK)
        status = mmoe_device_write(group, share->placed[tensor], share->data[tensor], bytes);
    rank_fail_status(share->rank, status);
}

void share_fetch(struct share *share) {
    for (int t = INPUTS; t < TENSORS && on_device(share) && !share->rank->code; t++)
        if (is_needed(share, (enum tensor)t))
            rank_fail_status(share->rank, mmoe_device_read(share->rank->group, share->data[t], share->placed[t],
                                                           tensor_bytes(share, (enum tensor)t)));
}

int share_swap_outputs(struct share *share) {
    for (int t = INPUTS; t < TENSORS && !share->rank->code; t++) {
        void *before = share->placed[t];
        share->placed[t] = share->others[t];
        share->others[t] = before;
        if (is_needed(share, (enum tensor)t) && !share->placed[t]) {
            memset(share->data[t], 0xff, tensor_bytes(share, (enum tensor)t));
            place_tensor(share, (enum tensor)t);
        }
    }
    return share->rank->code;
}

uint64_t share_checksum(const struct share *share, enum tensor tensor) {
    int64_t first = share_first(share, tensor) * tensor_width(share->problem, tensor);
    int64_t count = share_elements(share, tensor);
    const void *data = share->data[tensor];
    return npy_type_bytes(tensor_type(tensor)) == 2 ? checksum_16(data, first, count) : checksum_32(data, first, count);
}

int share_open(struct share *share, const struct problem *problem, struct rank *rank) {
    *share = (struct share){.problem = problem, .rank = rank};
    progress_label(rank_progress(rank), "making the data", 0);
    for (int t = 0; t < TENSORS && !rank->code; t++)
        if (is_needed(share, (enum tensor)t))
            make_tensor(share, (enum tensor)t);
    for (int t = 0; t < TENSORS && !rank->code; t++)
        if (is_needed(share, (enum tensor)t))
            place_tensor(share, (enum tensor)t);
    if (!rank->code)
        rank_fail_status(rank, mmoe_layer_create(rank->group, &problem->layer, &share->layer));
    if (!rank->code)
        rank_fail_status(rank, mmoe_saved_create(share->layer, problem->options->keep, &share->saved));
    return rank->code;
}

void share_close(struct share *share) {
    mmoe_saved_destroy(&share->saved);
    mmoe_layer_destroy(&share->layer);
    for (int t = 0; t < TENSORS; t++) {
        if (on_device(share)) {
            mmoe_device_free(share->rank->group, &share->placed[t]);
            mmoe_device_free(share->rank->group, &share->others[t]);
        }
        free(share->data[t]);
    }
}

static mmoe_tensor view(const struct share *share, enum tensor tensor) {
    static const mmoe_dtype dtypes[] = {
        [NPY_F32] = MMOE_F32, [NPY_I32] = MMOE_I32, [NPY_I64] = MMOE_I64, [NPY_U16] = MMOE_BF16};
    int64_t shape[3];
    int dims = tensor_shape(share->problem, tensor, share_count(share, tensor), shape);
    mmoe_dtype dtype = dtypes[tensor_type(tensor)];
    return dims == 2 ? mmoe_matrix(share->placed[tensor], dtype, shape[0], shape[1])
                     : mmoe_stack(share->placed[tensor], dtype, shape[0], shape[1], shape[2]);
}

static mmoe_forward_args forward_args(struct share *share) {
    mmoe_forward_args args = mmoe_forward_args_default();
    args.x = view(share, TENSOR_X);
    args.ids = view(share, TENSOR_IDS);
    args.weights = view(share, TENSOR_WEIGHTS);
    args.gate = view(share, TENSOR_GATE);
    args.up = view(share, TENSOR_UP);
    args.down = view(share, TENSOR_DOWN);
    args.y = view(share, TENSOR_Y);
    args.saved = share->saved;
    args.report = &share->forward;
    return args;
}

int share_forward(struct share *share) {
    mmoe_forward_args args = forward_args(share);
    return rank_fail_status(share->rank, mmoe_forward(share->layer, &args));
}

int share_forward_traced(struct share *share, mmoe_trace **trace) {
    mmoe_forward_args args = forward_args(share);
    return rank_fail_status(share->rank,
                            mmoe_forward_traced(share->layer, &args, share->problem->options->records, trace));
}

static mmoe_backward_args backward_args(struct share *share) {
    mmoe_backward_args args = mmoe_backward_args_default();
    args.saved = share->saved;
    if (share->problem->options->keep == MMOE_KEEP_PLAN)
        args.x = view(share, TENSOR_X);
    args.dy = view(share, TENSOR_DY);
    args.gate = view(share, TENSOR_GATE);
    args.up = view(share, TENSOR_UP);
    args.down = view(share, TENSOR_DOWN);
    args.dx = view(share, TENSOR_DX);
    args.dweights = view(share, TENSOR_DW);
    args.dgate = view(share, TENSOR_DGATE);
    args.dup = view(share, TENSOR_DUP);
    args.ddown = view(share, TENSOR_DDOWN);
    args.report = &share->backward;
    return args;
}

int share_backward(struct share *share) {
    mmoe_backward_args args = backward_args(share);
    return rank_fail_status(share->rank, mmoe_backward(share->layer, &args));
}

int share_backward_traced(struct share *share, mmoe_trace **trace) {
    mmoe_backward_args args = backward_args(share);
    return rank_fail_status(share->rank,
                            mmoe_backward_traced(share->layer, &args, share->problem->options->records, trace));
}

bool share_both(struct share *share) {
    struct rank *rank = share->rank;
    if (!rank_all_well(rank))
        return false;
    progress_label(rank_progress(rank), "forward", 0);
    share_forward(share);
    if (!rank_all_well(rank))
        return false;
    if (!share->problem->options->forward) {
        progress_label(rank_progress(rank), "backward", 0);
        share_backward(share);
    }
    share_fetch(share);
    return rank_all_well(rank);
}
