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

/* Which device is wished for. */
struct mm_device_wish {
    mm_cu_pointer holds; /* that whose memory this address is of; 0: any */
    bool current;        /* that of the calling thread's current context, if it has one */
    int number;          /* else this one of the suitable devices, from 0, counted round when there are not as many */
};

/* MMOE_UNSUPPORTED when it is not suitable or there is none; the sentence says what each device that was looked at
 * is. */
mmoe_status mm_device_choose(const struct mm_driver *driver, const struct mm_device_wish *wish,
                             struct mm_device *device);

#endif
