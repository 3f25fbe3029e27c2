/* The least of a warp's values. */
#ifndef MM_KERNELS_WARP_LEAST_CUH
#define MM_KERNELS_WARP_LEAST_CUH

#include "kernels/isa.cuh"

/* Aligned. */
MM_DEVICE uint32_t least_of_warp(uint32_t value) {
    for (uint32_t mask = 16; mask > 0; mask /= 2) {
        const uint32_t other = warp_shuffle_xor(value, mask);
        value = other < value ? other : value;
    }
    return value;
}

#endif
