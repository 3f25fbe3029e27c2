/* Which slots a CTA and a warp of the plan kernels look at, and how they count them.
 *
 * CTA c has chunk c % chunks of the tokens of rank c / chunks, and each of its warps a run of that chunk's tokens. So
 * CTAs, warps and lanes are in plan order: source rank, token, k. */
#ifndef MM_KERNELS_PLAN_CHUNK_CUH
#define MM_KERNELS_PLAN_CHUNK_CUH

#include "kernels/isa.cuh"
#include "kernels/plan_params.h"

/* Slots are read so many at a time by a lane, so that their loads overlap. */
#define PLAN_BATCH 4

struct plan_chunk {
    uint32_t source, index; /* chunk `index` of rank `source` */
    uint32_t first, end;    /* tokens of this warp */
};

MM_DEVICE uint32_t least(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

/* Part `part` of `parts` of first .. end-1. */
MM_DEVICE void narrow(uint32_t &first, uint32_t &end, uint32_t part, uint32_t parts) {
    const uint32_t each = (end - first + parts - 1) / parts;
    first = least(first + part * each, end);
    end = least(first + each, end);
}

MM_DEVICE plan_chunk plan_chunk_of(const plan_params &p) {
    plan_chunk chunk;
    chunk.source = cta_index() / p.chunks;
    chunk.index = cta_index() % p.chunks;
    chunk.first = 0;
    chunk.end = load_u32(p.tokens + chunk.source);
    narrow(chunk.first, chunk.end, chunk.index, p.chunks);
    narrow(chunk.first, chunk.end, warp_index(), p.warps);
    return chunk;
}

/* The experts that a CTA counts. The key of a slot is its expert's number among them; `count` for any other slot. */
struct key_range {
    uint32_t first, count;
};

MM_DEVICE uint32_t key_of(const key_range &range, uint32_t id) {
    return id - range.first < range.count ? id - range.first : range.count;
}

/* Adds the warp's slots of a chunk to counters, one for each key. */
MM_DEVICE void count_slots(const plan_params &p, const plan_chunk &chunk, const key_range &range, smem_t counters) {
    const int32_t *ids = p.ids + chunk.source * p.rank_stride;
    const uint32_t end = chunk.end * p.top_k;
    for (uint32_t slot = chunk.first * p.top_k + lane_index(); slot < end; slot += 32 * PLAN_BATCH) {
        uint32_t key[PLAN_BATCH];
#pragma unroll
        for (uint32_t i = 0; i < PLAN_BATCH; i++)
            key[i] = slot + 32 * i < end ? key_of(range, load_u32(ids + slot + 32 * i)) : range.count;
#pragma unroll
        for (uint32_t i = 0; i < PLAN_BATCH; i++)
            if (key[i] < range.count)
                smem_fetch_add(counters + 4 * key[i], 1);
    }
}

#endif
