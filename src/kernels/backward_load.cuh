/* What the load warp of a backward waits for and loads. */
#ifndef MM_KERNELS_BACKWARD_LOAD_CUH
#define MM_KERNELS_BACKWARD_LOAD_CUH

#include "kernels/backward_params.h"
#include "kernels/dgate_up_tile.cuh"
#include "kernels/gate_up_load.cuh"

/* B, MN-major: 256 columns of a weight from row `depth` on, boxes {64, 64, 2, 1}. */
MM_DEVICE void load_weight_columns(const weight_view &weight, int32_t column, smem_t stage, smem_t bar, int32_t depth) {
    const smem_t b = stage + STAGE_A_BYTES;
    tma_load<4>(b, weight.map, bar, {0, depth, column / 64, weight.expert});
    tma_load<4>(b + STAGE_B_BYTES / 2, weight.map, bar, {0, depth, column / 64 + 2, weight.expert});
}

MM_DEVICE void load_dgate_up(const backward_params &p, const fused_task &task, ring &at) {
    const weight_view down = weight_of(p.down, task.expert);
    const int32_t column = (int32_t)(task.tile * TILE_COLUMNS);
    for (int32_t depth = 0; depth < (int32_t)p.call.hidden; depth += TILE_DEPTH) {
        const smem_t bar = stage_open(at, STAGE_BYTES), stage = stage_address(at.stage);
        load_block(&p.dy, stage, bar, depth, task);
        load_weight_columns(down, column, stage, bar, depth);
        ring_next<FUSED_STAGES>(at);
    }
    for (int32_t part = 0; part < (int32_t)DGATE_UP_PARTS; part++) {
        const smem_t bar = stage_open(at, 2 * STAGED_BYTES), stage = stage_address(at.stage);
        load_block(&p.gate_in, stage + STAGED_GATE, bar, column + part * 64, task);
        load_block(&p.up_in, stage + STAGED_UP, bar, column + part * 64, task);
        ring_next<FUSED_STAGES>(at);
    }
    note(p.call.trace, TRACE_LOAD_DGATE_UP, task.block, task.tile);
}

/* One contraction over 2I, whose second half reads W3. */
MM_DEVICE void load_dx(const backward_params &p, const fused_task &task, ring &at) {
    const weight_view gate = weight_of(p.gate_by_columns, task.expert), up = weight_of(p.up_by_columns, task.expert);
    const int32_t column = (int32_t)(task.tile * TILE_COLUMNS), middle = (int32_t)p.call.intermediate;
    for (int32_t depth = 0; depth < 2 * middle; depth += TILE_DEPTH) {
        const smem_t bar = stage_open(at, STAGE_BYTES), stage = stage_address(at.stage);
        const bool in_gate = depth < middle;
        load_block(&p.dgate_up, stage, bar, depth, task);
        load_weight_columns({in_gate ? gate.map : up.map, gate.expert}, column, stage, bar,
                            in_gate ? depth : depth - middle);
        ring_next<FUSED_STAGES>(at);
    }
    note(p.call.trace, TRACE_LOAD_DX, task.block, task.tile);
}

/* What all ranks together want of this rank's rows. */
struct row_wishes {
    uint64_t dx, dw; /* the ranks that want results, a bit each */
    bool anything;
};

MM_DEVICE row_wishes row_wishes_of(const backward_params &p) {
    const call_state *state = p.call.group.state;
    row_wishes wishes = {load_u64(&state->wants_dx), load_u64(&state->wants_dw), false};
    wishes.anything = p.wants_weights || wishes.dx != 0 || wishes.dw != 0;
    return wishes;
}

MM_DEVICE task_chain backward_chain(const backward_params &p, const row_wishes &wishes, uint32_t blocks) {
    task_chain chain = {};
    chain.blocks = blocks;
    if (p.redo)
        add_link(chain, TASK_GATE_UP, 2 * p.call.intermediate);
    add_link(chain, TASK_DGATE_UP, p.call.intermediate);
    if (wishes.dx != 0)
        add_link(chain, TASK_DX, p.call.hidden);
    return chain;
}

MM_DEVICE bool await_gate_up(const fused_call &p, const fused_task &task) {
    const bool good = await_block(p, p.work.h, task.block, CALL_AWAITS_H);
    note(p.trace, TRACE_AWAIT_GATE_UP, task.block, task.tile);
    return good;
}
MM_DEVICE bool await_gradients(const fused_call &p, const fused_task &task) {
    const bool good = await_block(p, p.work.dgrad, task.block, CALL_AWAITS_DGRAD);
    note(p.trace, TRACE_AWAIT_GRADIENTS, task.block, task.tile);
    return good;
}

/* Gate and up that were kept are there. */
MM_DEVICE bool await_backward(const backward_params &p, const fused_task &task) {
    if (task.kind == TASK_DX)
        return await_gradients(p.call, task);
    if (task.kind == TASK_DGATE_UP && p.redo)
        return await_gate_up(p.call, task);
    return await_rows(p.call, task);
}

/* false: the call has been stopped. */
MM_DEVICE bool load_backward(const backward_params &p, const row_wishes &wishes, uint32_t blocks) {
    return load_tasks(
        p.call, backward_chain(p, wishes, blocks), [&](const fused_task &task) { return await_backward(p, task); },
        [&](const fused_task &task, ring &at) {
            if (task.kind == TASK_GATE_UP)
                load_gate_up(p.call, &p.x, p.gate, p.up, task, at);
            else if (task.kind == TASK_DGATE_UP)
                load_dgate_up(p, task, at);
            else
                load_dx(p, task, at);
        });
}

#endif
