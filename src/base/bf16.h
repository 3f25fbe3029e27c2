/* bfloat16 as uint16_t: conversions, the same bits on every backend. */
#ifndef MM_BASE_BF16_H
#define MM_BASE_BF16_H

#include <stdint.h>

#include "base/bits.h"

#define MM_BF16_NAN 0x7fc0u

static inline float mm_bf16_to_float(uint16_t value) {
    return mm_float_of_bits((uint32_t)value << 16);
}

/* Round to nearest, ties to even; overflow gives Inf; NaN stays NaN (quiet). */
static inline uint16_t mm_bf16_from_float(float value) {
    uint32_t bits = mm_bits_of_float(value);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return (bits & 0x7fffffffu) > 0x7f800000u ? (uint16_t)((bits >> 16) | 0x40u) : (uint16_t)rounded;
}

#endif
