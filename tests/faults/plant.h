/* What every kernel with a planted fault is given. With `planted` 0 it is the clean twin: the same source without the
 * fault. */
#ifndef TESTS_FAULTS_PLANT_H
#define TESTS_FAULTS_PLANT_H

#include <stdint.h>

#include "kernels/tensor_map_desc.h"

enum { PLANT_IN_BYTES = 65536, PLANT_OUT_BYTES = 65536, PLANT_FLAGS = 64 };

struct plant {
    /* Of `in`, and of `out`, as rows of 64 bf16, boxes of 64 x 64. */
    struct tensor_map swizzled, plain, out_swizzled;
    const uint8_t *in;            /* small bf16 integers */
    uint8_t *out, *peer_out;      /* its first half not initialised; on this device, and on the next one */
    uint32_t *flags, *peer_flags; /* zero */
    uint32_t device, planted;
};

#endif
