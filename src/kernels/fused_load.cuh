/* The load warp of a fused kernel: takes tasks in order, waits for what they need, tells them to the CTA's other warps,
 * and fills the stages. One thread. */
#ifndef MM_KERNELS_FUSED_LOAD_CUH
#define MM_KERNELS_FUSED_LOAD_CUH

#include "kernels/call_wait.cuh"
#include "kernels/fused_order.cuh"
#include "kernels/fused_trace.cuh"
#include "kernels/load.cuh"

MM_DEVICE uint32_t take_task(const fused_call &p, uint32_t base) {
    return fetch_add_relaxed_gpu(&p.work.counters->task.value, 1) - base;
}

/* Until a block's counter has reached its target. What is counted was stored by other CTAs, and the copy engine reads
 * it. false: the call has been stopped. */
MM_DEVICE bool await_block(const fused_call &p, const block_counters &counters, uint32_t block, call_step step) {
    const bool good = await_here(p.group, counters.now + block, load_u32(counters.target + block), step);
    fence_async();
    return good;
}

/* Waits for a free stage and tells it how many bytes will come. Returns the barrier that they come to. */
MM_DEVICE smem_t stage_open(const ring &at, uint32_t bytes) {
    fused_stages stages;
    const uint32_t wait = wait_begins();
    mbarrier_wait(stages.empty(at.stage), at.parity);
    wait_ends(wait);
    mbarrier_arrive_expect(stages.full(at.stage), bytes);
    return stages.full(at.stage);
}

/* A: 128 rows of a pool, box {64, 128}. */
MM_DEVICE void load_block(const tensor_map *pool, smem_t stage, smem_t bar, int32_t depth, const fused_task &task) {
    tma_load<2>(stage, pool, bar, {depth, (int32_t)(task.block * TILE_ROWS)});
}

/* B, K-major: 128 rows of each of two weights from column `depth` on, boxes {64, 128, 1}. */
MM_DEVICE void load_weight_rows(const weight_view &first, int32_t first_row, const weight_view &second,
                                int32_t second_row, smem_t stage, smem_t bar, int32_t depth) {
    const smem_t b = stage + STAGE_A_BYTES;
    tma_load<3>(b, first.map, bar, {depth, first_row, first.expert});
    tma_load<3>(b + STAGE_B_BYTES / 2, second.map, bar, {depth, second_row, second.expert});
}

/* awaits(task): false: the call has been stopped; then this ends with false too. loads(task, ring). */
template <typename await_operands, typename load_operands>
MM_DEVICE bool load_tasks(const fused_call &p, const task_chain &chain, const await_operands &awaits,
                          const load_operands &loads) {
    open_log(TRACE_LOADER);
    const uint32_t base = load_u32(&p.work.base->task);
    ring at = {0, 1};
    task_queue queue = {0, 1};
    task_walk walk = task_walk_begin(chain);
    uint32_t taken = take_task(p, base);
    bool good = true;
    for (;;) {
        fused_task task = task_at(chain, walk, taken);
        if (task.kind == TASK_END)
            break;
        task.expert = load_u32(p.rows.block_expert + task.block);
        good = awaits(task);
        if (!good)
            break;
        queue_put(queue, task);
        note(p.trace, TRACE_AWAIT_QUEUE, task.block, task.tile);
        taken = take_task(p, base); /* its latency passes while this task is loaded */
        loads(task, at);
    }
    queue_put(queue, {TASK_END, 0, 0, 0});
    close_log(p.trace, TRACE_LOADER);
    return good;
}

#endif
