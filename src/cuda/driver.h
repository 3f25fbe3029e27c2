/* The CUDA driver, opened at run time: one table of functions, and how their results become our statuses.
 *
 * The library links no CUDA library, so that one build serves machines with and without a GPU. The environment variable
 * MEGAMOE_LIBCUDA names another file than libcuda.so.1: for machines where the driver lies elsewhere, and to run on the
 * simulator. */
#ifndef MM_CUDA_DRIVER_H
#define MM_CUDA_DRIVER_H

#include <stdbool.h>

#include "base/error.h"
#include "cuda/driver_api.h"

/* Tensor maps and launches with attributes came with CUDA 12.0. */
#define MM_DRIVER_VERSION_NEEDED 12000

struct mm_driver {
    void *library;
    int version;                /* as the driver says it: 1000 * major + 10 * minor */
    bool finds_kernels_by_name; /* the simulator: needs no images */
#define MM_DRIVER_FUNCTION(name, symbol, arguments) mm_cu_result(*name) arguments;
#include "cuda/driver_functions.def"
#undef MM_DRIVER_FUNCTION
};

/* Opens and initialises the driver. MMOE_UNSUPPORTED, with a sentence, when there is none, when it is older than
 * `version_needed`, or when it has no device. */
mmoe_status mm_driver_open(struct mm_driver *driver, int version_needed);

/* Accepts a zeroed driver. */
void mm_driver_close(struct mm_driver *driver);

/* MMOE_OK, or our status and text for a result of `function`, called for what `doing` says: "copying the ids". */
mmoe_status mm_driver_status(const struct mm_driver *driver, mm_cu_result result, const char *function,
                             const char *doing);

/* Calls a function of the driver and gives the status: MM_CU(driver, cuMemFree, "freeing the rows", pointer). */
#define MM_CU(driver, function, doing, ...)                                                                            \
    mm_driver_status((driver), (driver)->function(__VA_ARGS__), #function, (doing))

/* "12.4" */
#define MM_DRIVER_VERSION_BYTES 16
void mm_driver_version_text(int version, char text[MM_DRIVER_VERSION_BYTES]);

#endif
