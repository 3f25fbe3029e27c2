/* Random numbers addressed by place. */
#include "random.h"

#include "base/bf16.h"

double random_uniform(uint64_t key, uint64_t place) {
    return ((double)(random_bits(key, place) >> 12) + 0.5) * 0x1p-52;
}

float random_normal(uint64_t key, uint64_t place) {
    uint64_t bits = random_bits(key, place);
    int32_t sum = (int32_t)(bits & 0xffff) + (int32_t)(bits >> 16 & 0xffff) + (int32_t)(bits >> 32 & 0xffff) +
                  (int32_t)(bits >> 48);
    const float unit = 1.7320508f / 65536; /* four uniform numbers have variance 4/12 */
    return (float)(sum - 2 * 65535) * unit;
}

void random_fill_bf16(uint64_t key, uint64_t first, int64_t count, float scale, uint16_t *out) {
    for (int64_t i = 0; i < count; i++)
        out[i] = mm_bf16_from_float(random_normal(key, first + (uint64_t)i) * scale);
}
