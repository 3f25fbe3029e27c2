/* The operands of a gate and up tile: rows of x, and 128 rows of W1 and of W3. */
#ifndef MM_KERNELS_GATE_UP_LOAD_CUH
#define MM_KERNELS_GATE_UP_LOAD_CUH

#include "kernels/fused_load.cuh"

MM_DEVICE bool await_rows(const fused_call &p, const fused_task &task) {
    const bool good = await_block(p, p.work.rows, task.block, CALL_AWAITS_ROWS);
    note(p.trace, TRACE_AWAIT_ROWS, task.block, task.tile);
    return good;
}

MM_DEVICE void load_gate_up(const fused_call &p, const tensor_map *x, const weight_map &gate, const weight_map &up,
                            const fused_task &task, ring &at) {
    const weight_view first = weight_of(gate, task.expert), second = weight_of(up, task.expert);
    const int32_t row = (int32_t)(task.tile * (TILE_COLUMNS / 2));
    for (int32_t depth = 0; depth < (int32_t)p.hidden; depth += TILE_DEPTH) {
        const smem_t bar = stage_open(at, STAGE_BYTES), stage = stage_address(at.stage);
        load_block(x, stage, bar, depth, task);
        load_weight_rows(first, row, second, row, stage, bar, depth);
        ring_next<FUSED_STAGES>(at);
    }
    note(p.trace, TRACE_LOAD_GATE_UP, task.block, task.tile);
}

#endif
