/* A 64-bit checksum of a tensor: the sum, modulo 2^64, of a mix of each element's place and bits. Ranks sum their own
 * parts, so it does not depend on how many ranks share the tensor. */
#ifndef CLI_CHECKSUM_H
#define CLI_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* The part of elements first .. first+count-1, of 2, 4 or 8 bytes each. */
uint64_t checksum(const void *data, size_t element_bytes, int64_t first, int64_t count);

#endif
