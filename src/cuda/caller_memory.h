/* Device memory for callers; see struct mm_device_memory. */
#ifndef MM_CUDA_CALLER_MEMORY_H
#define MM_CUDA_CALLER_MEMORY_H

#include "backend/backend.h"

extern const struct mm_device_memory mm_cuda_device_memory;

#endif
