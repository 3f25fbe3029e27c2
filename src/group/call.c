/* One call of a group, step by step; call.h and docs/protocol.md say what each step promises. */
#include "group/call.h"

#include <stdio.h>
#include <string.h>

#include "group/headers.h"
#include "group/introduction.h"
#include "group/wait.h"

/* ---- Failure ------------------------------------------------------------------------------------ */

/* Told to every rank, this one too, so that its other threads stop working. */
static void post_abort(const struct mmoe_group *group, mmoe_status status, const char *text) {
    for (int r = 0; r < group->world; r++) {
        struct mm_abort *abort = &mm_control(group, r)->abort[group->rank];
        abort->call = group->call;
        abort->status = status;
        snprintf(abort->reason, sizeof abort->reason, "%.*s", (int)sizeof abort->reason - 1, text);
        atomic_store_explicit(&abort->posted, 1, memory_order_release);
        mm_ring(group, r);
    }
}

/* The first cause: what the thread's error text says. */
static void mark_broken(struct mmoe_group *group, mmoe_status status) {
    group->broken = status;
    snprintf(group->broken_text, sizeof group->broken_text, "%s", mmoe_last_error());
}

/* Also what came from a peer: that one may have died before it had told everybody. */
mmoe_status mm_call_break(struct mmoe_group *group, mmoe_status status) {
    if (group->broken == MMOE_OK) {
        mark_broken(group, status);
        post_abort(group, status, group->broken_text);
    }
    return status;
}

mmoe_status mm_call_abort(struct mmoe_group *group, mmoe_status status) {
    if (group->broken != MMOE_OK) {
        return status;
    }
    mark_broken(group, status);
    char told[MM_ERROR_BYTES];
    snprintf(told, sizeof told, "rank %d gave up call %u: %.*s", group->rank, group->call, MM_REASON_BYTES - 64,
             group->broken_text);
    post_abort(group, MMOE_PEER_LOST, told);
    return status;
}

mmoe_status mm_call_check(struct mmoe_group *group) {
    if (group->broken != MMOE_OK) {
        return mm_fail(group->broken, "%s", group->broken_text);
    }
    const int aborted = mm_aborted_rank(group);
    return aborted < 0 ? MMOE_OK : mm_call_break(group, mm_abort_status(group, aborted));
}

bool mm_call_working(struct mmoe_group *group) {
    mm_show_progress(group);
    return mm_aborted_rank(group) >= 0;
}

/* ---- Steps -------------------------------------------------------------------------------------- */

/* The hook. A failure of a step in the middle of a call is a failure of this rank. */
static mmoe_status step(struct mmoe_group *group, enum mm_step at) {
    mm_show_progress(group);
    mmoe_status status = mm_group_step(group, at);
    return status == MMOE_OK ? MMOE_OK : mm_call_abort(group, status);
}

/* Until flags[r] has reached targets[r] for every rank r. */
static mmoe_status await_flags(struct mmoe_group *group, const struct mm_flag *flags, const uint32_t *targets,
                               enum mm_step at, enum mm_patience patience) {
    struct mm_awaited awaited = {.doing = mm_step_name(at), .patience = patience};
    for (int r = 0; r < group->world; r++) {
        awaited.flag[r] = &flags[r];
        awaited.target[r] = targets[r];
    }
    mmoe_status status = mm_wait(group, &awaited);
    return status == MMOE_OK ? MMOE_OK : mm_call_break(group, status);
}

static mmoe_status await_number(struct mmoe_group *group, const struct mm_flag *flags, uint32_t number, enum mm_step at,
                                enum mm_patience patience) {
    uint32_t targets[MMOE_MAX_WORLD];
    for (int r = 0; r < group->world; r++) {
        targets[r] = number;
    }
    return await_flags(group, flags, targets, at, patience);
}

/* The ranks of an adopted group have not agreed before: nothing may be written where a configuration says until they
 * have. */
static mmoe_status agree(struct mmoe_group *group) {
    mmoe_status status = group->adopted ? mm_introductions_check(group) : MMOE_OK;
    return status == MMOE_OK ? MMOE_OK : mm_call_break(group, status);
}

/* Until every peer has left the call before. A rank may come here before all have arrived at that call, when it
 * refused it: that part is a wait for arrivals, with their time limit. */
static mmoe_status await_left(struct mmoe_group *group) {
    const struct mm_control *control = mm_control(group, group->rank);
    mmoe_status status = await_number(group, control->ready, group->call - 1, MM_STEP_BEGIN, MM_UNTIL_ARRIVED);
    if (status == MMOE_OK) {
        status = await_number(group, control->left, group->call - 1, MM_STEP_BEGIN, MM_WHILE_WORKING);
    }
    return status;
}

/* The lock is held. */
static mmoe_status take_locked(struct mmoe_group *group) {
    if (group->broken != MMOE_OK) {
        return mm_fail(MMOE_BROKEN, "%s", group->broken_text);
    }
    mmoe_status status = mm_call_check(group);
    if (status != MMOE_OK) {
        return status;
    }
    group->call++;
    group->left_posted = 0;
    return step(group, MM_STEP_BEGIN);
}

/* Likewise. */
static mmoe_status begin_locked(struct mmoe_group *group) {
    mmoe_status status = take_locked(group);
    if (status == MMOE_OK) {
        status = agree(group);
    }
    if (status == MMOE_OK) {
        status = await_left(group);
    }
    return status == MMOE_OK ? step(group, MM_STEP_WRITE) : status;
}

static mmoe_status lock_and(struct mmoe_group *group, mmoe_status (*begin)(struct mmoe_group *group)) {
    pthread_mutex_lock(&group->lock);
    mmoe_status status = begin(group);
    if (status != MMOE_OK) {
        pthread_mutex_unlock(&group->lock);
    }
    return status;
}

mmoe_status mm_call_begin(struct mmoe_group *group) {
    return lock_and(group, begin_locked);
}

mmoe_status mm_call_take(struct mmoe_group *group) {
    return lock_and(group, take_locked);
}

void mm_call_give(struct mmoe_group *group) {
    pthread_mutex_unlock(&group->lock);
}

void mm_call_agreement(const struct mmoe_group *group, enum mm_call_kind kind, struct mm_agreement *agreed) {
    *agreed = (struct mm_agreement){
        .version = MMOE_VERSION_MAJOR * 10000 + MMOE_VERSION_MINOR * 100 + MMOE_VERSION_PATCH,
        .max_tokens = group->config.max_tokens,
        .max_hidden = group->config.max_hidden,
        .max_top_k = group->config.max_top_k,
        .max_experts = group->config.max_experts,
        .call = group->call,
        .kind = kind,
    };
}

mmoe_status mm_call_post(struct mmoe_group *group, const struct mm_header *header) {
    mmoe_status status = step(group, MM_STEP_READY);
    for (int r = 0; r < group->world && status == MMOE_OK; r++) {
        struct mm_control *control = mm_control(group, r);
        control->header[group->rank] = *header;
        atomic_store_explicit(&control->ready[group->rank].value, group->call, memory_order_release);
        mm_ring(group, r);
    }
    return status;
}

mmoe_status mm_call_meet(struct mmoe_group *group) {
    mmoe_status status = step(group, MM_STEP_MEET);
    if (status == MMOE_OK) {
        status =
            await_number(group, mm_control(group, group->rank)->ready, group->call, MM_STEP_MEET, MM_UNTIL_ARRIVED);
    }
    return status == MMOE_OK ? mm_headers_check(group) : status;
}

const struct mm_header *mm_call_header(const struct mmoe_group *group, int rank) {
    return &mm_control(group, group->rank)->header[rank];
}

mmoe_status mm_call_pull(struct mmoe_group *group, int peer) {
    return peer == group->rank ? MMOE_OK : step(group, MM_STEP_PULL);
}

mmoe_status mm_call_left(struct mmoe_group *group, int peer) {
    const uint64_t bit = UINT64_C(1) << peer;
    if (group->left_posted & bit) {
        return MMOE_OK;
    }
    mmoe_status status = peer == group->rank ? MMOE_OK : step(group, MM_STEP_LEFT);
    if (status == MMOE_OK) {
        group->left_posted |= bit;
        atomic_store_explicit(&mm_control(group, peer)->left[group->rank].value, group->call, memory_order_release);
        mm_ring(group, peer);
    }
    return status;
}

mmoe_status mm_call_arrived(struct mmoe_group *group, int owner, enum mm_arrival what, int64_t count) {
    mmoe_status status = owner == group->rank ? MMOE_OK : step(group, MM_STEP_PUSH);
    if (status == MMOE_OK && count > 0) {
        struct mm_control *control = mm_control(group, owner);
        struct mm_flag *arrivals = what == MM_ARRIVAL_ROWS ? control->rows_arrived : control->dw_arrived;
        atomic_fetch_add_explicit(&arrivals[group->rank].value, (uint32_t)count, memory_order_release);
        mm_ring(group, owner);
    }
    return status;
}

mmoe_status mm_call_await(struct mmoe_group *group, enum mm_arrival what, const int64_t *counts) {
    mmoe_status status = step(group, MM_STEP_AWAIT);
    if (status != MMOE_OK) {
        return status;
    }
    const struct mm_control *control = mm_control(group, group->rank);
    uint32_t *targets = what == MM_ARRIVAL_ROWS ? group->rows_target : group->dw_target;
    for (int r = 0; r < group->world; r++) {
        targets[r] += (uint32_t)counts[r];
    }
    return await_flags(group, what == MM_ARRIVAL_ROWS ? control->rows_arrived : control->dw_arrived, targets,
                       MM_STEP_AWAIT, MM_WHILE_WORKING);
}

/* The lock is held. */
static void end_locked(struct mmoe_group *group) {
    mmoe_status status = group->broken == MMOE_OK ? step(group, MM_STEP_END) : group->broken;
    for (int r = 0; r < group->world && status == MMOE_OK; r++) {
        status = mm_call_left(group, r);
    }
}

void mm_call_end(struct mmoe_group *group) {
    end_locked(group);
    pthread_mutex_unlock(&group->lock);
}

mmoe_status mm_call_post_refusal(struct mmoe_group *group, enum mm_call_kind kind, mmoe_status status) {
    char text[MM_ERROR_BYTES];
    snprintf(text, sizeof text, "%s", mmoe_last_error());
    struct mm_header header = {.status = status};
    mm_call_agreement(group, kind, &header.agreed);
    snprintf(header.reason, sizeof header.reason, "%.*s", MM_REASON_BYTES - 1, text);
    mmoe_status failed = mm_call_post(group, &header);
    return failed == MMOE_OK ? mm_fail(status, "%s", text) : failed;
}

mmoe_status mm_call_refuse(struct mmoe_group *group, enum mm_call_kind kind, mmoe_status status) {
    char text[MM_ERROR_BYTES];
    snprintf(text, sizeof text, "%s", mmoe_last_error());
    mmoe_status failed = mm_call_begin(group);
    if (failed != MMOE_OK) {
        return failed;
    }
    mm_fail(status, "%s", text);
    status = mm_call_post_refusal(group, kind, status);
    mm_call_end(group);
    return status;
}
