/* Parameters of the small kernels that the simulator is tested with. */
#ifndef TESTS_SIM_KERNELS_H
#define TESTS_SIM_KERNELS_H

#include <stdint.h>

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

#endif
