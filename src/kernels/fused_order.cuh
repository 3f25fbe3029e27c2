/* The order of a fused kernel's tasks. Each block of rows goes through a chain of products; a link of the chain is all
 * tiles of one product. Blocks are taken in groups, and a group comes to its next link FUSED_LAG groups after the one
 * before: a task depends only on tasks before it, and what it needs has long been stored. Groups are so large that the
 * weights of their experts come from memory once, and so small that what one link stores is still in the cache for the
 * next. */
#ifndef MM_KERNELS_FUSED_ORDER_CUH
#define MM_KERNELS_FUSED_ORDER_CUH

#include "kernels/fused_tile.cuh"

#define FUSED_GROUP 33u /* blocks */
#define FUSED_LAG 2u    /* groups */
#define FUSED_LINKS 3u  /* most */

struct task_chain {
    uint32_t blocks, links;
    task_kind kind[FUSED_LINKS];
    uint32_t tiles[FUSED_LINKS]; /* of a block */
};

MM_DEVICE void add_link(task_chain &chain, task_kind kind, uint32_t columns) {
    chain.kind[chain.links] = kind;
    chain.tiles[chain.links++] = TILES_OF(columns);
}

MM_DEVICE uint32_t tiles_of_link(const task_chain &chain, uint32_t link) {
    return link == 0 ? chain.tiles[0] : link == 1 ? chain.tiles[1] : chain.tiles[2];
}

MM_DEVICE task_kind kind_of_link(const task_chain &chain, uint32_t link) {
    return link == 0 ? chain.kind[0] : link == 1 ? chain.kind[1] : chain.kind[2];
}

/* A walk along the order; it only goes on. It is at the tasks from `first` on, `count` of them: those of one link of
 * one group, whose first block is `block`. */
struct task_walk {
    uint32_t step, link; /* the link's group is `step` less what it lags behind */
    uint32_t first, count, block;
};

/* Sets `block` and `count` from step and link. */
MM_DEVICE void find_group(const task_chain &chain, task_walk &walk) {
    const uint32_t late = walk.link * FUSED_LAG;
    walk.count = 0;
    if (walk.step < late)
        return;
    walk.block = (walk.step - late) * FUSED_GROUP;
    if (walk.block >= chain.blocks)
        return;
    const uint32_t left = chain.blocks - walk.block;
    walk.count = (left < FUSED_GROUP ? left : FUSED_GROUP) * tiles_of_link(chain, walk.link);
}

MM_DEVICE task_walk task_walk_begin(const task_chain &chain) {
    task_walk walk = {};
    find_group(chain, walk);
    return walk;
}

MM_DEVICE uint32_t last_step(const task_chain &chain) {
    return (chain.blocks + FUSED_GROUP - 1) / FUSED_GROUP + chain.links * FUSED_LAG;
}

/* Task `index`, not before the one asked for last; TASK_END after the last one. The expert is left open. */
MM_DEVICE fused_task task_at(const task_chain &chain, task_walk &walk, uint32_t index) {
    while (index - walk.first >= walk.count) {
        if (walk.step >= last_step(chain))
            return {TASK_END, 0, 0, 0};
        walk.first += walk.count;
        if (++walk.link >= chain.links) {
            walk.link = 0;
            walk.step++;
        }
        find_group(chain, walk);
    }
    const uint32_t in_group = index - walk.first, tiles = tiles_of_link(chain, walk.link);
    return {(uint32_t)kind_of_link(chain, walk.link), walk.block + in_group / tiles, in_group % tiles, 0};
}

#endif
