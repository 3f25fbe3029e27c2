/* The life of a group handle, and its test hook. */
#include "group/group.h"

#include <stdio.h>

#include "backend/backend.h"

static const char *const step_names[MM_STEP_COUNT] = {
    [MM_STEP_CONNECT] = "meeting the other ranks",
    [MM_STEP_MAP] = "mapping the segments of its peers",
    [MM_STEP_MAPPED] = "agreeing that all segments are mapped",
    [MM_STEP_BEGIN] = "awaiting left",
    [MM_STEP_WRITE] = "writing its slots",
    [MM_STEP_READY] = "posting ready",
    [MM_STEP_MEET] = "awaiting ready",
    [MM_STEP_PULL] = "pulling rows",
    [MM_STEP_LEFT] = "posting left",
    [MM_STEP_PUSH] = "pushing rows",
    [MM_STEP_AWAIT] = "awaiting arrivals",
    [MM_STEP_END] = "ending the call",
};

const char *mm_step_name(enum mm_step step) {
    return step_names[step];
}

mmoe_status mm_group_step(const struct mmoe_group *group, enum mm_step step) {
    return group->hook.at != NULL ? group->hook.at(group->hook.context, group->rank, step) : MMOE_OK;
}

mmoe_status mm_group_failed(const struct mmoe_group *group, mmoe_status status) {
    char text[MM_ERROR_BYTES];
    if (status == MMOE_OK) {
        return MMOE_OK;
    }
    snprintf(text, sizeof text, "%s", mmoe_last_error());
    return mm_fail(status, "rank %d failed in set-up: %s", group->rank, text);
}

/* Where the ranks share the memory of devices their segments have the control part alone. */
static struct mm_layout layout_of(const struct mm_backend *backend, const mmoe_group_config *config, int world) {
    const mmoe_group_config nothing = {0};
    return backend->sharing != NULL ? mm_layout_of(&nothing, world) : backend->layout(config, world);
}

mmoe_status mm_group_new(const mmoe_group_config *config, int rank, int world, const struct mm_backend *backend,
                         const struct mm_hook *hook, struct mmoe_group **out) {
    *out = NULL;
    mmoe_group_config checked;
    mmoe_status status = mm_group_config_check(config, world, &checked);
    if (status != MMOE_OK) {
        return status;
    }
    if (rank < 0 || rank >= world) {
        return mm_fail(MMOE_INVALID_ARGUMENT, "rank is %d, expected 0 .. %d", rank, world - 1);
    }
    void *memory;
    status = mm_alloc_zero(&memory, sizeof **out, "a group handle");
    if (status != MMOE_OK) {
        return status;
    }
    struct mmoe_group *group = memory;
    snprintf(group->name, sizeof group->name, "%s", checked.name);
    group->config = checked;
    group->config.name = group->name;
    group->config.backend = backend->name;
    group->rank = rank;
    group->world = world;
    group->layout = layout_of(backend, &group->config, world);
    group->backend = backend;
    if (hook != NULL) {
        group->hook = *hook;
    }
    int error = pthread_mutex_init(&group->lock, NULL);
    if (error != 0) {
        mm_free(&group);
        return mm_fail_system(error, "can't make the lock of a group");
    }
    *out = group;
    return MMOE_OK;
}

void mm_group_free(struct mmoe_group *group) {
    if (group == NULL) {
        return;
    }
    group->backend->group_close(group);
    mm_memory_release(group->memory);
    pthread_mutex_destroy(&group->lock);
    mm_free(&group);
}
