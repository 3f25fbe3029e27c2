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
    if (now - listener->missed < GRACE_SECONDS) {
        return MMOE_OK;
    }
    mm_fail(MMOE_PEER_LOST, "rank %d has died or left the group: rank %d was %s from it in call %u", gone, group->rank,
            mm_step_name(listener->at), group->call);
    return mm_call_break(group, MMOE_PEER_LOST);
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
