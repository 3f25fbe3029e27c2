/* The caller's tokens to this rank's slot. */
#include "kernels/call_wait.cuh"
#include "kernels/enter_params.h"
#include "kernels/strided.cuh"

/* A warp copies a row, WORDS of a lane in flight. */
#define WORDS 8u

MM_DEVICE void copy_tokens(const copy_params &p, const slot_copy &copy) {
    const bool whole = is_whole(copy.from);
    bf16_t *slot = (bf16_t *)(p.group.segment[p.group.rank] + copy.slot);
    const uint32_t warps = ENTER_THREADS / 32;
    for (uint32_t token = cta_index() * warps + warp_index(); token < p.tokens; token += cta_count() * warps)
        for (uint32_t first = 8 * lane_index(); first < p.hidden; first += 8 * 32 * WORDS) {
            u32x4 word[WORDS];
#pragma unroll
            for (uint32_t i = 0; i < WORDS; i++)
                if (first + 8 * 32 * i < p.hidden)
                    word[i] = load_eight(copy.from, whole, token, first + 8 * 32 * i);
#pragma unroll
            for (uint32_t i = 0; i < WORDS; i++)
                if (first + 8 * 32 * i < p.hidden)
                    store_u32x4(slot + ((uint64_t)token * p.hidden + first + 8 * 32 * i), word[i]);
        }
}

/* The CTA that is done last says so to all ranks. */
MM_KERNEL(mm_call_copy, copy_params, ENTER_THREADS) {
    grid_dependency_wait();
    if (load_u32(&p.group.state->opened) == 0)
        return;
    for (uint32_t i = 0; i < p.count; i++)
        copy_tokens(p, p.copies[i]);
    cta_sync();
    if (warp_index() > 0)
        return;
    uint32_t ctas_done = 0;
    if (lane_index() == 0) {
        fence_system();
        ctas_done = fetch_add_acq_rel_gpu(p.ctas_done, 1);
    }
    if (warp_shuffle(ctas_done, 0) + 1 < cta_count())
        return;
    warp_sync(); /* lane 0 has acquired what all CTAs copied, and all lanes release it */
    const uint32_t call = load_u32(&p.group.state->call);
    for (uint32_t rank = lane_index(); rank < p.group.world; rank += 32)
        store_release_system(&control_of(p.group, rank)->tokens_there[p.group.rank].value, call);
    if (lane_index() == 0)
        store_u32(p.ctas_done, 0);
}
