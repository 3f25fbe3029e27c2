/* The load warp of a forward: takes tasks in order, waits for what they need, tells them to the CTA's other warps, and
 * fills the stages. One thread. */
#ifndef MM_KERNELS_FORWARD_LOAD_CUH
#define MM_KERNELS_FORWARD_LOAD_CUH

#include "kernels/call_wait.cuh"
#include "kernels/forward_tasks.cuh"
#include "kernels/forward_trace.cuh"
#include "kernels/load.cuh"

MM_DEVICE uint32_t take_task(const forward_params &p, uint32_t base) {
    return fetch_add_relaxed_gpu(&p.work.counters->task.value, 1) - base;
}

MM_DEVICE bool await_operands(const forward_params &p, const fused_task &task) {
    const bool gate_up = task.kind == TASK_GATE_UP;
    const uint32_t *counter = (gate_up ? p.work.rows_in : p.work.h_in) + task.block;
    const uint32_t target = load_u32((gate_up ? p.work.rows_target : p.work.h_target) + task.block);
    const bool good = await_here(p.group, counter, target, gate_up ? CALL_AWAITS_ROWS : CALL_AWAITS_H);
    fence_async(); /* rows and activations were stored by other CTAs; the copy engine reads them */
    return good;
}

/* A: 128 rows of a pool. B: 128 rows of W1 and of W3, or 256 of W2. */
MM_DEVICE void load_stage(const forward_params &p, const fused_task &task, smem_t stage, smem_t bar, int32_t depth,
                          const weight_view &first, const weight_view &second) {
    const smem_t b = stage + STAGE_A_BYTES;
    const int32_t row = (int32_t)(task.block * TILE_ROWS);
    if (task.kind == TASK_GATE_UP) {
        const int32_t column = (int32_t)(task.tile * (TILE_COLUMNS / 2));
        tma_load<2>(stage, &p.x, bar, {depth, row});
        tma_load<3>(b, first.map, bar, {depth, column, first.expert});
        tma_load<3>(b + STAGE_B_BYTES / 2, second.map, bar, {depth, column, second.expert});
    } else {
        const int32_t column = (int32_t)(task.tile * TILE_COLUMNS);
        tma_load<2>(stage, &p.h, bar, {depth, row});
        tma_load<3>(b, first.map, bar, {depth, column, first.expert});
        tma_load<3>(b + STAGE_B_BYTES / 2, first.map, bar, {depth, column + TILE_COLUMNS / 2, first.expert});
    }
}

MM_DEVICE void load_task(const forward_params &p, const fused_task &task, ring &at) {
    const bool gate_up = task.kind == TASK_GATE_UP;
    const weight_view first = weight_of(gate_up ? p.gate : p.down, task.expert);
    const weight_view second = weight_of(gate_up ? p.up : p.down, task.expert);
    const int32_t depth_end = (int32_t)(gate_up ? p.hidden : p.intermediate);
    fused_stages stages;
    for (int32_t depth = 0; depth < depth_end; depth += TILE_DEPTH) {
        const uint32_t wait = wait_begins();
        mbarrier_wait(stages.empty(at.stage), at.parity);
        wait_ends(wait);
        mbarrier_arrive_expect(stages.full(at.stage), STAGE_BYTES);
        load_stage(p, task, stage_address(at.stage), stages.full(at.stage), depth, first, second);
        ring_next<FUSED_STAGES>(at);
    }
    note(p.trace, gate_up ? TRACE_LOAD_GATE_UP : TRACE_LOAD_DOWN, task.block, task.tile);
}

MM_DEVICE void load_tasks(const forward_params &p, uint32_t blocks) {
    open_log(TRACE_LOADER);
    const forward_order order = forward_order_of(blocks, p.hidden, p.intermediate);
    const uint32_t base = load_u32(&p.work.base->task);
    ring at = {0, 1};
    task_queue queue = {0, 1};
    uint32_t taken = take_task(p, base);
    for (;;) {
        fused_task task = forward_task_at(order, taken);
        if (task.kind == TASK_END)
            break;
        task.expert = load_u32(p.rows.block_expert + task.block);
        if (!await_operands(p, task))
            break;
        note(p.trace, task.kind == TASK_GATE_UP ? TRACE_AWAIT_ROWS : TRACE_AWAIT_H, task.block, task.tile);
        queue_put(queue, task);
        note(p.trace, TRACE_AWAIT_QUEUE, task.block, task.tile);
        taken = take_task(p, base); /* its latency passes while this task is loaded */
        load_task(p, task, at);
    }
    queue_put(queue, {TASK_END, 0, 0, 0});
    close_log(p.trace, TRACE_LOADER);
}

#endif
