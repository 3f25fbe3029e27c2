/* The threads of one rank, and a parallel loop over task numbers.
 *
 * Which thread runs a task never decides a bit of the result: tasks write disjoint memory. */
#ifndef MM_CPU_POOL_H
#define MM_CPU_POOL_H

#include <stdbool.h>

#include "megamoe.h"

struct mm_pool;

/* Threads of a rank: as configured, or by default its share of the cores this process may use, at least one. */
int mm_pool_threads(const mmoe_group_config *config, int world);

/* `threads` counts the caller: threads - 1 are started. */
mmoe_status mm_pool_create(int threads, struct mm_pool **pool);

/* Accepts a pointer to NULL. */
void mm_pool_destroy(struct mm_pool **pool);

/* One loop. `stop` is asked before each task, by the thread that would run it; after the first true no task begins. */
struct mm_pool_loop {
    int64_t count;
    void (*task)(const void *context, int64_t index, int thread); /* thread: 0 .. threads-1 */
    const void *context;
    bool (*stop)(void *stop_context);
    void *stop_context;
};

/* Runs the loop on all threads, this one as thread 0. True when every task has run, false when it was stopped. */
bool mm_pool_run(struct mm_pool *pool, const struct mm_pool_loop *loop);

#endif
