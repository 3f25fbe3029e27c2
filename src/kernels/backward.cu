/* The fused backward of rows: rows of dy in from all ranks, and of x when gate and up are computed again; the gradients
 * of gate and up; and the gradients of the tokens' rows out to all ranks, with those of the router weights. */
#include "kernels/backward_load.cuh"
#include "kernels/backward_store.cuh"
#include "kernels/call_close.cuh"
#include "kernels/fetch_rows.cuh"
#include "kernels/gate_up_stage.cuh"
#include "kernels/multiply.cuh"
#include "kernels/row_tasks.cuh"

MM_DEVICE int32_t warp_row_of(const fused_task &task) {
    return (int32_t)(task.block * TILE_ROWS + warp_row());
}

/* The warp's results of a tile's dA', part after part, in the stages that brought gate and up. */
template <bool clamp>
MM_DEVICE void differentiate_tile(const float (&d)[128], const backward_params &p, const fused_task &task,
                                  row_state &state, ring &at) {
    fused_stages stages;
#pragma unroll
    for (uint32_t part = 0; part < DGATE_UP_PARTS; part++) {
        const uint32_t wait = wait_begins();
        mbarrier_wait(stages.full(at.stage), at.parity);
        wait_ends(wait);
        part_of_gradient<clamp>(d, part, stage_address(at.stage) + warp_row() * 128, p.call.limit, state);
        if (part + 1 == DGATE_UP_PARTS)
            store_dw(p.dw_parts + (uint64_t)task.tile * p.part_rows, state, warp_row_of(task));
        give(GIVEN_OFFSET, part);
        ring_next<FUSED_STAGES>(at);
    }
}

MM_DEVICE void consume(const backward_params &p) {
    const fused_call &call = p.call;
    const uint32_t hidden_steps = call.hidden / TILE_DEPTH, inner_steps = 2 * call.intermediate / TILE_DEPTH;
    task_queue queue = {0, 0};
    ring at = {0, 0};
    uint32_t turn = 0;
    const float ones[2] = {1, 1};
    float d[128];
    for (;;) {
        const fused_task task = queue_take(queue);
        note_together(call.trace, TRACE_AWAIT_TASK);
        if (task.kind == TASK_END)
            return;
        if (task.kind == TASK_GATE_UP) {
            multiply<K_MAJOR, K_MAJOR, fused_stages>(d, at, hidden_steps);
            note_together(call.trace, TRACE_MULTIPLY_GATE_UP, task.block, task.tile);
            stage_gate_and_up(d, turn);
            note_together(call.trace, TRACE_STAGE_GATE_UP, task.block, task.tile);
            continue;
        }
        row_state state = {};
        if (task.kind == TASK_DGATE_UP)
            load_row_weights(state.weight, call.rows.weight, warp_row_of(task));
        multiply<K_MAJOR, MN_MAJOR, fused_stages>(d, at, task.kind == TASK_DX ? inner_steps : hidden_steps);
        note_together(call.trace, task.kind == TASK_DX ? TRACE_MULTIPLY_DX : TRACE_MULTIPLY_DGATE_UP, task.block,
                      task.tile);
        if (task.kind == TASK_DX)
            stage_results(d, ones, turn);
        else if (call.clamp)
            differentiate_tile<true>(d, p, task, state, at);
        else
            differentiate_tile<false>(d, p, task, state, at);
        note_together(call.trace, task.kind == TASK_DX ? TRACE_STAGE_DX : TRACE_DIFFERENTIATE, task.block, task.tile);
    }
}

/* Without all rows the gradients of weights are no sums. */
MM_DEVICE void load_or_give_up(const backward_params &p, const row_wishes &wishes, uint32_t blocks) {
    if (!load_backward(p, wishes, blocks))
        store_release_gpu(&p.call.group.state->gave_up, 1);
}

#if TRACED
MM_KERNEL(mm_backward_traced, backward_params, FUSED_THREADS) {
#else
MM_KERNEL(mm_backward, backward_params, FUSED_THREADS) {
#endif
    const fused_call &call = p.call;
    if (thread_index() == 0) {
        given_init(GIVEN_OFFSET);
        fused_barriers_init();
    }
    cta_sync();
    grid_dependency_wait();
    const uint32_t outcome = load_u32(&call.group.state->result.outcome);
    const bool good = outcome == CALL_GOOD;
    const bool met = good || outcome == CALL_CAPACITY || outcome == CALL_NO_FORWARD;
    const row_wishes wishes = row_wishes_of(p);
    const uint32_t blocks = good && wishes.anything ? load_u32(&call.tables.all->padded_rows) / TILE_ROWS : 0;
    const uint32_t warp = warp_index();
    if (warp < CTA_THREADS / 32 - CONSUMER_WARPS) {
        registers_give<FUSED_PRODUCER_REGISTERS>();
        if (warp == LOAD_WARP && elect_one())
            load_or_give_up(p, wishes, blocks);
        else if (warp == FETCH_WARP && met)
            fetch_rows(call, blocks);
        else if (warp == STORE_WARP)
            store_backward(p, wishes);
    } else {
        registers_take<FUSED_CONSUMER_REGISTERS>();
        open_consumer_log(call.trace);
        consume(p);
        close_consumer_log(call.trace);
    }
}
