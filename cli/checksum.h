/* A 64-bit checksum of a tensor: the sum, modulo 2^64, of a mix of each element's place and bits. Ranks sum their own
 * parts, so it does not depend on how many ranks share the tensor. */
#ifndef CLI_CHECKSUM_H
#define CLI_CHECKSUM_H

#include <stdint.h>

/* The part of elements first .. first+count-1 of a tensor of 16-bit or of 32-bit elements. */
uint64_t checksum_16(const uint16_t *elements, int64_t first, int64_t count);
uint64_t checksum_32(const uint32_t *elements, int64_t first, int64_t count);

#endif
