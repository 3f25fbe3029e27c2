/* Waiting and listening; see listen.h. */
#include "cuda/listen.h"

#include <stddef.h>
#include <time.h>

#include "base/clock.h"
#include "group/call.h"
#include "group/wait.h"

#define SPIN_SECONDS 2e-3 /* most plans are made by then */
#define NAP_NS 50000L
#define LOOK_SECONDS 1e-3 /* between two looks for aborts, */
#define LIFE_SECONDS 0.05 /* and for lives, each of which is a system call for every rank */

/* A rank that has left in good order has done all that was awaited from it: what it did comes soon. */
#define GRACE_SECONDS 1.0

struct listener {
    struct mmoe_group *group;
    enum mm_step at;
    double begun, looked, looked_for_lives;
    double missed; /* since when a rank is gone; 0: none is */
};

static int gone_rank(const struct mmoe_group *group) {
    for (int r = 0; r < group->world; r++) {
        if (r != group->rank && !mm_memory_alive(group->memory, r)) {
            return r;
        }
    }
    return -1;
}

static mmoe_status lose(struct mmoe_group *group, int gone, enum mm_step at) {
    mm_fail(MMOE_PEER_LOST, "rank %d has died or left the group: rank %d was %s from it in call %u", gone, group->rank,
            mm_step_name(at), group->call);
    return mm_call_break(group, MMOE_PEER_LOST);
}

static mmoe_status look_for_lives(struct listener *listener, double now) {
    struct mmoe_group *group = listener->group;
    if (now - listener->looked_for_lives < LIFE_SECONDS) {
        return MMOE_OK;
    }
    listener->looked_for_lives = now;
    const int gone = gone_rank(group);
    if (gone < 0) {
        return MMOE_OK;
    }
    if (listener->missed == 0) {
        listener->missed = now;
    }
    return now - listener->missed < GRACE_SECONDS ? MMOE_OK : lose(group, gone, listener->at);
}

static mmoe_status listen(struct listener *listener, bool all_needed) {
    const double now = mm_now();
    if (now - listener->looked < LOOK_SECONDS) {
        return MMOE_OK;
    }
    listener->looked = now;
    mmoe_status status = mm_call_check(listener->group);
    return status == MMOE_OK && all_needed ? look_for_lives(listener, now) : status;
}

static void nap(const struct listener *listener) {
    const struct timespec time = {.tv_nsec = NAP_NS};
    if (mm_now() - listener->begun > SPIN_SECONDS) {
        nanosleep(&time, NULL);
    }
}

mmoe_status mm_cuda_await(struct mmoe_group *group, mm_cu_event event, enum mm_step at, bool all_needed) {
    const struct mm_cuda_group *cuda = group->backend_state;
    const double now = mm_now();
    struct listener listener = {.group = group, .at = at, .begun = now, .looked = now, .looked_for_lives = now};
    for (;;) {
        const mm_cu_result result = cuda->gpu.driver.cuEventQuery(event);
        if (result != MM_CUDA_ERROR_NOT_READY) {
            return mm_driver_status(&cuda->gpu.driver, result, "cuEventQuery", mm_step_name(at));
        }
        mmoe_status status = listen(&listener, all_needed);
        if (status != MMOE_OK) {
            mm_cuda_end_waits(group);
            return status;
        }
        nap(&listener);
    }
}

static mmoe_status read_word(const struct mm_cuda_group *cuda, mm_cu_pointer from, uint32_t *word) {
    static const char doing[] = "looking whether a rank has come to a call";
    mmoe_status status = mm_copy_to_host(&cuda->gpu, word, from, sizeof *word, cuda->orders, doing);
    return status == MMOE_OK ? MM_CU(&cuda->gpu.driver, cuStreamSynchronize, doing, cuda->orders) : status;
}

/* To the call behind the last one, which has ended: it refused it, and left. */
static mmoe_status look_for_ready(const struct mmoe_group *group, int rank, bool *has_come) {
    const struct mm_cuda_group *cuda = group->backend_state;
    const size_t flag = offsetof(struct call_control, ready) + (size_t)rank * sizeof(struct call_flag);
    uint32_t last = 0, ready = 0;
    mmoe_status status = read_word(cuda, (mm_cu_pointer)(uintptr_t)&cuda->workspace.state->call, &last);
    if (status == MMOE_OK) {
        status = read_word(cuda, cuda->shared.base[group->rank] + flag, &ready);
    }
    *has_come = (int32_t)(ready - last) > 0;
    return status;
}

/* What it did for the calls before may still be on its way here, or missing. */
mmoe_status mm_cuda_check_lives(struct mmoe_group *group) {
    const struct mm_cuda_group *cuda = group->backend_state;
    const int gone = gone_rank(group);
    bool has_come = false;
    if (gone < 0) {
        return MMOE_OK;
    }
    mmoe_status status = cuda->any_call ? mm_cuda_await(group, cuda->call_ends, MM_STEP_MEET, true) : MMOE_OK;
    if (status == MMOE_OK) {
        status = look_for_ready(group, gone, &has_come);
    }
    return status == MMOE_OK && !has_come ? lose(group, gone, MM_STEP_MEET) : status;
}

void mm_cuda_end_waits(const struct mmoe_group *group) {
    const struct mm_cuda_group *cuda = group->backend_state;
    const mm_cu_pointer stopped = cuda->shared.base[group->rank] + offsetof(struct call_control, stopped);
    cuda->gpu.driver.cuStreamWriteValue32(cuda->orders, stopped, 1 + (uint32_t)group->rank, 0);
}

void mm_cuda_settle(struct mmoe_group *group) {
    const struct mm_cuda_group *cuda = group->backend_state;
    if (group->broken != MMOE_OK) {
        mm_cuda_end_waits(group);
    } else if (cuda->any_call) {
        mm_cuda_await(group, cuda->call_ends, MM_STEP_AWAIT, false);
    }
}
