/* The GPUs of a machine: what they are, and which one a rank works on. */
#ifndef MM_CUDA_DEVICE_H
#define MM_CUDA_DEVICE_H

#include "cuda/driver.h"

/* What the kernels are compiled for: sm_90a runs on this alone. */
#define MM_CAPABILITY_MAJOR 9
#define MM_CAPABILITY_MINOR 0

struct mm_device {
    mm_cu_device ordinal;
    char name[64];
    char bus_id[24]; /* PCI, as NVML wants it too */
    int capability_major, capability_minor;
    int multiprocessors;
    size_t bytes;
};

mmoe_status mm_device_count(const struct mm_driver *driver, int *count);
mmoe_status mm_device_describe(const struct mm_driver *driver, int ordinal, struct mm_device *device);

/* The device of the calling thread's current context, or without one the first suitable device. MMOE_UNSUPPORTED when
 * that is none; the sentence says what each device that was looked at is. */
mmoe_status mm_device_choose(const struct mm_driver *driver, struct mm_device *device);

#endif
