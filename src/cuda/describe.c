/* Sentences about GPUs; see describe.h. */
#include "cuda/describe.h"

#include <stdarg.h>
#include <stdio.h>

#include "cuda/gpu.h"
#include "cuda/images.h"
#include "cuda/nvlink.h"

/* ---- The machine ---- */

/* Asking is no failure: the thread's error text stays what it was. */
static void restore_error(const char before[MM_ERROR_BYTES]) {
    mm_fail(MMOE_OK, "%s", before);
}

/* In a build without kernels that comes first: a driver would not help. */
static mmoe_status open_and_find(struct mm_driver *driver, struct mm_device *device) {
    mmoe_status opened = mm_driver_open(driver, mm_gpu_driver_needed());
    if (opened != MMOE_OK && mm_images[0].name != NULL) {
        return opened;
    }
    mmoe_status status = mm_gpu_check_images(driver);
    const struct mm_device_wish wish = {.current = true};
    return status == MMOE_OK ? mm_device_choose(driver, &wish, device) : status;
}

bool mm_cuda_present(char *detail, size_t bytes) {
    struct mm_driver driver;
    struct mm_device device;
    char before[MM_ERROR_BYTES];
    snprintf(before, sizeof before, "%s", mmoe_last_error());
    mmoe_status status = open_and_find(&driver, &device);
    if (status != MMOE_OK) {
        snprintf(detail, bytes, "%s", mmoe_last_error());
    } else {
        char version[MM_DRIVER_VERSION_BYTES];
        mm_driver_version_text(driver.version, version);
        snprintf(detail, bytes, "GPU %d, %s, driver for CUDA %s%s", device.ordinal, device.name, version,
                 driver.finds_kernels_by_name ? ", simulated" : "");
    }
    mm_driver_close(&driver);
    restore_error(before);
    return status == MMOE_OK;
}

/* ---- One device ---- */

struct text {
    char *at;
    size_t room;
};

/* What does not fit is cut. */
__attribute__((format(printf, 2, 3))) static void append(struct text *text, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text->at, text->room, format, arguments);
    va_end(arguments);
    if (length > 0 && text->room > 0) {
        size_t used = (size_t)length < text->room ? (size_t)length : text->room - 1;
        text->at += used;
        text->room -= used;
    }
}

static void append_nvlink(struct text *text, const struct mm_device *device) {
    struct mm_nvlink nvlink;
    if (!mm_nvlink_of(device->bus_id, &nvlink)) {
        append(text, "; NVLink not told");
    } else if (nvlink.links == 0) {
        append(text, "; no NVLink");
    } else if (nvlink.megabytes_a_second == 0) {
        append(text, "; %u NVLinks, speed not told", nvlink.links);
    } else {
        append(text, "; %u NVLinks of %.1f GB/s", nvlink.links, nvlink.megabytes_a_second / 1e3);
    }
}

static bool ask_peer(const struct mm_driver *driver, int from, int to, int attribute, int *value) {
    return driver->cuDeviceGetP2PAttribute(value, attribute, from, to) == MM_CUDA_SUCCESS;
}

static void append_peer(const struct mm_driver *driver, struct text *text, int from, int to) {
    int access, atomics, rank;
    append(text, "; to GPU %d: ", to);
    if (!ask_peer(driver, from, to, MM_CU_P2P_ACCESS, &access)) {
        append(text, "not told");
    } else if (!access) {
        append(text, "no peer access");
    } else {
        bool told = ask_peer(driver, from, to, MM_CU_P2P_NATIVE_ATOMICS, &atomics);
        append(text, "peer access, %s", !told ? "atomics not told" : atomics ? "native atomics" : "no atomics");
        if (ask_peer(driver, from, to, MM_CU_P2P_PERFORMANCE_RANK, &rank)) {
            append(text, ", performance rank %d", rank);
        }
    }
}

static void describe(const struct mm_driver *driver, const struct mm_device *device, int count, struct text *text) {
    append(text, "GPU %d, %s, %s, compute capability %d.%d, %d multiprocessors, %.1f GiB", device->ordinal,
           device->name, device->bus_id, device->capability_major, device->capability_minor, device->multiprocessors,
           (double)device->bytes / (1 << 30));
    append_nvlink(text, device);
    for (int peer = 0; peer < count; peer++) {
        if (peer != device->ordinal) {
            append_peer(driver, text, device->ordinal, peer);
        }
    }
}

bool mm_cuda_describe_device(int index, char *text, size_t bytes) {
    struct mm_driver driver;
    struct mm_device device;
    char before[MM_ERROR_BYTES];
    int count = 0;
    snprintf(before, sizeof before, "%s", mmoe_last_error());
    bool found = mm_driver_open(&driver, MM_DRIVER_VERSION_NEEDED) == MMOE_OK &&
                 mm_device_count(&driver, &count) == MMOE_OK && index < count &&
                 mm_device_describe(&driver, index, &device) == MMOE_OK;
    if (found) {
        struct text out = {text, bytes};
        describe(&driver, &device, count, &out);
    }
    mm_driver_close(&driver);
    restore_error(before);
    return found;
}
