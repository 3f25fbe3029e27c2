/* Rows of all slots, and the tables: the second half of the routing plan. */
#include "kernels/plan_tables.cuh"

MM_DEVICE void clear_words(const plan_params &p) {
    const uint32_t words = PLAN_PLACE_OTHER_WORDS + (PLAN_PLACE_ARRAYS + p.warps) * p.experts;
    for (uint32_t i = thread_index(); i < words; i += 32 * p.warps)
        smem_store_u32(place_word_at(i), 0);
}

/* A CTA looks at the experts whose slots it places: all of them for this rank's own tokens, else this rank's. The first
 * CTA of each rank's tokens looks at all, for the counts. */
MM_KERNEL(mm_place_slots, plan_params, PLAN_THREADS) {
    const plan_chunk chunk = plan_chunk_of(p);
    const bool all_experts = chunk.source == p.rank || chunk.index == 0;
    const uint32_t local_experts = p.experts / p.world, ranks = all_experts ? p.world : 1;
    const uint32_t first_rank = all_experts ? 0 : p.rank;
    const key_range range = {first_rank * local_experts, ranks * local_experts};
    const uint32_t local_key = (p.rank - first_rank) * local_experts;
    clear_words(p);
    cta_sync();
    count_slots(p, chunk, range, place_array_at(p, OF_WARP + warp_index(), 0));

    grid_dependency_wait();
    add_chunks(p, chunk, range);
    cta_sync();
    for (uint32_t i = warp_index(); i < ranks; i += p.warps)
        lay_segments(p, first_rank + i, i * local_experts);
    cta_sync();
    start_warps(p, range);
    write_segments(p, local_key);
    cta_sync();
    place_slots(p, chunk, range, local_key);
    if (chunk.index == 0)
        write_counts(p, chunk.source);
    if (chunk.index == 0 && chunk.source == p.rank)
        write_tables(p);
}
