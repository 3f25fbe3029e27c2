/* How many NVLinks a GPU has and how fast they are, from NVIDIA's management library when it can be opened: the driver
 * itself doesn't tell. */
#ifndef MM_CUDA_NVLINK_H
#define MM_CUDA_NVLINK_H

#include <stdbool.h>

struct mm_nvlink {
    unsigned links;
    unsigned megabytes_a_second; /* of one link in one direction; 0: not told */
};

/* `bus_id` as the driver gives it. False when nobody tells. */
bool mm_nvlink_of(const char *bus_id, struct mm_nvlink *nvlink);

#endif
