/* Slots of all ranks counted by expert: the first half of the routing plan. */
#include "kernels/plan_chunk.cuh"

MM_KERNEL(mm_count_slots, plan_params, PLAN_THREADS) {
    const smem_t counters = smem_base();
    for (uint32_t e = thread_index(); e < p.experts; e += 32 * p.warps)
        smem_store_u32(counters + 4 * e, 0);
    cta_sync();
    /* Only now may the next kernel start: what it reads before it waits for this one is there. */
    grid_dependency_wait();
    grid_launch_dependents();
    count_slots(p, plan_chunk_of(p), {0, p.experts}, counters);
    cta_sync();
    for (uint32_t e = thread_index(); e < p.experts; e += 32 * p.warps)
        store_u32(p.chunk_counts + (uint64_t)cta_index() * p.experts + e, smem_load_u32(counters + 4 * e));
}
