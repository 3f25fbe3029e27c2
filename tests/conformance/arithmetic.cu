/* Conversions, word by word, and the approximate functions over a sweep of words. */
#include "tools.cuh"

/* Input: pairs of floats. Output, 5 words a pair: both packed, its halves unpacked, the first float through
 * its bits, how many of them are 1. */
MM_KERNEL(arithmetic_convert, parameters, 128) {
    for (uint32_t i = cta_index() * cta_threads(p) + thread_index(); i < p.number[0];
         i += cta_count() * cta_threads(p)) {
        const float low = bits_float(get(p, 2 * i)), high = bits_float(get(p, 2 * i + 1));
        const uint32_t pair = pack_bf16(low, high);
        put(p, 5 * i, pair);
        put(p, 5 * i + 1, float_bits(bf16_low(pair)));
        put(p, 5 * i + 2, float_bits(bf16_high(pair)));
        put(p, 5 * i + 3, float_bits(low));
        put(p, 5 * i + 4, count_bits(float_bits(low)));
    }
}

/* Input: number[0] floats. Output: number[1] ? the reciprocal of each : 2 to the power of each. */
MM_KERNEL(arithmetic_approximate, parameters, 128) {
    for (uint32_t i = cta_index() * cta_threads(p) + thread_index(); i < p.number[0];
         i += cta_count() * cta_threads(p)) {
        const float x = bits_float(get(p, i));
        put(p, i, float_bits(p.number[1] != 0 ? reciprocal_approx(x) : exp2_approx(x)));
    }
}
