/* The store warp of a fused kernel: stores what the consumers have staged, part after part. Consumers never wait for a
 * store, only for a part to be free again. */
#ifndef MM_KERNELS_PART_STORES_CUH
#define MM_KERNELS_PART_STORES_CUH

#include "kernels/fused_trace.cuh"
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

/* The stores of a tile of gate and up have been started: until they have arrived, and are counted at their block. */
MM_DEVICE void count_gate_up(const fused_call &p, const fused_task &task, part_stores &s) {
    stores_done(s);
    note(p.trace, TRACE_STORE, task.block, task.tile);
    if (lane_index() == 0)
        add_release_gpu(p.work.h.now + task.block, 1);
}

/* For a trace alone: until then the warp has nothing to do. */
MM_DEVICE void note_first_part(const fused_call &p, const part_stores &s, const fused_task &task) {
    if (!TRACED)
        return;
    await_part(part_of_turn(0, s.turn), s.turn);
    note(p.trace, TRACE_AWAIT_TILE, task.block, task.tile);
}

/* store(task, stores) */
template <typename store_task> MM_DEVICE void store_tasks(const fused_call &p, const store_task &store) {
    open_log(TRACE_STORER);
    task_queue queue = {0, 0};
    part_stores stores = {0, NO_PART};
    for (;;) {
        const fused_task task = queue_take(queue);
        note(p.trace, TRACE_AWAIT_TASK);
        if (task.kind == TASK_END)
            return close_log(p.trace, TRACE_STORER);
        store(task, stores);
    }
}

#endif
