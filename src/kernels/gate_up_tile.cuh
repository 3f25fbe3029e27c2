/* The SwiGLU epilogue's arithmetic: a tile's 256 columns of B are 128 rows of W1 and the same 128 rows of W3, so that
 * the gate and up of an output lie in one thread. */
#ifndef MM_KERNELS_GATE_UP_TILE_CUH
#define MM_KERNELS_GATE_UP_TILE_CUH

#include "kernels/activation.cuh"
#include "kernels/store.cuh"

/* Columns of h that a tile makes: TILE_COLUMNS of B are twice as many. */
#define TILE_INTERMEDIATE (TILE_COLUMNS / 2)

/* Columns 8*group .. 8*group+15 of gate and up that this thread holds, rounded, and their h. */
template <bool clamp>
MM_DEVICE void activate(const float (&d)[128], uint32_t group, float limit, uint32_t (&gate)[4], uint32_t (&up)[4],
                        uint32_t (&h)[4]) {
    pack_groups(gate, d, group);
    pack_groups(up, d, group + TILE_INTERMEDIATE / 8);
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        float g[2] = {bf16_low(gate[i]), bf16_high(gate[i])}, u[2] = {bf16_low(up[i]), bf16_high(up[i])};
        if (clamp) {
#pragma unroll
            for (uint32_t j = 0; j < 2; j++) {
                g[j] = clip_above(g[j], limit);
                u[j] = clip_both(u[j], limit);
            }
        }
        h[i] = pack_bf16(swiglu(g[0], u[0]), swiglu(g[1], u[1]));
    }
}

#endif
