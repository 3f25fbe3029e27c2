/* The devices' exchange from the host's side; see exchange.h. */
#include "cuda/exchange.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "cuda/inputs.h"
#include "group/hello.h"
#include "group/wait.h"

_Static_assert(sizeof(struct mm_agreement) == CALL_AGREED_WORDS * sizeof(uint32_t), "what ranks agree on has grown");
_Static_assert(offsetof(struct call_header, agreed) == 0, "words of a header are counted from what ranks agree on");
_Static_assert(CALL_REASON_BYTES == MM_REASON_BYTES, "reasons differ in length");
_Static_assert(CALL_MAX_WORLD == MMOE_MAX_WORLD, "the most ranks differ");
_Static_assert(sizeof(struct mm_hello) == CALL_HELLO_WORDS * sizeof(uint32_t), "what a rank says of itself has grown");

#define NS_PER_MS UINT64_C(1000000)

mm_cu_pointer mm_cuda_segment(const struct mm_cuda_call *call, int rank) {
    return call->cuda->shared.base[rank];
}

struct call_group mm_cuda_call_group(const struct mm_cuda_call *call) {
    const mmoe_group_config *config = &call->group->config;
    struct call_group group = {
        .world = (uint32_t)call->group->world,
        .rank = (uint32_t)call->group->rank,
        .arrive_ns = (uint64_t)config->arrive_timeout_ms * NS_PER_MS,
        .progress_ns = (uint64_t)config->progress_timeout_ms * NS_PER_MS,
        .state = call->cuda->workspace.state,
        .told = call->cuda->told,
    };
    for (int r = 0; r < call->group->world; r++) {
        group.segment[r] = mm_at(mm_cuda_segment(call, r));
    }
    return group;
}

/* ---- Queueing ---- */

/* A kernel of one CTA. */
static mmoe_status launch_one(const struct mm_cuda_call *call, enum mm_cuda_kernel which, const void *params) {
    const struct mm_cuda_grid grid = {.ctas = 1, .threads = CALL_THREADS, .overlapping = which == MM_KERNEL_CALL_MEET};
    return mm_cuda_launch(call, which, grid, params);
}

/* Ranks in memory of the caller's are compared by their devices. */
static mmoe_status launch_open(const struct mm_cuda_call *call) {
    struct open_params params = {.group = mm_cuda_call_group(call), .introduces = call->cuda->shared.adopted};
    if (params.introduces) {
        struct mm_hello hello = mm_hello_of(call->group, 0);
        hello.front.rank = 0;
        memcpy(params.hello, &hello, sizeof hello);
    }
    return launch_one(call, MM_KERNEL_CALL_OPEN, &params);
}

static mmoe_status launch_meet(const struct mm_cuda_call *call) {
    const struct call_params params = {.group = mm_cuda_call_group(call)};
    return launch_one(call, MM_KERNEL_CALL_MEET, &params);
}

/* Numbers of calls are the devices' own: a replayed graph repeats what is written here. */
static struct call_header header_of(const struct mm_cuda_call *call) {
    struct call_header header = {.tokens = (int32_t)call->tokens};
    struct mm_agreement agreed;
    mm_layer_agreement(call->layer, call->kind, &agreed);
    agreed.call = 0;
    agreed.recompute = call->recompute;
    memcpy(header.agreed, &agreed, sizeof agreed);
    return header;
}

static struct enter_params enter_params_of(const struct mm_cuda_call *call) {
    const struct mm_cuda_workspace *workspace = &call->cuda->workspace;
    const struct mm_layout *layout = &call->cuda->layout;
    const uint64_t rank = (uint64_t)call->group->rank;
    return (struct enter_params){
        .group = mm_cuda_call_group(call),
        .header = header_of(call),
        .top_k = call->top_k,
        .experts = (uint32_t)call->layer->config.experts,
        .check_weights = (uint32_t)call->layer->config.check_weights,
        .ids_slot = layout->ids + rank * layout->ids_stride,
        .weights_slot = layout->weights + rank * layout->weights_stride,
        .first_faults = workspace->first_faults,
        .ctas_done = workspace->ctas_done,
    };
}

static unsigned enter_ctas(const struct mm_cuda_call *call) {
    const unsigned ctas = 2 * (unsigned)call->gpu->device.multiprocessors;
    return ctas < MM_CUDA_ENTER_CTAS ? ctas : MM_CUDA_ENTER_CTAS;
}

/* A call without slots to write has only its header to send. */
static mmoe_status launch_enter(const struct mm_cuda_call *call, const struct enter_params *params) {
    const struct mm_cuda_grid grid = {.ctas = params->tokens > 0 ? enter_ctas(call) : 1,
                                      .threads = ENTER_THREADS,
                                      .shared_bytes = ENTER_SHARED_BYTES,
                                      .overlapping = true};
    mmoe_status status = mm_cuda_launch(call, MM_KERNEL_CALL_ENTER, grid, params);
    return status == MMOE_OK ? launch_meet(call) : status;
}

void mm_cuda_bring(struct mm_cuda_call *call, const mmoe_tensor *rows, size_t offset) {
    const bool like_slot = rows->stride[1] == 1 && rows->stride[0] == call->hidden && (uintptr_t)rows->data % 16 == 0;
    call->slots[call->slot_count++] =
        (struct mm_cuda_slot){rows, offset, like_slot ? (mm_cu_pointer)(uintptr_t)rows->data : 0};
}

/* Whether a slot is read at all. */
static bool copies_rows(const struct mm_cuda_call *call) {
    bool elsewhere = call->group->world > 1;
    for (uint32_t i = 0; i < call->slot_count; i++) {
        elsewhere |= call->slots[i].own == 0;
    }
    return elsewhere;
}

/* Beside the call's stream, from where the slots may be written on. */
static mmoe_status launch_copy(const struct mm_cuda_call *call) {
    static const char doing[] = "copying tokens beside the call";
    const struct mm_driver *driver = &call->gpu->driver;
    const struct mm_cuda_group *cuda = call->cuda;
    struct copy_params params = {
        .group = mm_cuda_call_group(call),
        .count = call->slot_count,
        .tokens = call->tokens,
        .hidden = call->hidden,
        .ctas_done = cuda->workspace.ctas_copied,
    };
    for (uint32_t i = 0; i < call->slot_count; i++) {
        params.copies[i] = (struct slot_copy){mm_strided(call->slots[i].from), call->slots[i].offset};
    }
    const struct mm_cuda_grid grid = {.ctas = enter_ctas(call), .threads = ENTER_THREADS};
    struct mm_cuda_call beside = *call;
    beside.stream = cuda->side;
    mmoe_status status = MM_CU(driver, cuEventRecord, doing, cuda->opened, call->stream);
    if (status == MMOE_OK) {
        status = MM_CU(driver, cuStreamWaitEvent, doing, cuda->side, cuda->opened, 0);
    }
    if (status == MMOE_OK) {
        status = mm_cuda_launch(&beside, MM_KERNEL_CALL_COPY, grid, &params);
    }
    return status == MMOE_OK ? MM_CU(driver, cuEventRecord, doing, cuda->copied, cuda->side) : status;
}

static mmoe_status exchange(const struct mm_cuda_call *call, const struct enter_params *params) {
    mmoe_status status = launch_open(call);
    if (status == MMOE_OK && copies_rows(call)) {
        status = launch_copy(call);
    }
    return status == MMOE_OK ? launch_enter(call, params) : status;
}

mmoe_status mm_cuda_exchange_forward(const struct mm_cuda_call *call, const mmoe_forward_args *args) {
    struct enter_params params = enter_params_of(call);
    params.ids = mm_strided(&args->ids);
    params.weights = mm_strided(&args->weights);
    params.wide = args->ids.dtype == MMOE_I64;
    params.tokens = call->tokens;
    return exchange(call, &params);
}

mmoe_status mm_cuda_exchange_backward(const struct mm_cuda_call *call, const mmoe_backward_args *args) {
    struct enter_params params = enter_params_of(call);
    params.forward_call = &call->plan->arrays.tables.all->call;
    params.forward_word = offsetof(struct mm_agreement, forward_call) / sizeof(uint32_t);
    params.header.wants_dx = mm_wanted(&args->dx);
    params.header.wants_dw = mm_wanted(&args->dweights);
    return exchange(call, &params);
}

mmoe_status mm_cuda_await_copy(const struct mm_cuda_call *call) {
    return copies_rows(call) ? MM_CU(&call->gpu->driver, cuStreamWaitEvent, "awaiting the copy of the tokens",
                                     call->stream, call->cuda->copied, 0)
                             : MMOE_OK;
}

mmoe_status mm_cuda_exchange_refusal(const struct mm_cuda_call *call, mmoe_status status) {
    char text[MM_ERROR_BYTES];
    struct enter_params params = enter_params_of(call);
    snprintf(text, sizeof text, "%s", mmoe_last_error());
    snprintf(params.header.reason, sizeof params.header.reason, "%.*s", CALL_REASON_BYTES - 1, text);
    params.header.status = (int32_t)status;
    params.header.tokens = 0;
    mmoe_status failed = launch_open(call);
    if (failed == MMOE_OK) {
        failed = launch_enter(call, &params);
    }
    return failed == MMOE_OK ? mm_fail(status, "%s", text) : mm_cuda_give_up(call, failed);
}

/* The hosts tell why, and break their groups when they look; the devices end what waits. A device that can't even tell
 * that is given up by its peers in time. What is only kept for a graph has not begun. */
mmoe_status mm_cuda_give_up(const struct mm_cuda_call *call, mmoe_status status) {
    struct mm_cuda_call now = *call;
    if (call->captured) {
        return status;
    }
    mm_call_abort(call->group, status);
    now.stream = call->cuda->orders;
    const struct call_params params = {.group = mm_cuda_call_group(call)};
    launch_one(&now, MM_KERNEL_CALL_STOP, &params);
    return mm_fail(status, "%s", call->group->broken_text);
}
