/* A float's bits and back. */
#ifndef MM_BASE_BITS_H
#define MM_BASE_BITS_H

#include <stdint.h>
#include <string.h>

static inline uint32_t mm_bits_of_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float mm_float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#endif
