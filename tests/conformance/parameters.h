/* What every kernel of the suite is given; a case fills in what its kernel reads. */
#ifndef TESTS_CONFORMANCE_PARAMETERS_H
#define TESTS_CONFORMANCE_PARAMETERS_H

#include <stdint.h>

#include "kernels/tensor_map_desc.h"

enum { PARAMETER_MAPS = 3, PARAMETER_NUMBERS = 8 };

struct parameters {
    struct tensor_map map[PARAMETER_MAPS];
    const uint8_t *in;
    const uint32_t *table;
    uint8_t *out;
    uint32_t *late; /* counts waits that were given up */
    uint32_t number[PARAMETER_NUMBERS];
};

#endif
