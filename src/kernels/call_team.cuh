/* The warps of a CTA that end a call together: all but those of a fused kernel's first warpgroup, or the whole CTA. */
#ifndef MM_KERNELS_CALL_TEAM_CUH
#define MM_KERNELS_CALL_TEAM_CUH

#include "kernels/isa.cuh"

struct call_team {
    uint32_t first_warp, warps;
    uint32_t barrier; /* named barrier of its own */
    smem_t word;      /* of shared memory, of its own */
};

MM_DEVICE bool is_first_warp(const call_team &team) {
    return warp_index() == team.first_warp;
}

MM_DEVICE void team_sync(const call_team &team) {
    barrier_sync(team.barrier, 32 * team.warps);
}

/* The word of the first warp's first lane, to all threads. */
MM_DEVICE uint32_t tell_team(const call_team &team, uint32_t word) {
    if (is_first_warp(team) && lane_index() == 0)
        smem_store_u32(team.word, word);
    team_sync(team);
    word = smem_load_u32(team.word);
    team_sync(team);
    return word;
}

#endif
