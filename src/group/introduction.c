/* Introductions of the ranks of an adopted group.
 *
 * A peer's is read in the peer's own segment, where it lies even if that peer believes in a smaller world and knows
 * nothing of this rank. One of a rank outside of the own world can be found in the own segment alone. */
#include "group/introduction.h"

#include "group/wait.h"

static struct mm_introduction *of(const struct mmoe_group *group, int rank) {
    return &mm_control(group, rank < group->world ? rank : group->rank)->introduction[rank];
}

void mm_introduce(const struct mmoe_group *group) {
    for (int r = 0; r < group->world; r++) {
        struct mm_introduction *introduction = &mm_control(group, r)->introduction[group->rank];
        introduction->hello = mm_hello_of(group, 0);
        atomic_store_explicit(&introduction->posted.value, 1, memory_order_release);
        mm_ring(group, r);
    }
}

/* Those that are here, the lower rank first. */
static mmoe_status compare(const struct mmoe_group *group) {
    const struct mm_hello *own = &of(group, group->rank)->hello;
    mmoe_status status = MMOE_OK;
    for (int r = 0; r < MMOE_MAX_WORLD && status == MMOE_OK; r++) {
        const struct mm_introduction *peer = of(group, r);
        if (r != group->rank && atomic_load_explicit(&peer->posted.value, memory_order_acquire) != 0) {
            status = r < group->rank ? mm_hello_compare(&peer->hello, own) : mm_hello_compare(own, &peer->hello);
        }
    }
    return status;
}

/* A difference explains more than whatever else ended the wait. */
mmoe_status mm_introductions_check(const struct mmoe_group *group) {
    struct mm_awaited awaited = {.doing = "awaiting the configuration", .patience = MM_UNTIL_ARRIVED};
    for (int r = 0; r < group->world; r++) {
        awaited.flag[r] = &of(group, r)->posted;
        awaited.target[r] = 1;
    }
    mmoe_status status = mm_wait(group, &awaited);
    mmoe_status difference = compare(group);
    return difference == MMOE_OK ? status : difference;
}
