/* What a tile of gate and up leaves, staged for the store warp. */
#ifndef MM_KERNELS_GATE_UP_STAGE_CUH
#define MM_KERNELS_GATE_UP_STAGE_CUH

#include "kernels/fused_tile.cuh"
#include "kernels/gate_up_tile.cuh"

/* What a part of activations is made of. */
enum gate_up_part { PART_H, PART_GATE, PART_UP };

template <bool clamp>
MM_DEVICE void stage_columns(const float (&d)[128], float limit, gate_up_part which, uint32_t &turn) {
    const smem_t part = part_take(turn);
#pragma unroll
    for (uint32_t half = 0; half < 2; half++)
#pragma unroll
        for (uint32_t pair = 0; pair < 4; pair++) {
            uint32_t gate[4], up[4], h[4];
            activate<clamp>(d, half * 8 + pair * 2, limit, gate, up, h);
            matrix_store(matrix_row(part + half * PIECE_BYTES, pair * 2), which == PART_H      ? h
                                                                          : which == PART_GATE ? gate
                                                                                               : up);
        }
    part_give(turn);
}

MM_DEVICE void stage_gate_and_up(const float (&d)[128], uint32_t &turn) {
    stage_columns<false>(d, 0, PART_GATE, turn);
    stage_columns<false>(d, 0, PART_UP, turn);
}

#endif
