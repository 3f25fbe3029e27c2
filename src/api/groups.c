/* EP groups: the public makers choose the backend, src/group does the rest. */
#include <stdio.h>
#include <string.h>

#include "api/check.h"

/* The configuration is checked first, since the backend's name is part of it. */
static mmoe_status choose_backend(const mmoe_group_config *config, int world, const struct mm_backend **backend) {
    mmoe_group_config checked;
    mmoe_status status = mm_group_config_check(config, world, &checked);
    return status == MMOE_OK ? mm_backend_find(checked.backend, backend) : status;
}

mmoe_status mmoe_group_create_threads(const mmoe_group_config *config, int world, mmoe_group **groups) {
    const struct mm_backend *backend;
    mmoe_status status = mm_check_pointer("groups", groups, "room for a handle of each rank");
    if (status == MMOE_OK) {
        status = mm_check_range("world", world, 1, MMOE_MAX_WORLD);
    }
    if (status != MMOE_OK) {
        return status;
    }
    memset(groups, 0, (size_t)world * sizeof *groups);
    status = choose_backend(config, world, &backend);
    return status == MMOE_OK ? mm_group_make_threads(config, world, backend, NULL, groups) : status;
}

static mmoe_status make_process(const mmoe_group_config *config, const char *rendezvous, int rank, int world,
                                mmoe_group **group) {
    const struct mm_backend *backend;
    mmoe_status status = choose_backend(config, world, &backend);
    return status == MMOE_OK ? mm_group_make_processes(config, rendezvous, rank, world, backend, NULL, group) : status;
}

/* Longer than any path that a socket can have, so that src/group tells which is too long. */
#define RENDEZVOUS_BYTES 4200

mmoe_status mmoe_group_create_env(const mmoe_group_config *config, mmoe_group **group) {
    int rank, world;
    char rendezvous[RENDEZVOUS_BYTES];
    mmoe_status status = mm_check_pointer("group", group, "the address of a group handle");
    if (status != MMOE_OK) {
        return status;
    }
    *group = NULL;
    status = mm_group_environment(&rank, &world, rendezvous, sizeof rendezvous);
    return status == MMOE_OK ? make_process(config, rendezvous, rank, world, group) : status;
}

mmoe_status mmoe_group_create_path(const mmoe_group_config *config, const char *path, int rank, int world,
                                   mmoe_group **group) {
    char rendezvous[RENDEZVOUS_BYTES];
    mmoe_status status = mm_check_pointer("group", group, "the address of a group handle");
    if (status != MMOE_OK) {
        return status;
    }
    *group = NULL;
    status = mm_check_pointer("path", path, "the path of a file to be made in an existing folder");
    if (status != MMOE_OK) {
        return status;
    }
    if (path[0] == '\0') {
        return mm_fail(MMOE_INVALID_ARGUMENT, "path is \"\", expected the path of a file to be made in a folder");
    }
    snprintf(rendezvous, sizeof rendezvous, "path:%s", path);
    return make_process(config, rendezvous, rank, world, group);
}

mmoe_status mmoe_group_create_adopted(const mmoe_group_config *config, int rank, int world, void *const *segments,
                                      mmoe_group **group) {
    const struct mm_backend *backend;
    mmoe_status status = mm_check_pointer("group", group, "the address of a group handle");
    if (status != MMOE_OK) {
        return status;
    }
    *group = NULL;
    status = choose_backend(config, world, &backend);
    return status == MMOE_OK ? mm_group_make_adopted(config, rank, world, segments, backend, NULL, group) : status;
}

size_t mmoe_group_segment_bytes(const mmoe_group_config *config, int world) {
    const struct mm_backend *backend;
    return choose_backend(config, world, &backend) == MMOE_OK ? backend->layout(config, world).bytes : 0;
}

int mmoe_group_rank(const mmoe_group *group) {
    return group != NULL ? group->rank : -1;
}

int mmoe_group_world(const mmoe_group *group) {
    return group != NULL ? group->world : 0;
}

mmoe_status mmoe_group_check(const mmoe_group *group) {
    if (group == NULL) {
        return mm_check_pointer("group", group, "a group");
    }
    struct mmoe_group *running = (struct mmoe_group *)group; /* its lock changes, and what it has told */
    pthread_mutex_lock(&running->lock);
    mmoe_status status = group->broken == MMOE_OK ? MMOE_OK : mm_fail(group->broken, "%s", group->broken_text);
    if (status == MMOE_OK && group->backend->earlier != NULL) {
        status = group->backend->earlier(running);
    }
    pthread_mutex_unlock(&running->lock);
    return status;
}

void mmoe_group_destroy(mmoe_group **group) {
    if (group == NULL || *group == NULL) {
        return;
    }
    mm_group_free(*group);
    *group = NULL;
}
