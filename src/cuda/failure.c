/* The sentences for what the device has told; see failure.h. */
#include "cuda/failure.h"

#include <stdio.h>
#include <string.h>

#include "group/headers.h"
#include "group/hello.h"
#include "group/wait.h"
#include "kernels/call_params.h"
#include "plan/ids.h"

static struct mm_agreement agreement_of(const struct call_header *header, uint32_t call) {
    struct mm_agreement agreed;
    memcpy(&agreed, header->agreed, sizeof agreed);
    agreed.call = call;
    return agreed;
}

/* As the rank that refuses sees it. */
static mmoe_status refusal_of(const struct call_header *header) {
    const struct ids_fault *fault = &header->fault;
    float weight;
    if (header->status != MMOE_OK) {
        return mm_fail((mmoe_status)header->status, "%.*s", CALL_REASON_BYTES, header->reason);
    }
    if (fault->kind == IDS_BAD_ID) {
        return mm_id_check(fault->id, agreement_of(header, 0).experts, "ids", fault->token, fault->slot);
    }
    memcpy(&weight, &fault->weight, sizeof weight);
    return mm_weight_check(weight, fault->token, fault->slot);
}

static mmoe_status refused(const struct mmoe_group *group, const struct call_failure *failure) {
    char reason[MM_ERROR_BYTES];
    mmoe_status status = refusal_of(&failure->header[0]);
    if ((int)failure->result.rank == group->rank) {
        return status;
    }
    snprintf(reason, sizeof reason, "%s", mmoe_last_error());
    return mm_fail(MMOE_REFUSED, "rank %u refused call %u: %.*s", failure->result.rank, failure->result.call,
                   CALL_REASON_BYTES, reason);
}

static mmoe_status mismatch(const struct mmoe_group *group, const struct call_failure *failure) {
    const struct mm_agreement theirs = agreement_of(&failure->header[0], failure->result.call);
    const struct mm_agreement ours = agreement_of(&failure->header[1], failure->result.call);
    return mm_agreement_compare(group, (int)failure->result.rank, &theirs, &ours);
}

static mmoe_status stranger(const struct mmoe_group *group, const struct call_failure *failure) {
    const struct mm_hello own = mm_hello_of(group, 0);
    struct mm_hello theirs;
    memcpy(&theirs, failure->hello, sizeof theirs);
    theirs.front.rank = (int32_t)failure->result.rank;
    return theirs.front.rank < group->rank ? mm_hello_compare(&theirs, &own) : mm_hello_compare(&own, &theirs);
}

static const char *doing(uint32_t step) {
    switch (step) {
    case CALL_AWAITS_LEFT:
        return mm_step_name(MM_STEP_BEGIN);
    case CALL_AWAITS_READY:
        return mm_step_name(MM_STEP_MEET);
    case CALL_AWAITS_RESULTS:
        return mm_step_name(MM_STEP_AWAIT);
    default:
        return mm_step_name(MM_STEP_PULL);
    }
}

/* How long the rank waited: see patience_ns() of the kernels. */
static int64_t waited_ms(const mmoe_group_config *config, const struct call_stop *stop, uint32_t rank) {
    if (stop->culprit == rank) {
        return 2 * config->progress_timeout_ms;
    }
    if (stop->step == CALL_AWAITS_READY) {
        return config->arrive_timeout_ms;
    }
    return stop->step == CALL_AWAITS_TOKENS ? config->progress_timeout_ms / 2 : config->progress_timeout_ms;
}

static mmoe_status stopped(const struct mmoe_group *group, const struct call_told *told) {
    const struct call_stop *stop = &told->stop;
    const uint32_t rank = told->stopped.rank;
    if (stop->step == CALL_GAVE_UP) {
        const int aborted = mm_aborted_rank(group); /* its host has said why, unless the group is adopted */
        return aborted >= 0 ? mm_abort_status(group, aborted)
                            : mm_fail(MMOE_PEER_LOST, "rank %u gave up call %u", rank, stop->call);
    }
    return mm_fail(MMOE_TIMEOUT, "rank %u %s %lld ms: rank %u was %s from it in call %u", stop->culprit,
                   stop->step == CALL_AWAITS_READY ? "did not come within" : "made no progress for",
                   (long long)waited_ms(&group->config, stop, rank), rank, doing(stop->step), stop->call);
}

mmoe_status mm_cuda_spoilt(mmoe_status status, bool certain) {
    char text[MM_ERROR_BYTES];
    snprintf(text, sizeof text, "%s", mmoe_last_error());
    return mm_fail(status, "%s; dgate, dup and ddown %s spoilt: a part %s been added to them", text,
                   certain ? "are" : "may be", certain ? "has" : "may have");
}

static mmoe_status failed(struct mmoe_group *group, const struct call_failure *failure) {
    const struct call_result *result = &failure->result;
    switch (result->outcome) {
    case CALL_REFUSED:
        return refused(group, failure);
    case CALL_MISMATCH:
        return mismatch(group, failure);
    case CALL_STRANGER:
        return mm_call_break(group, stranger(group, failure));
    case CALL_NO_FORWARD:
        return mm_fail(MMOE_REFUSED, "the forward that backward %u belongs to failed, expected one that went well",
                       result->call);
    default:
        return mm_fail(MMOE_CAPACITY, "rank %u was routed %u rows, expected at most its capacity of %lld", result->rank,
                       result->rows, (long long)agreement_of(&failure->header[1], 0).capacity);
    }
}

/* ---- What has not been seen ---- */

static bool has_failed(const struct call_told *told) {
    return __atomic_load_n(&told->first.result.call, __ATOMIC_ACQUIRE) != told->seen;
}

/* The device leaves it as it is until it has been seen. One that fails right now may be counted here and be the next
 * first one too; counted before that is said, it might be neither. */
static mmoe_status take_first(struct mmoe_group *group) {
    struct mm_cuda_group *cuda = group->backend_state;
    struct call_told *told = cuda->told;
    char text[MM_ERROR_BYTES];
    const mmoe_status status = failed(group, &told->first);
    const uint32_t behind = told->first.number + cuda->told_behind;
    __atomic_store_n(&told->seen, told->first.result.call, __ATOMIC_SEQ_CST);
    const uint32_t others = __atomic_load_n(&told->failures, __ATOMIC_SEQ_CST) - behind;
    cuda->told_behind = 0;
    if (others == 0) {
        return status;
    }
    snprintf(text, sizeof text, "%s", mmoe_last_error());
    return mm_fail(status, "%s; calls that failed after it: %u", text, others);
}

/* Behind one that has not been seen. */
static mmoe_status take_last(struct mmoe_group *group) {
    struct mm_cuda_group *cuda = group->backend_state;
    cuda->told_behind++;
    return failed(group, &cuda->told->last);
}

bool mm_cuda_has_stopped(const struct mm_cuda_group *cuda) {
    return __atomic_load_n(&cuda->told->stopped.outcome, __ATOMIC_ACQUIRE) == CALL_STOPPED;
}

static mmoe_status take_stop(struct mmoe_group *group) {
    struct mm_cuda_group *cuda = group->backend_state;
    const struct call_told *told = cuda->told;
    if (cuda->stop_seen || !mm_cuda_has_stopped(cuda)) {
        return MMOE_OK;
    }
    cuda->stop_seen = true;
    const mmoe_status status = stopped(group, told);
    return mm_call_break(group, told->spoilt ? mm_cuda_spoilt(status, true) : status);
}

mmoe_status mm_cuda_failure(struct mmoe_group *group) {
    const struct mm_cuda_group *cuda = group->backend_state;
    return has_failed(cuda->told) ? take_first(group) : take_stop(group);
}

mmoe_status mm_cuda_failure_of(struct mmoe_group *group, uint32_t call) {
    const struct mm_cuda_group *cuda = group->backend_state;
    const struct call_told *told = cuda->told;
    if (!has_failed(told) || told->last.result.call != call) {
        return take_stop(group);
    }
    return told->first.result.call == call ? take_first(group) : take_last(group);
}

mmoe_status mm_cuda_failure_of_ended(struct mmoe_group *group) {
    const struct mm_cuda_group *cuda = group->backend_state;
    return mm_cuda_failure_of(group, __atomic_load_n(&cuda->told->ended, __ATOMIC_ACQUIRE));
}
