/* The plan of an earlier forward, for its backward: where the counters stand and will stand, and what will arrive. */
#include "kernels/backward_params.h"
#include "kernels/isa.cuh"
#include "kernels/plan_work.cuh"

/* A forward that was refused on the device, or that had no room, has left no plan; one that is still to be replayed has
 * left zeros. By one thread. */
MM_DEVICE call_result verdict_of(const resume_params &p) {
    const call_state *state = p.group.state;
    const plan_summary *all = p.tables.all;
    if (load_u32(&all->over_demand) != 0)
        return {CALL_CAPACITY, load_u32(&all->over_rank), load_u32(&all->over_demand), 0};
    for (uint32_t rank = 0; rank < p.group.world; rank++)
        if (load_u32(p.tables.tokens + rank) != load_u32(&state->tokens[rank]))
            return {CALL_NO_FORWARD, rank, 0, 0};
    return {CALL_GOOD, 0, 0, 0};
}

MM_DEVICE bool is_good(const resume_params &p) {
    return load_u32(&p.group.state->result.outcome) == CALL_GOOD;
}

MM_DEVICE void judge(const resume_params &p) {
    const call_result verdict = verdict_of(p);
    if (verdict.outcome == CALL_GOOD)
        return;
    store_u32(&p.group.state->result.outcome, verdict.outcome);
    store_u32(&p.group.state->result.rank, verdict.rank);
    store_u32(&p.group.state->result.rows, verdict.rows);
}

MM_DEVICE void await_rank_results(const resume_params &p, uint32_t rank) {
    call_state *state = p.group.state;
    const uint32_t slots = load_u32(p.tables.slots_on + rank);
    store_u32(&state->rows_target[rank], load_u32(&state->rows_target[rank]) + slots * p.result_tiles);
    store_u32(&state->dw_target[rank], load_u32(&state->dw_target[rank]) + slots * p.wants_dw);
}

/* Experts with more rows come first; of two with as many, the lower one. */
MM_DEVICE uint32_t place_by_rows(const resume_params &p, uint32_t expert) {
    const uint32_t rows = load_u32(p.tables.expert_rows + expert);
    uint32_t before = 0;
    for (uint32_t other = 0; other < p.local_experts; other++) {
        const uint32_t theirs = load_u32(p.tables.expert_rows + other);
        before += theirs > rows || (theirs == rows && other < expert);
    }
    return before;
}

MM_DEVICE void sort_experts(const resume_params &p) {
    const uint32_t expert = cta_index() * RESUME_THREADS + thread_index();
    if (expert < p.local_experts)
        store_u32(p.work.by_rows + place_by_rows(p, expert), expert);
}

MM_KERNEL(mm_plan_resume, resume_params, RESUME_THREADS) {
    grid_dependency_wait();
    sort_experts(p);
    if (cta_index() > 0)
        return;
    if (thread_index() == 0) {
        note_work(p.work);
        if (is_good(p))
            judge(p);
    }
    cta_sync();
    if (!is_good(p))
        return;
    const uint32_t blocks = load_u32(&p.tables.all->padded_rows) / PLAN_ROW_BLOCK;
    for (uint32_t block = thread_index(); block < blocks; block += RESUME_THREADS) {
        await_more(p.work.rows, block, PLAN_ROW_BLOCK);
        await_more(p.work.h, block, p.h_tiles);
        await_more(p.work.dgrad, block, p.dgrad_tiles);
    }
    for (uint32_t rank = thread_index(); rank < p.group.world; rank += RESUME_THREADS)
        await_rank_results(p, rank);
}
