/* The store warp of a forward: stores tiles of activations, and pushes result rows to their tokens' combine slots on
 * the ranks that own them; then it says so. Consumers never wait for a store, only for a part to be free again. */
#ifndef MM_KERNELS_STORE_RESULTS_CUH
#define MM_KERNELS_STORE_RESULTS_CUH

#include "kernels/call_wait.cuh"
#include "kernels/forward_tasks.cuh"
#include "kernels/forward_trace.cuh"
#include "kernels/gate_up_tile.cuh"

#define NO_PART 0xffffffffu

struct part_stores {
    uint32_t turn;     /* of the consumer warps, as they count */
    uint32_t previous; /* part whose stores may still be reading it */
};

MM_DEVICE void await_part(uint32_t part, uint32_t turn) {
    const uint32_t wait = wait_begins();
    mbarrier_wait(part_full(part), part_parity(turn));
    wait_ends(wait);
}

MM_DEVICE void free_part(uint32_t part) {
    warp_sync();
    if (part != NO_PART && lane_index() == 0)
        mbarrier_arrive(part_empty(part));
}

/* The stores of a part have been started: the one before is free again. */
MM_DEVICE void stores_started(part_stores &s, uint32_t part) {
    bulk_commit();
    bulk_wait_read<1>();
    free_part(s.previous);
    s.previous = part;
}

/* All stores of a task have arrived. */
MM_DEVICE void stores_done(part_stores &s) {
    bulk_wait<0>();
    free_part(s.previous);
    s.previous = NO_PART;
}

/* ---- Activations ---- */

/* 128 rows x 128 columns: 16 rows of each consumer warp, as two boxes of 64 columns. */
MM_DEVICE void store_columns(const tensor_map *map, const fused_task &task, uint32_t intermediate, part_stores &s) {
    const int32_t column = (int32_t)(task.tile * TILE_INTERMEDIATE);
    for (uint32_t warp = 0; warp < CONSUMER_WARPS; warp++) {
        const uint32_t part = part_of_turn(warp, s.turn);
        const int32_t row = (int32_t)(task.block * TILE_ROWS + warp * 16);
        await_part(part, s.turn);
        if (lane_index() == 0) {
            tma_store<2>(map, part_address(part), {column, row});
            if ((uint32_t)column + 64 < intermediate)
                tma_store<2>(map, part_address(part) + PIECE_BYTES, {column + 64, row});
        }
        stores_started(s, part);
    }
    s.turn++;
}

MM_DEVICE void store_gate_up(const forward_params &p, const fused_task &task, part_stores &s) {
    store_columns(&p.h_out, task, p.intermediate, s);
    if (p.keep) {
        store_columns(&p.gate_out, task, p.intermediate, s);
        store_columns(&p.up_out, task, p.intermediate, s);
    }
    stores_done(s);
    note(p.trace, TRACE_STORE, task.block, task.tile);
    if (lane_index() == 0)
        add_release_gpu(p.work.h_in + task.block, 1);
}

/* ---- Result rows ---- */

/* Where the rows of a block go: row 32 * i + lane in entry i. */
struct block_rows {
    uint32_t source[4]; /* not a rank: a pad */
    uint32_t slot[4];   /* token * K + k */
};

MM_DEVICE block_rows rows_of_block(const forward_params &p, uint32_t block) {
    block_rows rows;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t row = block * TILE_ROWS + 32 * i + lane_index();
        rows.source[i] = load_u32(p.rows.source + row);
        rows.slot[i] = load_u32(p.rows.token + row) * p.top_k + load_u32(p.rows.slot + row);
    }
    return rows;
}

/* Aligned: a lane pushes a row of the part; `row` is that of the part's first one in its block. */
MM_DEVICE void push_part(const forward_params &p, const fused_task &task, uint32_t source, uint32_t slot, uint32_t part,
                         uint32_t bytes) {
    if (lane_index() < 8 && source < p.group.world) {
        const uint64_t at = ((uint64_t)slot * p.hidden + task.tile * TILE_COLUMNS) * sizeof(bf16_t);
        bulk_store(p.group.segment[source] + p.combine + at, part_address(part) + lane_index() * (TILE_COLUMNS * 2),
                   bytes);
    }
}

/* Tells each rank how many of its rows have come. */
MM_DEVICE void count_results(const forward_params &p, const block_rows &rows) {
    for (uint32_t first = 0; first < p.group.world; first += 32) {
        uint32_t own = 0;
        for (uint32_t rank = first; rank < p.group.world && rank < first + 32; rank++) {
            uint32_t count = 0;
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                count += count_bits(warp_ballot(rows.source[i] == rank));
            own = lane_index() == rank - first ? count : own;
        }
        if (own > 0)
            add_release_system(&control_of(p.group, first + lane_index())->rows_arrived[p.group.rank].value, own);
    }
}

/* 8 rows of 512 bytes a part, two parts of each consumer warp. */
MM_DEVICE void push_results(const forward_params &p, const fused_task &task, part_stores &s) {
    const uint32_t width = p.hidden - task.tile * TILE_COLUMNS;
    const uint32_t bytes = (width < TILE_COLUMNS ? width : TILE_COLUMNS) * sizeof(bf16_t);
    const block_rows rows = rows_of_block(p, task.block);
#pragma unroll
    for (uint32_t group = 0; group < 2; group++)
#pragma unroll
        for (uint32_t half = 0; half < 2; half++)
#pragma unroll
            for (uint32_t w = 0; w < 4; w++) {
                const uint32_t warp = group * 4 + w, part = part_of_turn(warp, s.turn + half);
                const uint32_t holder = warp % 2 * 16 + half * 8 + lane_index() % 8;
                const uint32_t source = warp_shuffle(rows.source[warp / 2], holder);
                const uint32_t slot = warp_shuffle(rows.slot[warp / 2], holder);
                await_part(part, s.turn + half);
                push_part(p, task, source, slot, part, bytes);
                stores_started(s, part);
            }
    s.turn += 2;
    stores_done(s);
    note_push(p.trace, p.group, task, rows.source, bytes);
    count_results(p, rows);
}

/* For a trace alone: until then the warp has nothing to do. */
MM_DEVICE void note_first_part(const forward_params &p, const part_stores &s, const fused_task &task) {
    if (!TRACED)
        return;
    await_part(part_of_turn(0, s.turn), s.turn);
    note(p.trace, TRACE_AWAIT_TILE, task.block, task.tile);
}

MM_DEVICE void store_results(const forward_params &p) {
    open_log(TRACE_STORER);
    task_queue queue = {0, 0};
    part_stores stores = {0, NO_PART};
    for (;;) {
        const fused_task task = queue_take(queue);
        note(p.trace, TRACE_AWAIT_TASK);
        if (task.kind == TASK_END)
            return close_log(p.trace, TRACE_STORER);
        note_first_part(p, stores, task);
        if (task.kind == TASK_GATE_UP)
            store_gate_up(p, task, stores);
        else
            push_results(p, task, stores);
    }
}

#endif
