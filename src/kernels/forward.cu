/* The fused forward: token rows in from all ranks, the two products with the activation between them, result rows out
 * to all ranks, and the sum over a token's slots. All of it at once: the warps of a CTA fetch, load, multiply and push
 * side by side, and CTAs take tasks as they get to them.
 *
 * A source that defines MM_GROUPED before it includes this makes of it the forward whose ranks sum what they computed
 * of a token. */
#include "kernels/call_close.cuh"
#include "kernels/fetch_rows.cuh"
#include "kernels/forward_load.cuh"
#include "kernels/gate_up_stage.cuh"
#include "kernels/grouped_slots.cuh"
#include "kernels/grouped_sums.cuh"
#include "kernels/multiply.cuh"
#include "kernels/push_results.cuh"
#include "kernels/row_tasks.cuh"
#include "kernels/sum_results.cuh"

#if defined(MM_GROUPED)
#define GROUPED 1
#define FORWARD_PRODUCER_REGISTERS 64 /* for what the warp that sums has under way */
#define FORWARD_CONSUMER_REGISTERS 216
#else
#define GROUPED 0
#define FORWARD_PRODUCER_REGISTERS FUSED_PRODUCER_REGISTERS
#define FORWARD_CONSUMER_REGISTERS FUSED_CONSUMER_REGISTERS
#endif

/* ---- Consumers ---- */

template <bool clamp> MM_DEVICE void stage_gate_up(const float (&d)[128], const forward_params &p, uint32_t &turn) {
    stage_columns<clamp>(d, p.call.limit, PART_H, turn);
    if (p.keep)
        stage_gate_and_up(d, turn);
}

MM_DEVICE void consume(const forward_params &p) {
    const fused_call &call = p.call;
    task_queue queue = {0, 0};
    ring at = {0, 0};
    uint32_t turn = 0;
    float d[128];
    for (;;) {
        const fused_task task = queue_take(queue);
        note_together(call.trace, TRACE_AWAIT_TASK);
        if (task.kind == TASK_END)
            return;
        const bool down = task.kind == TASK_DOWN;
        float weight[2] = {0, 0};
        if (down)
            load_row_weights(weight, call.rows.weight, (int32_t)(task.block * TILE_ROWS + warp_row()));
        multiply<K_MAJOR, K_MAJOR, fused_stages>(d, at, (down ? call.intermediate : call.hidden) / TILE_DEPTH);
        note_together(call.trace, down ? TRACE_MULTIPLY_DOWN : TRACE_MULTIPLY_GATE_UP, task.block, task.tile);
        if (down)
            stage_results(d, weight, turn);
        else if (call.clamp)
            stage_gate_up<true>(d, p, turn);
        else
            stage_gate_up<false>(d, p, turn);
        note_together(call.trace, down ? TRACE_STAGE_DOWN : TRACE_STAGE_GATE_UP, task.block, task.tile);
    }
}

/* Once all results of this rank's tokens have come they are summed. `good`: the call could be made at all. */
MM_DEVICE void finish(const forward_params &p, bool good) {
    const fused_call &call = p.call;
    const call_team team = consumer_team();
    if (good) {
        if (await_arrivals(call.group, team, own_control(call.group)->rows_arrived, call.group.state->rows_target)) {
            note_together(call.trace, TRACE_AWAIT_RESULTS);
            resume_log();
            if (GROUPED)
                sum_tokens<2>(
                    call, p.y, [] { return false; }, [&](uint32_t token) { return first_slots_of(p, token); });
            else
                sum_all_tokens(call, p.y);
        } else {
            note_stop(call.group, team);
        }
    }
    if (!ends_last(call.work, team))
        return;
    const call_result result = final_result(call.group);
    if (result.outcome != CALL_GOOD)
        fill_nan(team, p.y, call.tokens, call.hidden);
    close_call(call.group, team, result);
}

/* ---- Store warp ---- */

MM_DEVICE void store_gate_up(const forward_params &p, const fused_task &task, part_stores &s) {
    store_columns(&p.h_out, task, p.call.intermediate, s);
    if (p.keep) {
        store_columns(&p.gate_out, task, p.call.intermediate, s);
        store_columns(&p.up_out, task, p.call.intermediate, s);
    }
    count_gate_up(p.call, task, s);
}

MM_DEVICE void push_or_store(const forward_params &p, const fused_task &task, part_stores &s) {
    const block_rows rows = push_alone(p, task, s);
    if (lane_index() == 0)
        add_release_gpu(p.call.work.results.now + task.block, 1);
    count_results(p.call, rows, ARRIVED_ROWS);
}

MM_DEVICE void store_results(const forward_params &p) {
    store_tasks(p.call, [&](const fused_task &task, part_stores &stores) {
        note_first_part(p.call, stores, task);
        if (task.kind == TASK_GATE_UP)
            store_gate_up(p, task, stores);
        else if (GROUPED)
            push_or_store(p, task, stores);
        else
            count_results(p.call, push_results(p.call, task, EVERY_RANK, stores), ARRIVED_ROWS);
    });
}

/* ---- Kernel ---- */

/* The host may have launched it before it knew. */
MM_DEVICE bool is_futile(const forward_params &p, uint32_t outcome) {
    return p.tentative && (outcome != CALL_GOOD || load_u32(&p.call.tables.all->padded_rows) > p.row_room);
}

#if GROUPED && TRACED
MM_KERNEL(mm_forward_grouped_traced, forward_params, FUSED_THREADS) {
#elif GROUPED
MM_KERNEL(mm_forward_grouped, forward_params, FUSED_THREADS) {
#elif TRACED
MM_KERNEL(mm_forward_traced, forward_params, FUSED_THREADS) {
#else
MM_KERNEL(mm_forward, forward_params, FUSED_THREADS) {
#endif
    const fused_call &call = p.call;
    if (thread_index() == 0)
        fused_barriers_init();
    cta_sync();
    grid_dependency_wait();
    const uint32_t outcome = load_u32(&call.group.state->result.outcome);
    if (is_futile(p, outcome))
        return;
    const bool good = outcome == CALL_GOOD, met = good || outcome == CALL_CAPACITY;
    const uint32_t blocks = good ? load_u32(&call.tables.all->padded_rows) / TILE_ROWS : 0;
    const uint32_t warp = warp_index();
    if (warp < CTA_THREADS / 32 - CONSUMER_WARPS) {
        registers_give<FORWARD_PRODUCER_REGISTERS>();
        if (warp == LOAD_WARP && elect_one())
            load_forward(p, blocks);
        else if (GROUPED && warp == GROUP_WARP && good)
            sum_grouped(p);
        else if (warp == FETCH_WARP && met)
            fetch_rows(call, blocks);
        else if (warp == STORE_WARP)
            store_results(p);
    } else {
        registers_take<FORWARD_CONSUMER_REGISTERS>();
        open_consumer_log(call.trace);
        consume(p);
        finish(p, good);
        close_consumer_log(call.trace);
    }
}
