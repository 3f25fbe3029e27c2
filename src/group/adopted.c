/* Groups in memory that the caller made and mapped. */
#include <inttypes.h>
#include <string.h>

#include "backend/backend.h"
#include "group/introduction.h"

static mmoe_status check_segments(int world, void *const *segments) {
    if (segments == NULL) {
        return mm_fail(MMOE_INVALID_ARGUMENT, "segments is NULL, expected %d pointers", world);
    }
    for (int r = 0; r < world; r++) {
        if (segments[r] == NULL) {
            return mm_fail(MMOE_INVALID_ARGUMENT, "segments[%d] is NULL, expected where rank %d's segment is mapped", r,
                           r);
        }
        if ((uintptr_t)segments[r] % MM_ALIGN != 0) {
            return mm_fail(MMOE_INVALID_ARGUMENT, "segments[%d] is 0x%" PRIxPTR ", expected a multiple of %d", r,
                           (uintptr_t)segments[r], MM_ALIGN);
        }
        for (int s = 0; s < r; s++) {
            if (segments[s] == segments[r]) {
                return mm_fail(MMOE_INVALID_ARGUMENT,
                               "segments[%d] equals segments[%d], expected a segment for each rank", r, s);
            }
        }
    }
    return MMOE_OK;
}

/* Told by this rank's own introduction. To be asked after the backend, which may find that the memory is none that can
 * be read here. */
static mmoe_status check_unused(const struct mmoe_group *group) {
    const struct mm_control *own = mm_control(group, group->rank);
    return atomic_load(&own->introduction[group->rank].posted.value) == 0
               ? MMOE_OK
               : mm_fail(MMOE_INVALID_ARGUMENT, "segments[%d] holds a group already, expected memory that is zero",
                         group->rank);
}

/* The caller's segments hold all that ranks tell one another; but where they lie on devices the host can't look into
 * them. The devices will meet in them, and what the host keeps for itself is in memory of its own. */
static mmoe_status use_segments(struct mmoe_group *group, void *const *segments) {
    group->given = segments;
    if (group->backend->sharing != NULL) {
        return mm_memory_make_shared(group->layout.bytes, group->world, 1, &group->memory, group->segment);
    }
    memcpy(group->segment, segments, (size_t)group->world * sizeof segments[0]);
    group->adopted = true;
    return MMOE_OK;
}

mmoe_status mm_group_make_adopted(const mmoe_group_config *config, int rank, int world, void *const *segments,
                                  const struct mm_backend *backend, const struct mm_hook *hook,
                                  struct mmoe_group **out) {
    struct mmoe_group *group;
    mmoe_status status = mm_group_new(config, rank, world, backend, hook, &group);
    *out = NULL;
    if (status != MMOE_OK) {
        return status;
    }
    status = check_segments(world, segments);
    if (status == MMOE_OK) {
        status = use_segments(group, segments);
    }
    if (status == MMOE_OK) {
        status = backend->group_open(group);
    }
    if (status == MMOE_OK && group->adopted) {
        status = check_unused(group);
    }
    if (status != MMOE_OK) {
        mm_group_free(group);
        return status;
    }
    if (group->adopted) {
        mm_introduce(group);
    }
    group->given = NULL;
    *out = group;
    return MMOE_OK;
}
