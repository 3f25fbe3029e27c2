/* bf16 and fp32 in plain C, and integers as floats. */
#ifndef TESTS_CONFORMANCE_NUMBERS_H
#define TESTS_CONFORMANCE_NUMBERS_H

#include <cmath>
#include <cstdint>
#include <cstring>

namespace conformance {

inline float float_of(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

inline uint32_t bits_of(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

inline double bf16_value(uint16_t bits) {
    return float_of((uint32_t)bits << 16);
}

/* The nearest bf16 to a finite number, ties to even, straight from double: by the distance to both neighbours. */
inline uint16_t bf16_nearest(double value) {
    const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
    const double magnitude = std::fabs(value);
    uint16_t low = 0, high = 0x7f80; /* low <= magnitude < high, in the order of the bits */
    while (high - low > 1) {
        const uint16_t middle = (uint16_t)((low + high) / 2);
        (bf16_value(middle) <= magnitude ? low : high) = middle;
    }
    /* Infinity stands where the next power of two would be. */
    const double above = high == 0x7f80 ? std::ldexp(1.0, 128) : bf16_value(high);
    const double down = magnitude - bf16_value(low), up = above - magnitude;
    return (uint16_t)(sign | (down < up || (down == up && low % 2 == 0) ? low : high));
}

} // namespace conformance

#endif
