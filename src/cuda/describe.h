/* What `megamoe info` tells of GPUs: one sentence for the machine, one for each device and its links. */
#ifndef MM_CUDA_DESCRIBE_H
#define MM_CUDA_DESCRIBE_H

#include <stdbool.h>
#include <stddef.h>

/* Whether the backend can run here, and the device it would use or what is missing. */
bool mm_cuda_present(char *detail, size_t bytes);

/* Device `index` with its NVLinks and its peers; false past the last one, or without a usable driver. */
bool mm_cuda_describe_device(int index, char *text, size_t bytes);

#endif
