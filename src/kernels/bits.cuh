/* Bits of words. */
#ifndef MM_KERNELS_BITS_CUH
#define MM_KERNELS_BITS_CUH

#include "kernels/isa.cuh"

/* The number of the lowest one, of a word that is not 0. */
MM_DEVICE uint32_t lowest_bit(uint32_t bits) {
    return count_bits((bits & (0u - bits)) - 1);
}

#endif
