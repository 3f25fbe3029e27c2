/* Checksums that add up over ranks. */
#include "checksum.h"

#include <string.h>

#include "random.h"

uint64_t checksum(const void *data, size_t element_bytes, int64_t first, int64_t count) {
    const unsigned char *at = data;
    uint64_t sum = 0;
    for (int64_t i = 0; i < count; i++, at += element_bytes) {
        uint64_t bits = 0;
        memcpy(&bits, at, element_bytes); /* the low bytes: little endian */
        sum += random_mix(random_mix((uint64_t)(first + i) + 1) ^ bits);
    }
    return sum;
}
