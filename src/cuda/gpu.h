/* One GPU as a rank uses it: the driver, the device, its primary context (which PyTorch and the CUDA runtime use too),
 * and the kernels. */
#ifndef MM_CUDA_GPU_H
#define MM_CUDA_GPU_H

#include "cuda/device.h"

struct mm_gpu {
    struct mm_driver driver;
    struct mm_device device;
    mm_cu_context context;
    mm_cu_pool pool;       /* of memory that streams share */
    mm_cu_module *modules; /* of the images, in their order; the simulator has one */
    int module_count;
};

/* The oldest driver that runs this build. */
int mm_gpu_driver_needed(void);

/* MMOE_UNSUPPORTED with a sentence when this build holds no kernels and the driver finds none by itself. */
mmoe_status mm_gpu_check_images(const struct mm_driver *driver);

/* Leaves the calling thread's current context as it was. */
mmoe_status mm_gpu_open(struct mm_gpu *gpu, const struct mm_device_wish *wish);

/* Accepts a zeroed one. Nothing of the device may be in use any more. */
void mm_gpu_close(struct mm_gpu *gpu);

/* Makes the context current in the calling thread, and puts back what was there before. */
mmoe_status mm_gpu_enter(const struct mm_gpu *gpu);
void mm_gpu_leave(const struct mm_gpu *gpu);

#endif
