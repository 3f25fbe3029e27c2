/* A pool of threads that sleep between loops; see pool.h. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "base/error.h"
#include "base/memory.h"
#include "cpu/pool.h"

struct worker {
    struct mm_pool *pool;
    pthread_t thread;
    int number;
};

struct mm_pool {
    pthread_mutex_t lock;
    pthread_cond_t begin, done;
    uint64_t loops; /* loops begun: a worker that has seen fewer wakes up */
    int busy;       /* workers still inside the current loop */
    bool closing;
    const struct mm_pool_loop *loop;
    _Atomic int64_t next; /* first task that no thread has taken */
    atomic_bool stopped;
    int workers;
    struct worker worker[];
};

int mm_pool_threads(const mmoe_group_config *config, int world) {
    if (config->threads > 0)
        return config->threads;
    cpu_set_t usable;
    int cores = sched_getaffinity(0, sizeof usable, &usable) == 0 ? CPU_COUNT(&usable) : 1;
    return cores / world > 1 ? cores / world : 1;
}

static void take_tasks(struct mm_pool *pool, const struct mm_pool_loop *loop, int thread) {
    while (!atomic_load_explicit(&pool->stopped, memory_order_relaxed)) {
        int64_t index = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
        if (index >= loop->count)
            return;
        if (loop->stop(loop->stop_context)) {
            atomic_store_explicit(&pool->stopped, true, memory_order_relaxed);
            return;
        }
        loop->task(loop->context, index, thread);
    }
}

static void *work(void *argument) {
    struct worker *self = argument;
    struct mm_pool *pool = self->pool;
    uint64_t seen = 0;
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        while (pool->loops == seen && !pool->closing)
            pthread_cond_wait(&pool->begin, &pool->lock);
        if (pool->closing)
            break;
        seen = pool->loops;
        const struct mm_pool_loop *loop = pool->loop;
        pthread_mutex_unlock(&pool->lock);
        take_tasks(pool, loop, self->number);
        pthread_mutex_lock(&pool->lock);
        if (--pool->busy == 0)
            pthread_cond_signal(&pool->done);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

mmoe_status mm_pool_create(int threads, struct mm_pool **out) {
    struct mm_pool *pool;
    *out = NULL;
    size_t bytes = sizeof *pool + (size_t)(threads - 1) * sizeof pool->worker[0];
    mmoe_status status = mm_alloc_zero((void **)&pool, bytes, "the thread pool");
    if (status != MMOE_OK)
        return status;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->begin, NULL);
    pthread_cond_init(&pool->done, NULL);
    for (int i = 0; i < threads - 1; i++) {
        struct worker *worker = &pool->worker[i];
        worker->pool = pool;
        worker->number = i + 1;
        int error = pthread_create(&worker->thread, NULL, work, worker);
        if (error != 0) {
            mm_pool_destroy(&pool);
            return mm_fail_system(error, "thread %d of %d could not be started", i + 2, threads);
        }
        pool->workers = i + 1;
    }
    *out = pool;
    return MMOE_OK;
}

void mm_pool_destroy(struct mm_pool **out) {
    struct mm_pool *pool = *out;
    if (pool == NULL)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->closing = true;
    pthread_cond_broadcast(&pool->begin);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->workers; i++)
        pthread_join(pool->worker[i].thread, NULL);
    pthread_cond_destroy(&pool->done);
    pthread_cond_destroy(&pool->begin);
    pthread_mutex_destroy(&pool->lock);
    mm_free(out);
}

bool mm_pool_run(struct mm_pool *pool, const struct mm_pool_loop *loop) {
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    atomic_store_explicit(&pool->stopped, false, memory_order_relaxed);
    bool alone = pool->workers == 0 || loop->count <= 1;
    if (!alone) {
        pthread_mutex_lock(&pool->lock);
        pool->loop = loop;
        pool->busy = pool->workers;
        pool->loops++;
        pthread_cond_broadcast(&pool->begin);
        pthread_mutex_unlock(&pool->lock);
    }
    take_tasks(pool, loop, 0);
    if (!alone) {
        pthread_mutex_lock(&pool->lock);
        while (pool->busy > 0)
            pthread_cond_wait(&pool->done, &pool->lock);
        pthread_mutex_unlock(&pool->lock);
    }
    return !atomic_load_explicit(&pool->stopped, memory_order_relaxed);
}
