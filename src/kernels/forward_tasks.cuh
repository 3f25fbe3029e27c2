/* The order of a forward's tasks, by arithmetic: a block's gate and up tiles, then the down tiles of the block
 * FORWARD_LAG earlier. So a task depends only on tasks before it, and what it needs has long been stored. */
#ifndef MM_KERNELS_FORWARD_TASKS_CUH
#define MM_KERNELS_FORWARD_TASKS_CUH

#include "kernels/forward_params.h"
#include "kernels/fused_tile.cuh"

#define FORWARD_LAG 32u

struct forward_order {
    uint32_t blocks, lag;
    uint32_t gate_up_tiles, down_tiles; /* of a block */
};

MM_DEVICE forward_order forward_order_of(uint32_t blocks, uint32_t hidden, uint32_t intermediate) {
    return {blocks, blocks < FORWARD_LAG ? blocks : FORWARD_LAG, (2 * intermediate + TILE_COLUMNS - 1) / TILE_COLUMNS,
            (hidden + TILE_COLUMNS - 1) / TILE_COLUMNS};
}

/* Task `index`; TASK_END after the last one. The expert is left open. */
MM_DEVICE fused_task forward_task_at(const forward_order &order, uint32_t index) {
    const uint32_t up = order.gate_up_tiles, down = order.down_tiles;
    const uint32_t first = order.lag * up, middle = (order.blocks - order.lag) * (up + down);
    if (index < first)
        return {TASK_GATE_UP, index / up, index % up, 0};
    index -= first;
    if (index < middle) {
        const uint32_t block = index / (up + down), tile = index % (up + down);
        if (tile < up)
            return {TASK_GATE_UP, order.lag + block, tile, 0};
        return {TASK_DOWN, block, tile - up, 0};
    }
    index -= middle;
    if (index < order.lag * down)
        return {TASK_DOWN, order.blocks - order.lag + index / down, index % down, 0};
    return {TASK_END, 0, 0, 0};
}

#endif
