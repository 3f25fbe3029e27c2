/* What the load warp of a forward waits for and loads. */
#ifndef MM_KERNELS_FORWARD_LOAD_CUH
#define MM_KERNELS_FORWARD_LOAD_CUH

#include "kernels/forward_params.h"
#include "kernels/gate_up_load.cuh"

MM_DEVICE bool await_h(const fused_call &p, const fused_task &task) {
    const bool good = await_block(p, p.work.h, task.block, CALL_AWAITS_H);
    note(p.trace, TRACE_AWAIT_H, task.block, task.tile);
    return good;
}

MM_DEVICE void load_down(const forward_params &p, const fused_task &task, ring &at) {
    const weight_view down = weight_of(p.down, task.expert);
    const int32_t row = (int32_t)(task.tile * TILE_COLUMNS);
    for (int32_t depth = 0; depth < (int32_t)p.call.intermediate; depth += TILE_DEPTH) {
        const smem_t bar = stage_open(at, STAGE_BYTES), stage = stage_address(at.stage);
        load_block(&p.h, stage, bar, depth, task);
        load_weight_rows(down, row, down, row + TILE_COLUMNS / 2, stage, bar, depth);
        ring_next<FUSED_STAGES>(at);
    }
    note(p.call.trace, TRACE_LOAD_DOWN, task.block, task.tile);
}

MM_DEVICE task_chain forward_chain(const forward_params &p, uint32_t blocks) {
    task_chain chain = {};
    chain.blocks = blocks;
    add_link(chain, TASK_GATE_UP, 2 * p.call.intermediate);
    add_link(chain, TASK_DOWN, p.call.hidden);
    return chain;
}

MM_DEVICE void load_forward(const forward_params &p, uint32_t blocks) {
    load_tasks(
        p.call, forward_chain(p, blocks),
        [&](const fused_task &task) {
            return task.kind == TASK_GATE_UP ? await_rows(p.call, task) : await_h(p.call, task);
        },
        [&](const fused_task &task, ring &at) {
            if (task.kind == TASK_GATE_UP)
                load_gate_up(p.call, &p.x, p.gate, p.up, task, at);
            else
                load_down(p, task, at);
        });
}

#endif
