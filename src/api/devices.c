/* Memory of a group's device, for callers without a runtime of their own. */
#include "api/check.h"

int mmoe_group_device(const mmoe_group *group) {
    if (group == NULL || group->backend->device_memory == NULL) {
        return -1;
    }
    return group->backend->device_memory->device(group);
}

static mmoe_status check_group(const mmoe_group *group) {
    mmoe_status status = mm_check_pointer("group", group, "a group");
    if (status == MMOE_OK && group->backend->device_memory == NULL) {
        status = mm_fail(MMOE_INVALID_ARGUMENT, "group works with backend \"%s\", expected one with a device",
                         group->backend->name);
    }
    return status;
}

mmoe_status mmoe_device_alloc(mmoe_group *group, size_t bytes, void **memory) {
    mmoe_status status = mm_check_pointer("memory", memory, "the address of a pointer");
    if (status != MMOE_OK) {
        return status;
    }
    *memory = NULL;
    status = check_group(group);
    return status == MMOE_OK ? group->backend->device_memory->make(group, bytes, memory) : status;
}

void mmoe_device_free(mmoe_group *group, void **memory) {
    if (memory == NULL || *memory == NULL || check_group(group) != MMOE_OK) {
        return;
    }
    group->backend->device_memory->free(group, *memory);
    *memory = NULL;
}

mmoe_status mmoe_device_write(mmoe_group *group, void *to, const void *from, size_t bytes) {
    mmoe_status status = check_group(group);
    if (status == MMOE_OK) {
        status = mm_check_pointer("to", to, "an address of the device");
    }
    if (status == MMOE_OK) {
        status = mm_check_pointer("from", from, "an address of the host");
    }
    return status == MMOE_OK ? group->backend->device_memory->write(group, to, from, bytes) : status;
}

mmoe_status mmoe_device_read(mmoe_group *group, void *to, const void *from, size_t bytes) {
    mmoe_status status = check_group(group);
    if (status == MMOE_OK) {
        status = mm_check_pointer("to", to, "an address of the host");
    }
    if (status == MMOE_OK) {
        status = mm_check_pointer("from", from, "an address of the device");
    }
    return status == MMOE_OK ? group->backend->device_memory->read(group, to, from, bytes) : status;
}
