/* Devices; see device.h. */
#include "cuda/device.h"

#include <stdio.h>

mmoe_status mm_device_count(const struct mm_driver *driver, int *count) {
    return MM_CU(driver, cuDeviceGetCount, "counting the GPUs", count);
}

mmoe_status mm_device_describe(const struct mm_driver *driver, int ordinal, struct mm_device *device) {
    static const char doing[] = "asking what a GPU is";
    *device = (struct mm_device){0};
    mmoe_status status = MM_CU(driver, cuDeviceGet, doing, &device->ordinal, ordinal);
    if (status == MMOE_OK) {
        status = MM_CU(driver, cuDeviceGetName, doing, device->name, (int)sizeof device->name, device->ordinal);
    }
    if (status == MMOE_OK) {
        status = MM_CU(driver, cuDeviceGetPCIBusId, doing, device->bus_id, (int)sizeof device->bus_id, device->ordinal);
    }
    if (status == MMOE_OK) {
        status = MM_CU(driver, cuDeviceTotalMem, doing, &device->bytes, device->ordinal);
    }
    const struct {
        int attribute, *value;
    } asked[] = {
        {MM_CU_COMPUTE_CAPABILITY_MAJOR, &device->capability_major},
        {MM_CU_COMPUTE_CAPABILITY_MINOR, &device->capability_minor},
        {MM_CU_MULTIPROCESSOR_COUNT, &device->multiprocessors},
    };
    for (size_t i = 0; i < sizeof asked / sizeof asked[0] && status == MMOE_OK; i++) {
        status = MM_CU(driver, cuDeviceGetAttribute, doing, asked[i].value, asked[i].attribute, device->ordinal);
    }
    return status;
}

static bool is_suitable(const struct mm_device *device) {
    return device->capability_major == MM_CAPABILITY_MAJOR && device->capability_minor == MM_CAPABILITY_MINOR;
}

/* "0: NVIDIA A100 of compute capability 8.0" */
static size_t name_device(const struct mm_device *device, char *text, size_t bytes) {
    int length = snprintf(text, bytes, "%d: %s of compute capability %d.%d", device->ordinal, device->name,
                          device->capability_major, device->capability_minor);
    return length < 0 ? 0 : (size_t)length;
}

/* The caller's choice counts, also when it is a bad one. */
static mmoe_status check_chosen(const struct mm_driver *driver, int ordinal, const char *what,
                                struct mm_device *device) {
    mmoe_status status = mm_device_describe(driver, ordinal, device);
    if (status != MMOE_OK || is_suitable(device)) {
        return status;
    }
    char text[128];
    name_device(device, text, sizeof text);
    return mm_fail(MMOE_UNSUPPORTED, "%s is on GPU %s, expected compute capability %d.%d", what, text,
                   MM_CAPABILITY_MAJOR, MM_CAPABILITY_MINOR);
}

static mmoe_status choose_holder(const struct mm_driver *driver, mm_cu_pointer address, struct mm_device *device) {
    int type = 0, ordinal = -1;
    if (driver->cuPointerGetAttribute(&type, MM_CU_POINTER_MEMORY_TYPE, address) != MM_CUDA_SUCCESS ||
        type != MM_CU_MEMORY_DEVICE) {
        return mm_fail(MMOE_INVALID_ARGUMENT,
                       "the memory at 0x%llx is not of a GPU, expected memory of this rank's GPU",
                       (unsigned long long)address);
    }
    mmoe_status status = MM_CU(driver, cuPointerGetAttribute, "asking which GPU's memory it is", &ordinal,
                               MM_CU_POINTER_DEVICE_ORDINAL, address);
    return status == MMOE_OK ? check_chosen(driver, ordinal, "the memory", device) : status;
}

/* What was looked at on the way to a suitable device. */
struct search {
    int suitable;
    char found[384];
    size_t used;
};

static void note_unsuitable(struct search *search, const struct mm_device *device) {
    if (search->used + 2 >= sizeof search->found) {
        return;
    }
    search->used += (size_t)snprintf(search->found + search->used, sizeof search->found - search->used, "%s",
                                     search->used > 0 ? ", " : "");
    search->used += name_device(device, search->found + search->used, sizeof search->found - search->used);
}

/* Looks for suitable device `number`; search->suitable stays at most that when there is none. */
static mmoe_status look_for(const struct mm_driver *driver, int count, int number, struct search *search,
                            struct mm_device *device) {
    *search = (struct search){.found = "none"};
    mmoe_status status = MMOE_OK;
    for (int i = 0; i < count && search->suitable <= number && status == MMOE_OK; i++) {
        status = mm_device_describe(driver, i, device);
        if (status == MMOE_OK && is_suitable(device)) {
            search->suitable++;
        } else if (status == MMOE_OK) {
            note_unsuitable(search, device);
        }
    }
    return status;
}

static mmoe_status choose_numbered(const struct mm_driver *driver, int number, struct mm_device *device) {
    int count;
    struct search search;
    mmoe_status status = mm_device_count(driver, &count);
    if (status == MMOE_OK) {
        status = look_for(driver, count, number, &search, device);
    }
    if (status != MMOE_OK || search.suitable > number) {
        return status;
    }
    if (search.suitable > 0) {
        return look_for(driver, count, number % search.suitable, &search, device);
    }
    return mm_fail(MMOE_UNSUPPORTED, "no suitable GPU: expected one of compute capability %d.%d, found %s",
                   MM_CAPABILITY_MAJOR, MM_CAPABILITY_MINOR, search.found);
}

mmoe_status mm_device_choose(const struct mm_driver *driver, const struct mm_device_wish *wish,
                             struct mm_device *device) {
    mm_cu_device current;
    if (wish->holds != 0) {
        return choose_holder(driver, wish->holds, device);
    }
    if (wish->current && driver->cuCtxGetDevice(&current) == MM_CUDA_SUCCESS) { /* otherwise there is no context */
        return check_chosen(driver, current, "the current CUDA context", device);
    }
    return choose_numbered(driver, wish->number, device);
}
