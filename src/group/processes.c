/* Groups whose ranks are processes of one host. */
#include <unistd.h>

#include "backend/backend.h"
#include "group/meeting.h"

/* Before any rank makes its segment, rank 0 looks whether there is room for all. */
static mmoe_status check_room(const struct mmoe_group *group) {
    const struct mm_segment_maker *maker = group->backend->segments;
    return group->rank == 0 && maker->room != NULL ? maker->room(group->layout.bytes * (size_t)group->world) : MMOE_OK;
}

/* What this rank brings: its segment, and what its backend shares. */
static mmoe_status make_own(struct mmoe_group *group, struct mm_passport *own) {
    const struct mm_backend *backend = group->backend;
    mmoe_status status =
        mm_memory_make_own(backend->segments, group->layout.bytes, group->rank, group->world, &group->memory);
    if (status == MMOE_OK) {
        *own = mm_memory_passport(group->memory);
        status = backend->group_open(group);
    }
    return status == MMOE_OK && backend->sharing != NULL ? backend->sharing->offer(group, &own->offer) : status;
}

static mmoe_status map_segments(struct mm_meeting *meeting) {
    struct mmoe_group *group = meeting->group;
    mmoe_status status = mm_group_step(group, MM_STEP_MAP);
    for (int r = 0; r < group->world && status == MMOE_OK; r++) {
        if (r != group->rank) {
            struct mm_passport *passport = &meeting->pass[r];
            const int segment = passport->segment, life = passport->life;
            passport->segment = passport->life = -1;
            status = mm_memory_map_peer(group->memory, r, segment, life);
        }
    }
    if (status == MMOE_OK) {
        mm_memory_complete(group->memory, group->segment);
    }
    return status;
}

static mmoe_status join_devices(const struct mm_meeting *meeting, const struct mm_passport *own) {
    struct mmoe_group *group = meeting->group;
    struct mm_offer offers[MMOE_MAX_WORLD];
    for (int r = 0; r < group->world; r++) {
        offers[r] = r == group->rank ? own->offer : meeting->pass[r].offer;
    }
    return group->backend->sharing->join(group, offers);
}

static mmoe_status map_peers(struct mm_meeting *meeting, const struct mm_passport *own) {
    mmoe_status status = map_segments(meeting);
    if (status == MMOE_OK && meeting->group->backend->sharing != NULL) {
        status = join_devices(meeting, own);
    }
    return status == MMOE_OK ? mm_group_step(meeting->group, MM_STEP_MAPPED) : status;
}

/* From the room for all to the last agreement. */
static mmoe_status share(struct mm_meeting *meeting, struct mm_passport *own) {
    mmoe_status status = mm_meeting_agree(meeting, check_room(meeting->group));
    if (status == MMOE_OK) {
        mmoe_status mine = make_own(meeting->group, own);
        status = mm_meeting_exchange(meeting, mine, own);
    }
    return status == MMOE_OK ? mm_meeting_agree(meeting, map_peers(meeting, own)) : status;
}

static mmoe_status set_up(struct mm_meeting *meeting) {
    struct mmoe_group *group = meeting->group;
    mmoe_status status = mm_group_step(group, MM_STEP_CONNECT);
    if (status == MMOE_OK) {
        status = mm_meeting_gather(meeting);
    }
    if (status == MMOE_OK) {
        struct mm_passport own = MM_NO_PASSPORT;
        status = share(meeting, &own);
        if (own.offer.descriptor >= 0) {
            close(own.offer.descriptor);
        }
    }
    return status;
}

mmoe_status mm_group_make_processes(const mmoe_group_config *config, const char *rendezvous, int rank, int world,
                                    const struct mm_backend *backend, const struct mm_hook *hook,
                                    struct mmoe_group **out) {
    *out = NULL;
    struct mmoe_group *group;
    mmoe_status status = mm_group_new(config, rank, world, backend, hook, &group);
    if (status != MMOE_OK) {
        return status;
    }
    struct mm_meeting meeting;
    status = mm_meeting_open(&meeting, group, rendezvous);
    if (status == MMOE_OK) {
        status = set_up(&meeting);
        if (status != MMOE_OK) {
            mm_place_clear(&meeting.place); /* in case rank 0 died */
        }
        mm_meeting_close(&meeting);
    }
    if (status != MMOE_OK) {
        mm_group_free(group);
        return status;
    }
    *out = group;
    return MMOE_OK;
}
