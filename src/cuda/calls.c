/* Beginning and end of a call; see calls.h. */
#include "cuda/calls.h"

/* A call reads its demand back, which a captured stream can't do. */
static mmoe_status check_stream(const struct mm_cuda_call *call) {
    int capturing = MM_CU_CAPTURE_NONE;
    mmoe_status status =
        MM_CU(&call->gpu->driver, cuStreamIsCapturing, "looking at the stream", call->stream, &capturing);
    if (status == MMOE_OK && capturing != MM_CU_CAPTURE_NONE) {
        status = mm_fail(MMOE_UNSUPPORTED, "stream is being captured, expected one that runs: the host reads how many "
                                           "rows a call needs");
    }
    return status;
}

mmoe_status mm_cuda_begin(struct mm_cuda_call *call, struct mmoe_layer *layer, enum mm_call_kind kind, int64_t tokens,
                          void *stream, bool timed) {
    const struct mm_cuda_group *cuda = layer->group->backend_state;
    mmoe_status status = mm_gpu_enter(&cuda->gpu);
    if (status != MMOE_OK) {
        return mm_call_refuse(layer->group, kind, status);
    }
    status = mm_call_begin(layer->group);
    if (status != MMOE_OK) {
        mm_gpu_leave(&cuda->gpu);
        return status;
    }
    status = mm_cuda_call_start(call, layer, kind, tokens, stream, timed);
    if (status == MMOE_OK) {
        status = check_stream(call);
    }
    return status == MMOE_OK ? MMOE_OK : mm_cuda_refuse(call, status);
}

mmoe_status mm_cuda_meet(const struct mm_cuda_call *call) {
    struct mm_header header = {.tokens = call->tokens, .status = MMOE_OK};
    mm_call_agreement(call->group, call->kind, &header.agreed);
    mmoe_status status = mm_call_post(call->group, &header);
    return status == MMOE_OK ? mm_call_meet(call->group) : status;
}

mmoe_status mm_cuda_refuse(const struct mm_cuda_call *call, mmoe_status status) {
    status = mm_call_post_refusal(call->group, call->kind, status);
    mm_cuda_end(call);
    return status;
}

void mm_cuda_end(const struct mm_cuda_call *call) {
    mm_call_end(call->group);
    mm_gpu_leave(call->gpu);
}
