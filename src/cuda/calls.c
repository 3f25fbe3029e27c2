/* Beginning and end of a call; see calls.h. */
#include "cuda/calls.h"

#include <stdio.h>

#include "cuda/exchange.h"
#include "cuda/failure.h"
#include "cuda/listen.h"

/* Whether the call's work is only kept, for a graph. With a growing capacity a call reads its demand back, which a
 * captured stream can't do. */
static mmoe_status check_stream(struct mm_cuda_call *call) {
    int capturing = MM_CU_CAPTURE_NONE;
    mmoe_status status =
        MM_CU(&call->gpu->driver, cuStreamIsCapturing, "looking at the stream", call->stream, &capturing);
    call->captured = capturing != MM_CU_CAPTURE_NONE;
    call->cuda->graphs |= call->captured;
    if (status == MMOE_OK && call->captured && call->layer->config.capacity_policy != MMOE_CAPACITY_FIXED) {
        status = mm_fail(MMOE_UNSUPPORTED, "stream is being captured, expected one that runs, or a layer of fixed "
                                           "capacity: the host reads how many rows a call needs");
    }
    if (status == MMOE_OK && call->captured && call->timed) {
        status = mm_fail(MMOE_INVALID_ARGUMENT, "report is wanted of a call that is captured, expected NULL");
    }
    return status;
}

mmoe_status mm_cuda_follow_calls(const struct mm_cuda_group *cuda, mm_cu_stream stream) {
    return cuda->any_call
               ? MM_CU(&cuda->gpu.driver, cuStreamWaitEvent, "waiting for the calls before", stream, cuda->call_ends, 0)
               : MMOE_OK;
}

/* Calls of one group are serial, whatever streams they are in. A stream's handle tells nothing: it may be that of a
 * newer stream. */
static mmoe_status await_call_before(const struct mm_cuda_call *call) {
    return call->captured ? MMOE_OK : mm_cuda_follow_calls(call->cuda, call->stream);
}

static mmoe_status note_end(const struct mm_cuda_call *call) {
    struct mm_cuda_group *cuda = call->cuda;
    if (call->captured) {
        return MMOE_OK;
    }
    cuda->any_call = true;
    return MM_CU(&cuda->gpu.driver, cuEventRecord, "noting the end of a call", cuda->call_ends, call->stream);
}

/* A failure that broke the group ends this call; another one is told by it. */
static mmoe_status look_back(struct mm_cuda_call *call) {
    mmoe_status status = mm_cuda_failure(call->group);
    if (status == MMOE_OK || call->group->broken != MMOE_OK) {
        return status;
    }
    call->earlier = status;
    snprintf(call->earlier_text, sizeof call->earlier_text, "%s", mmoe_last_error());
    return MMOE_OK;
}

/* Replays of captured calls took numbers too. */
static void catch_up(const struct mm_cuda_call *call) {
    const uint32_t ended = __atomic_load_n(&call->cuda->told->ended, __ATOMIC_ACQUIRE);
    if ((int32_t)(ended + 1 - call->group->call) > 0) {
        call->group->call = ended + 1;
    }
}

/* ---- Gradients that a call before adds to ---- */

static bool may_be_adding(const struct mm_cuda_group *cuda) {
    return cuda->adds && cuda->gpu.driver.cuEventQuery(cuda->call_ends) == MM_CUDA_ERROR_NOT_READY;
}

/* The group has broken just now, with the thread's error text, and with it ends a call that was queued before. A device
 * that has told of a stop knows what was added; what has ended without one has added all. */
static mmoe_status break_with_sums(const struct mm_cuda_call *call, mmoe_status status) {
    struct mmoe_group *group = call->group;
    const bool under_way = may_be_adding(call->cuda), stopped = mm_cuda_has_stopped(call->cuda);
    const bool spoilt = stopped ? call->cuda->told->spoilt != 0 : under_way;
    if (!call->adds && !call->cuda->stop_seen && spoilt) {
        status = mm_cuda_spoilt(status, stopped);
        snprintf(group->broken_text, sizeof group->broken_text, "%s", mmoe_last_error());
    }
    call->cuda->adds = false;
    return status;
}

/* ---- Beginning and end ---- */

/* When the group has broken just now, by what another rank's host has said, this device's kernels may still wait. */
static mmoe_status end_waits(const struct mm_cuda_call *call, mmoe_status status) {
    char text[MM_ERROR_BYTES];
    snprintf(text, sizeof text, "%s", mmoe_last_error());
    if (!call->broke || mm_gpu_enter(call->gpu) != MMOE_OK) {
        return mm_fail(status, "%s", text);
    }
    status = break_with_sums(call, status);
    mm_cuda_end_waits(call->group);
    mm_gpu_leave(call->gpu);
    return status;
}

mmoe_status mm_cuda_begin(struct mm_cuda_call *call, struct mmoe_layer *layer, enum mm_call_kind kind, int64_t tokens,
                          void *stream, bool timed) {
    const struct mm_cuda_group *cuda = layer->group->backend_state;
    *call = mm_cuda_call_of(layer, kind, tokens, stream, timed);
    mmoe_status status = mm_call_take(layer->group);
    if (status != MMOE_OK) {
        call->broke = status != MMOE_BROKEN;
        return end_waits(call, status);
    }
    catch_up(call);
    status = mm_gpu_enter(&cuda->gpu);
    if (status != MMOE_OK) {
        mm_call_abort(layer->group, status);
        mm_call_give(layer->group);
        return status;
    }
    status = mm_cuda_phases_begin(call);
    if (status == MMOE_OK) {
        status = look_back(call);
    }
    if (status == MMOE_OK) {
        status = check_stream(call);
    }
    if (status == MMOE_OK && !call->captured) {
        status = mm_cuda_check_lives(call->group);
    }
    if (status == MMOE_OK) {
        status = await_call_before(call);
    }
    call->broke = call->group->broken != MMOE_OK;
    if (status == MMOE_OK) {
        return MMOE_OK;
    }
    return call->broke ? mm_cuda_end(call, status) : mm_cuda_refuse(call, status);
}

mmoe_status mm_cuda_refuse(struct mm_cuda_call *call, mmoe_status status) {
    if (!call->captured) {
        status = mm_cuda_exchange_refusal(call, status);
    }
    return mm_cuda_end(call, status);
}

mmoe_status mm_cuda_refuse_whole(struct mmoe_layer *layer, enum mm_call_kind kind, void *stream, mmoe_status status) {
    struct mm_cuda_call call;
    char text[MM_ERROR_BYTES];
    snprintf(text, sizeof text, "%s", mmoe_last_error());
    mmoe_status begun = mm_cuda_begin(&call, layer, kind, 0, stream, false);
    if (begun != MMOE_OK) {
        return begun;
    }
    mm_fail(status, "%s", text);
    return mm_cuda_refuse(&call, status);
}

/* A failure of this call is told, and that of an earlier one with it or alone. */
static mmoe_status tell(const struct mm_cuda_call *call, mmoe_status status, const char *text) {
    if (call->earlier == MMOE_OK) {
        return status == MMOE_OK ? MMOE_OK : mm_fail(status, "%s", text);
    }
    return status == MMOE_OK ? mm_fail(call->earlier, "%s", call->earlier_text)
                             : mm_fail(status, "%s; before it: %s", text, call->earlier_text);
}

mmoe_status mm_cuda_end(struct mm_cuda_call *call, mmoe_status status) {
    char text[MM_ERROR_BYTES];
    if (call->group->broken != MMOE_OK) {
        status = break_with_sums(call, status);
    } else if (!call->captured) {
        call->cuda->adds = call->adds || may_be_adding(call->cuda);
    }
    snprintf(text, sizeof text, "%s", mmoe_last_error());
    mmoe_status noted = note_end(call);
    if (status == MMOE_OK && noted != MMOE_OK) {
        status = mm_cuda_give_up(call, noted);
        snprintf(text, sizeof text, "%s", mmoe_last_error());
    }
    status = tell(call, status, text);
    call->group->call -= call->captured; /* whoever replays it takes a number */
    mm_gpu_leave(call->gpu);
    mm_call_give(call->group);
    return status;
}
