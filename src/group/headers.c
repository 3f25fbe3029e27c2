/* Comparison of the headers of one call. */
#include "group/headers.h"

#include "group/call.h"

static const struct mm_header *header_of(const struct mmoe_group *group, int rank) {
    return &mm_control(group, group->rank)->header[rank];
}

static const char *kind_name(int64_t kind) {
    return kind == MM_CALL_FORWARD ? "forward" : kind == MM_CALL_BACKWARD ? "backward" : "call of unknown kind";
}

/* The sentence for two ranks that issued different calls: the usual mistake, so it's told in words. */
static mmoe_status compare_calls(int peer, const struct mm_agreement *theirs, const struct mm_agreement *ours) {
    if (theirs->kind == ours->kind && theirs->layer == ours->layer) {
        return MMOE_OK;
    }
    return mm_fail(MMOE_MISMATCH,
                   "rank %d issued a %s of layer %lld where this rank issued a %s of layer %lld (call %lld)", peer,
                   kind_name(theirs->kind), (long long)theirs->layer, kind_name(ours->kind), (long long)ours->layer,
                   (long long)ours->call);
}

struct field {
    const char *name;
    int64_t theirs, ours;
};

static mmoe_status compare_fields(const struct mmoe_group *group, int peer, long long call, const struct field *fields,
                                  size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (fields[i].theirs != fields[i].ours) {
            return mm_fail(MMOE_MISMATCH, "%s is %lld on rank %d and %lld on rank %d (call %lld)", fields[i].name,
                           (long long)fields[i].theirs, peer, (long long)fields[i].ours, group->rank, call);
        }
    }
    return MMOE_OK;
}

#define FIELD(member, name)                                                                                            \
    { name, theirs->member, ours->member }
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* Differences that make every other field meaningless come first. */
static mmoe_status compare_group(const struct mmoe_group *group, int peer, const struct mm_agreement *theirs,
                                 const struct mm_agreement *ours) {
    const struct field fields[] = {
        FIELD(version, "the library version (major * 10000 + minor * 100 + patch)"),
        FIELD(max_tokens, "max_tokens of the group"),
        FIELD(max_hidden, "max_hidden of the group"),
        FIELD(max_top_k, "max_top_k of the group"),
        FIELD(max_experts, "max_experts of the group"),
        FIELD(call, "the number of the call"),
    };
    return compare_fields(group, peer, ours->call, fields, COUNT(fields));
}

static mmoe_status compare_layer(const struct mmoe_group *group, int peer, const struct mm_agreement *theirs,
                                 const struct mm_agreement *ours) {
    const struct field fields[] = {
        FIELD(hidden, "hidden of the layer"),
        FIELD(intermediate, "intermediate of the layer"),
        FIELD(experts, "experts of the layer"),
        FIELD(top_k, "top_k of the layer"),
        FIELD(weight_on, "weight_on of the layer"),
        FIELD(activation, "activation of the layer"),
        FIELD(capacity_policy, "capacity_policy of the layer"),
        FIELD(capacity, "capacity of the layer"),
        FIELD(drop, "drop of the layer"),
        FIELD(combine, "combine of the layer"),
        FIELD(forward_call, "the number of the forward that this backward belongs to"),
        FIELD(recompute, "recompute, which is 1 when the saved state keeps no rows,"),
    };
    return compare_fields(group, peer, ours->call, fields, COUNT(fields));
}

static mmoe_status compare_limit(const struct mmoe_group *group, int peer, const struct mm_agreement *theirs,
                                 const struct mm_agreement *ours) {
    return theirs->limit == ours->limit
               ? MMOE_OK
               : mm_fail(MMOE_MISMATCH, "limit of the layer is %g on rank %d and %g on rank %d (call %lld)",
                         theirs->limit, peer, ours->limit, group->rank, (long long)ours->call);
}

mmoe_status mm_agreement_compare(const struct mmoe_group *group, int peer, const struct mm_agreement *theirs,
                                 const struct mm_agreement *ours) {
    mmoe_status status = compare_group(group, peer, theirs, ours);
    if (status == MMOE_OK) {
        status = compare_calls(peer, theirs, ours);
    }
    if (status == MMOE_OK) {
        status = compare_layer(group, peer, theirs, ours);
    }
    return status == MMOE_OK ? compare_limit(group, peer, theirs, ours) : status;
}

/* Refusals come first: a rank that refuses may not know the rest of its header. */
mmoe_status mm_headers_check(const struct mmoe_group *group) {
    for (int r = 0; r < group->world; r++) {
        const struct mm_header *header = header_of(group, r);
        if (header->status != MMOE_OK) {
            return mm_fail(MMOE_REFUSED, "rank %d refused call %u: %.*s", r, group->call, MM_REASON_BYTES,
                           header->reason);
        }
    }
    mmoe_status status = MMOE_OK;
    for (int r = 0; r < group->world && status == MMOE_OK; r++) {
        status = mm_agreement_compare(group, r, &header_of(group, r)->agreed, &header_of(group, group->rank)->agreed);
    }
    return status;
}
