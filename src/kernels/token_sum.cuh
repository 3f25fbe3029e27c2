/* Sums over the slots of tokens, in the order of the slots, in fp32, rounded once. */
#ifndef MM_KERNELS_TOKEN_SUM_CUH
#define MM_KERNELS_TOKEN_SUM_CUH

#include "kernels/strided.cuh"

MM_DEVICE void add_eight(float (&sum)[8], const u32x4 &eight) {
    const uint32_t pair[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        sum[2 * i] += bf16_low(pair[i]);
        sum[2 * i + 1] += bf16_high(pair[i]);
    }
}

MM_DEVICE u32x4 round_eight(const float (&sum)[8]) {
    return {pack_bf16(sum[0], sum[1]), pack_bf16(sum[2], sum[3]), pack_bf16(sum[4], sum[5]), pack_bf16(sum[6], sum[7])};
}

#endif
