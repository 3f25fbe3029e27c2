/* The fused forward: token rows in from all ranks, the two products with the activation between them, result rows out
 * to all ranks, and the sum over a token's slots. All of it at once: the warps of a CTA fetch, load, multiply and push
 * side by side, and CTAs take tasks as they get to them. */
#include "kernels/fetch_rows.cuh"
#include "kernels/forward_load.cuh"
#include "kernels/forward_sum.cuh"
#include "kernels/multiply.cuh"
#include "kernels/row_tasks.cuh"
#include "kernels/store_results.cuh"

/* ---- Epilogues ---- */

/* What a part of activations is made of. */
enum gate_up_part { PART_H, PART_GATE, PART_UP };

template <bool clamp>
MM_DEVICE void stage_columns(const float (&d)[128], float limit, gate_up_part which, uint32_t &turn) {
    const smem_t part = part_take(turn);
#pragma unroll
    for (uint32_t half = 0; half < 2; half++)
#pragma unroll
        for (uint32_t pair = 0; pair < 4; pair++) {
            uint32_t gate[4], up[4], h[4];
            activate<clamp>(d, half * 8 + pair * 2, limit, gate, up, h);
            matrix_store(matrix_row(part + half * PIECE_BYTES, pair * 2), which == PART_H      ? h
                                                                          : which == PART_GATE ? gate
                                                                                               : up);
        }
    part_give(turn);
}

template <bool clamp> MM_DEVICE void stage_gate_up(const float (&d)[128], const forward_params &p, uint32_t &turn) {
    stage_columns<clamp>(d, p.limit, PART_H, turn);
    if (p.keep) {
        stage_columns<false>(d, p.limit, PART_GATE, turn);
        stage_columns<false>(d, p.limit, PART_UP, turn);
    }
}

/* Rows of 512 bytes, their 16-byte chunks in the order of combine_chunk(). */
MM_DEVICE void stage_results(const float (&d)[128], const float (&weight)[2], uint32_t &turn) {
    const uint32_t row = lane_index() % 8, matrix = lane_index() / 8;
#pragma unroll
    for (uint32_t half = 0; half < 2; half++) {
        const smem_t at = part_take(turn) + row * (TILE_COLUMNS * 2);
#pragma unroll
        for (uint32_t group = 0; group < TILE_COLUMNS / 8; group += 4) {
            uint32_t pairs[4];
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) {
                const uint32_t first = 4 * (group + i) + 2 * half;
                pairs[i] = pack_bf16(weight[half] * d[first], weight[half] * d[first + 1]);
            }
            matrix_store(at + combine_chunk(group + matrix, row) * 16, pairs);
        }
        part_give(turn);
    }
}

/* ---- Consumers ---- */

MM_DEVICE void consume(const forward_params &p) {
    task_queue queue = {0, 0};
    ring at = {0, 0};
    uint32_t turn = 0;
    float d[128];
    for (;;) {
        const fused_task task = queue_take(queue);
        note_together(p.trace, TRACE_AWAIT_TASK);
        if (task.kind == TASK_END)
            return;
        const bool down = task.kind == TASK_DOWN;
        float weight[2] = {0, 0};
        if (down)
            load_row_weights(weight, p.rows.weight, (int32_t)(task.block * TILE_ROWS + warp_row()));
        multiply<K_MAJOR, K_MAJOR, fused_stages>(d, at, (down ? p.intermediate : p.hidden) / TILE_DEPTH);
        note_together(p.trace, down ? TRACE_MULTIPLY_DOWN : TRACE_MULTIPLY_GATE_UP, task.block, task.tile);
        if (down)
            stage_results(d, weight, turn);
        else if (p.clamp)
            stage_gate_up<true>(d, p, turn);
        else
            stage_gate_up<false>(d, p, turn);
        note_together(p.trace, down ? TRACE_STAGE_DOWN : TRACE_STAGE_GATE_UP, task.block, task.tile);
    }
}

/* The host may have launched it before it knew. */
MM_DEVICE bool is_futile(const forward_params &p, uint32_t outcome) {
    return p.tentative && (outcome != CALL_GOOD || load_u32(&p.tables.all->padded_rows) > p.row_room);
}

#if TRACED
MM_KERNEL(mm_forward_traced, forward_params, FUSED_THREADS) {
#else
MM_KERNEL(mm_forward, forward_params, FUSED_THREADS) {
#endif
    if (thread_index() == 0)
        fused_barriers_init();
    cta_sync();
    grid_dependency_wait();
    const uint32_t outcome = load_u32(&p.group.state->result.outcome);
    if (is_futile(p, outcome))
        return;
    const bool good = outcome == CALL_GOOD, met = good || outcome == CALL_CAPACITY;
    const uint32_t blocks = good ? load_u32(&p.tables.all->padded_rows) / TILE_ROWS : 0;
    const uint32_t warp = warp_index();
    if (warp < CTA_THREADS / 32 - CONSUMER_WARPS) {
        registers_give<FUSED_PRODUCER_REGISTERS>();
        if (warp == LOAD_WARP && elect_one())
            load_tasks(p, blocks);
        else if (warp == FETCH_WARP && met)
            fetch_rows(p, blocks);
        else if (warp == STORE_WARP)
            store_results(p);
    } else {
        registers_take<FUSED_CONSUMER_REGISTERS>();
        open_consumer_log(p.trace);
        consume(p);
        finish_forward(p, good);
        close_consumer_log(p.trace);
    }
}
