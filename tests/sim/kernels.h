/* Parameters of the small kernels that the simulator is tested with. */
#ifndef TESTS_SIM_KERNELS_H
#define TESTS_SIM_KERNELS_H

#include <stdint.h>

#include "kernels/tensor_map_desc.h"

enum { MOST_DEVICES = 8, RING_THREADS = 96 };

struct words {
    uint32_t *to, *from, *flag;
    uint32_t count;
};

struct ring_parameters {
    uint32_t *slot[MOST_DEVICES], *ready[MOST_DEVICES], *taken[MOST_DEVICES]; /* of each device */
    uint32_t *sums;                                                           /* own */
    uint32_t device, devices, rounds;
};

enum refill_way { STORED_AND_WAITED, STORED, ONLY_FENCED };

struct refill_parameters {
    struct tensor_map from; /* a box of 8 rows of 64 bf16, without swizzle */
    uint32_t *to;
    uint32_t way;
};

#endif
