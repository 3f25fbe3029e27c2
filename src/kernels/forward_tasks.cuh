/* The order of a forward's tasks, by arithmetic: the gate and up tiles of a group of blocks, then the down tiles of the
 * group FORWARD_LAG earlier. A task depends only on tasks before it, and what it needs has long been stored. Groups are
 * so large that the weights of their experts come from memory once, and so small that h is still in the cache. */
#ifndef MM_KERNELS_FORWARD_TASKS_CUH
#define MM_KERNELS_FORWARD_TASKS_CUH

#include "kernels/forward_params.h"
#include "kernels/fused_tile.cuh"

#define FORWARD_GROUP 33u /* blocks */
#define FORWARD_LAG 2u    /* groups */

struct forward_order {
    uint32_t blocks, lead;              /* of them `lead` come before the first down tile */
    uint32_t gate_up_tiles, down_tiles; /* of a block */
};

MM_DEVICE forward_order forward_order_of(uint32_t blocks, uint32_t hidden, uint32_t intermediate) {
    const uint32_t lead = FORWARD_LAG * FORWARD_GROUP;
    return {blocks, blocks < lead ? blocks : lead, (2 * intermediate + TILE_COLUMNS - 1) / TILE_COLUMNS,
            (hidden + TILE_COLUMNS - 1) / TILE_COLUMNS};
}

/* Tile `index` of the blocks from `block` on, a block after another. */
MM_DEVICE fused_task tile_of_blocks(task_kind kind, uint32_t block, uint32_t index, uint32_t tiles) {
    return {(uint32_t)kind, block + index / tiles, index % tiles, 0};
}

/* Task `index`; TASK_END after the last one. The expert is left open. */
MM_DEVICE fused_task forward_task_at(const forward_order &order, uint32_t index) {
    const uint32_t up = order.gate_up_tiles, down = order.down_tiles;
    const uint32_t groups = (order.blocks - order.lead) / FORWARD_GROUP, in_groups = groups * FORWARD_GROUP;
    const uint32_t rest = order.blocks - order.lead - in_groups; /* after the last whole group */
    if (index < order.lead * up)
        return tile_of_blocks(TASK_GATE_UP, 0, index, up);
    index -= order.lead * up;
    if (index < in_groups * (up + down)) {
        const uint32_t block = index / (FORWARD_GROUP * (up + down)) * FORWARD_GROUP;
        const uint32_t tile = index % (FORWARD_GROUP * (up + down));
        if (tile < FORWARD_GROUP * up)
            return tile_of_blocks(TASK_GATE_UP, order.lead + block, tile, up);
        return tile_of_blocks(TASK_DOWN, block, tile - FORWARD_GROUP * up, down);
    }
    index -= in_groups * (up + down);
    if (index < rest * up)
        return tile_of_blocks(TASK_GATE_UP, order.lead + in_groups, index, up);
    index -= rest * up;
    if (index < (order.blocks - in_groups) * down)
        return tile_of_blocks(TASK_DOWN, in_groups, index, down);
    return {TASK_END, 0, 0, 0};
}

#endif
