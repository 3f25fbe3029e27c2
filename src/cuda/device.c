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
static mmoe_status check_current(const struct mm_driver *driver, int ordinal, struct mm_device *device) {
    mmoe_status status = mm_device_describe(driver, ordinal, device);
    if (status != MMOE_OK || is_suitable(device)) {
        return status;
    }
    char text[128];
    name_device(device, text, sizeof text);
    return mm_fail(MMOE_UNSUPPORTED, "the current CUDA context is on GPU %s, expected compute capability %d.%d", text,
                   MM_CAPABILITY_MAJOR, MM_CAPABILITY_MINOR);
}

static mmoe_status choose_first(const struct mm_driver *driver, int count, struct mm_device *device) {
    char found[384] = "none";
    size_t used = 0;
    for (int i = 0; i < count; i++) {
        mmoe_status status = mm_device_describe(driver, i, device);
        if (status != MMOE_OK || is_suitable(device)) {
            return status;
        }
        if (used + 2 < sizeof found) {
            used += (size_t)snprintf(found + used, sizeof found - used, "%s", used > 0 ? ", " : "");
            used += name_device(device, found + used, sizeof found - used);
        }
    }
    return mm_fail(MMOE_UNSUPPORTED, "no suitable GPU: expected one of compute capability %d.%d, found %s",
                   MM_CAPABILITY_MAJOR, MM_CAPABILITY_MINOR, found);
}

mmoe_status mm_device_choose(const struct mm_driver *driver, struct mm_device *device) {
    mm_cu_device current;
    if (driver->cuCtxGetDevice(&current) == MM_CUDA_SUCCESS) { /* otherwise there is no context */
        return check_current(driver, current, device);
    }
    int count;
    mmoe_status status = mm_device_count(driver, &count);
    return status == MMOE_OK ? choose_first(driver, count, device) : status;
}
