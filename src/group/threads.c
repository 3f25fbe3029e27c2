/* Groups whose ranks are threads of this process: one allocation holds all segments. */
#include <string.h>
#include <unistd.h>

#include "backend/backend.h"

/* Every rank's handle, without segments. On failure the handles made so far are in `groups`. */
static mmoe_status make_handles(const mmoe_group_config *config, int world, const struct mm_backend *backend,
                                const struct mm_hook *hook, struct mmoe_group **groups) {
    mmoe_status status = MMOE_OK;
    for (int r = 0; r < world && status == MMOE_OK; r++) {
        status = mm_group_new(config, r, world, backend, hook, &groups[r]);
        if (status == MMOE_OK) {
            groups[r]->in_threads = true;
        }
    }
    return status;
}

static mmoe_status share_memory(int world, struct mmoe_group **groups) {
    struct mm_memory *memory;
    unsigned char *segments[MMOE_MAX_WORLD];
    mmoe_status status = mm_memory_make_shared(groups[0]->layout.bytes, world, world, &memory, segments);
    for (int r = 0; r < world && status == MMOE_OK; r++) {
        groups[r]->memory = memory;
        memcpy(groups[r]->segment, segments, (size_t)world * sizeof segments[0]);
    }
    return status;
}

static mmoe_status open_backends(int world, struct mmoe_group **groups) {
    mmoe_status status = MMOE_OK;
    for (int r = 0; r < world && status == MMOE_OK; r++) {
        status = mm_group_failed(groups[r], groups[r]->backend->group_open(groups[r]));
    }
    return status;
}

/* Nobody maps before all have made what is mapped. */
static mmoe_status share_devices(const struct mm_sharing *sharing, int world, struct mmoe_group **groups) {
    struct mm_offer offers[MMOE_MAX_WORLD];
    mmoe_status status = MMOE_OK;
    for (int r = 0; r < world; r++) {
        offers[r] = MM_NO_OFFER;
    }
    for (int r = 0; r < world && status == MMOE_OK; r++) {
        status = mm_group_failed(groups[r], sharing->offer(groups[r], &offers[r]));
    }
    for (int r = 0; r < world && status == MMOE_OK; r++) {
        status = mm_group_failed(groups[r], sharing->join(groups[r], offers));
    }
    for (int r = 0; r < world; r++) {
        if (offers[r].descriptor >= 0) {
            close(offers[r].descriptor);
        }
    }
    return status;
}

mmoe_status mm_group_make_threads(const mmoe_group_config *config, int world, const struct mm_backend *backend,
                                  const struct mm_hook *hook, struct mmoe_group **groups) {
    mmoe_group_config checked; /* before `world` handles are cleared */
    mmoe_status status = mm_group_config_check(config, world, &checked);
    if (status != MMOE_OK) {
        return status;
    }
    memset(groups, 0, (size_t)world * sizeof *groups);
    status = make_handles(&checked, world, backend, hook, groups);
    if (status == MMOE_OK) {
        status = share_memory(world, groups);
    }
    if (status == MMOE_OK) {
        status = open_backends(world, groups);
    }
    if (status == MMOE_OK && backend->sharing != NULL) {
        status = share_devices(backend->sharing, world, groups);
    }
    for (int r = 0; r < world && status != MMOE_OK; r++) {
        mm_group_free(groups[r]);
        groups[r] = NULL;
    }
    return status;
}
