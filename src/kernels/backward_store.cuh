/* The store warp of a backward: gate and up that were computed again, their gradients, dw once a block has all its
 * parts, and dx rows. */
#ifndef MM_KERNELS_BACKWARD_STORE_CUH
#define MM_KERNELS_BACKWARD_STORE_CUH

#include "kernels/backward_load.cuh"
#include "kernels/push_results.cuh"

/* ---- Gradients of gate and up ---- */

/* Where the store warp is: in the ring of stages, and how many tiles of gradients it has stored. */
struct stage_stores {
    uint32_t stage, tiles;
};

MM_DEVICE void skip_stages(stage_stores &at, uint32_t count) {
    at.stage = (at.stage + count) % FUSED_STAGES;
}

MM_DEVICE void await_given(uint32_t part, const stage_stores &at) {
    const uint32_t wait = wait_begins();
    mbarrier_wait(given(GIVEN_OFFSET, part), at.tiles % 2);
    wait_ends(wait);
}

/* For a trace alone, as note_first_part(). */
MM_DEVICE void note_first_given(const fused_call &p, const stage_stores &at, const fused_task &task) {
    if (!TRACED)
        return;
    await_given(0, at);
    note(p.trace, TRACE_AWAIT_TILE, task.block, task.tile);
}

/* The consumers' arrivals, in their place. */
MM_DEVICE void release_stage(uint32_t stage) {
    fused_stages stages;
    if (lane_index() < CONSUMER_WARPS)
        mbarrier_arrive(stages.empty(stage));
}

/* ---- dw ---- */

/* The parts of the lane's rows of a block, in the order of their columns, to the ranks that want them. */
MM_DEVICE void push_dw(const backward_params &p, const fused_task &task, uint64_t wanting) {
    const fused_call &call = p.call;
    const block_rows rows = rows_of_block(call, task.block, wanting);
    const uint32_t tiles = TILES_OF(call.intermediate);
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        const float *part = p.dw_parts + task.block * TILE_ROWS + 32 * i + lane_index();
        float sum = 0;
        for (uint32_t tile = 0; tile < tiles; tile++)
            sum += bits_float(load_u32_l2(part + (uint64_t)tile * p.part_rows));
        if (rows.source[i] < call.group.world)
            store_u32((float *)(call.group.segment[rows.source[i]] + p.dw) + rows.slot[i], float_bits(sum));
    }
    warp_sync();
    note_push(call.trace, call.group, TRACE_PUSH_DW, task, rows.source, sizeof(float));
    count_results(call, rows, ARRIVED_DW);
}

/* Aligned: one more tile of the block has been stored. Whether all have. */
MM_DEVICE bool count_dgrad(const fused_call &p, uint32_t block) {
    uint32_t count = 0;
    if (lane_index() == 0)
        count = fetch_add_acq_rel_gpu(p.work.dgrad.now + block, 1) + 1;
    count = warp_shuffle(count, 0);
    warp_sync();
    return count == load_u32(p.work.dgrad.target + block);
}

MM_DEVICE void store_dgate_up(const backward_params &p, const row_wishes &wishes, const fused_task &task,
                              stage_stores &at) {
    const int32_t column = (int32_t)(task.tile * TILE_COLUMNS), row = (int32_t)(task.block * TILE_ROWS);
    for (uint32_t part = 0; part < DGATE_UP_PARTS; part++) {
        await_given(part, at);
        store_given(&p.dgate_out, &p.dup_out, &p.h_weighted, stage_address(at.stage), column + (int32_t)part * 64, row);
        release_stage(at.stage);
        skip_stages(at, 1);
    }
    at.tiles++;
    bulk_wait<0>();
    warp_sync();
    note(p.call.trace, TRACE_STORE_DGATE_UP, task.block, task.tile);
    if (count_dgrad(p.call, task.block) && wishes.dw != 0)
        push_dw(p, task, wishes.dw);
}

/* ---- All ---- */

MM_DEVICE void store_redone(const backward_params &p, const fused_task &task, part_stores &s) {
    store_columns(&p.gate_out, task, p.call.intermediate, s);
    store_columns(&p.up_out, task, p.call.intermediate, s);
    count_gate_up(p.call, task, s);
}

MM_DEVICE void store_backward(const backward_params &p, const row_wishes &wishes) {
    stage_stores at = {0, 0};
    const uint32_t hidden_steps = p.call.hidden / TILE_DEPTH, inner_steps = 2 * p.call.intermediate / TILE_DEPTH;
    store_tasks(p.call, [&](const fused_task &task, part_stores &stores) {
        skip_stages(at, task.kind == TASK_DX ? inner_steps : hidden_steps);
        if (task.kind == TASK_DGATE_UP)
            note_first_given(p.call, at, task);
        else
            note_first_part(p.call, stores, task);
        if (task.kind == TASK_GATE_UP)
            store_redone(p, task, stores);
        else if (task.kind == TASK_DGATE_UP)
            store_dgate_up(p, wishes, task, at);
        else
            count_results(p.call, push_results(p.call, task, wishes.dx, stores), ARRIVED_ROWS);
    });
}

#endif
