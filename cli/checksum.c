/* Checksums that add up over ranks. Place and bits share one word, so that no two elements look alike. */
#include "checksum.h"

#include "random.h"

uint64_t checksum_16(const uint16_t *elements, int64_t first, int64_t count) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += random_mix((uint64_t)(first + i + 1) << 16 | elements[i]);
    return sum;
}

uint64_t checksum_32(const uint32_t *elements, int64_t first, int64_t count) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += random_mix((uint64_t)(first + i + 1) << 32 | elements[i]);
    return sum;
}
