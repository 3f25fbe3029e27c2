/* Opening the driver; see driver.h. */
#include "cuda/driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define USUAL_LIBRARY "libcuda.so.1"

static const char *library_name(void) {
    const char *name = getenv("MEGAMOE_LIBCUDA");
    return name != NULL && name[0] != '\0' ? name : USUAL_LIBRARY;
}

static const struct {
    const char *symbol;
    size_t offset; /* of the pointer in struct mm_driver */
} functions[] = {
#define MM_DRIVER_FUNCTION(name, symbol, arguments) {#symbol, offsetof(struct mm_driver, name)},
#include "cuda/driver_functions.def"
#undef MM_DRIVER_FUNCTION
};

/* The driver is never unloaded: it has threads and exit handlers of its own. */
static mmoe_status open_library(struct mm_driver *driver) {
    const char *name = library_name();
    driver->library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (driver->library == NULL) {
        return mm_fail(MMOE_UNSUPPORTED, "no CUDA driver: %s", dlerror());
    }
    return MMOE_OK;
}

/* Returns the first symbol that is missing, or NULL. ISO C has no conversion from an object pointer to a function
 * pointer; POSIX promises that they look alike. */
static const char *find_functions(struct mm_driver *driver) {
    const char *missing = NULL;
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        void *found = dlsym(driver->library, functions[i].symbol);
        memcpy((char *)driver + functions[i].offset, &found, sizeof found);
        if (found == NULL && missing == NULL) {
            missing = functions[i].symbol;
        }
    }
    driver->finds_kernels_by_name = dlsym(driver->library, "megamoe_kernels_by_name") != NULL;
    return missing;
}

void mm_driver_version_text(int version, char text[MM_DRIVER_VERSION_BYTES]) {
    snprintf(text, MM_DRIVER_VERSION_BYTES, "%d.%d", version / 1000, version % 1000 / 10);
}

static mmoe_status check_version(struct mm_driver *driver, int version_needed) {
    mmoe_status status = MM_CU(driver, cuDriverGetVersion, "asking for the driver's version", &driver->version);
    if (status != MMOE_OK || driver->version >= version_needed) {
        return status;
    }
    char found[MM_DRIVER_VERSION_BYTES], needed[MM_DRIVER_VERSION_BYTES];
    mm_driver_version_text(driver->version, found);
    mm_driver_version_text(version_needed, needed);
    return mm_fail(MMOE_UNSUPPORTED, "the CUDA driver is too old: it is for CUDA %s, expected %s or newer", found,
                   needed);
}

/* The version is looked at before anything is found missing: an old driver has not every function. */
static mmoe_status start(struct mm_driver *driver, int version_needed) {
    const char *missing = find_functions(driver);
    mmoe_status status = MMOE_OK;
    if (driver->cuDriverGetVersion != NULL && driver->cuGetErrorName != NULL && driver->cuGetErrorString != NULL) {
        status = check_version(driver, version_needed);
    }
    if (status == MMOE_OK && missing != NULL) {
        status = mm_fail(MMOE_UNSUPPORTED, "%s is not a CUDA driver that can be used: it has no function %s",
                         library_name(), missing);
    }
    return status == MMOE_OK ? MM_CU(driver, cuInit, "starting the CUDA driver", 0) : status;
}

mmoe_status mm_driver_open(struct mm_driver *driver, int version_needed) {
    *driver = (struct mm_driver){0};
    mmoe_status status = open_library(driver);
    if (status == MMOE_OK) {
        status = start(driver, version_needed);
    }
    if (status != MMOE_OK) {
        mm_driver_close(driver);
    }
    return status;
}

void mm_driver_close(struct mm_driver *driver) {
    if (driver->library != NULL) {
        dlclose(driver->library);
    }
    *driver = (struct mm_driver){0};
}

static mmoe_status status_of(mm_cu_result result) {
    switch (result) {
    case MM_CUDA_ERROR_OUT_OF_MEMORY:
        return MMOE_OUT_OF_MEMORY;
    case MM_CUDA_ERROR_STUB_LIBRARY:
    case MM_CUDA_ERROR_NO_DEVICE:
    case MM_CUDA_ERROR_NO_BINARY_FOR_GPU:
    case MM_CUDA_ERROR_NOT_SUPPORTED:
    case MM_CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
        return MMOE_UNSUPPORTED;
    default:
        return MMOE_SYSTEM;
    }
}

mmoe_status mm_driver_status(const struct mm_driver *driver, mm_cu_result result, const char *function,
                             const char *doing) {
    if (result == MM_CUDA_SUCCESS) {
        return MMOE_OK;
    }
    const char *name = NULL, *text = NULL;
    if (driver->cuGetErrorName(result, &name) != MM_CUDA_SUCCESS || name == NULL) {
        name = "unknown error";
    }
    if (driver->cuGetErrorString(result, &text) != MM_CUDA_SUCCESS || text == NULL) {
        text = "the driver has no text for it";
    }
    return mm_fail(status_of(result), "%s: %s gave %s (%d): %s", doing, function, name, result, text);
}
