/* The thread pool: every task once, whatever the number of threads; stopping. */
#include "check.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "cpu/pool.h"

enum { TASKS = 2000, LOOPS = 50 };

struct counts {
    atomic_int ran[TASKS];
    atomic_int bad_thread;
    int threads;
};

static void count(const void *context, int64_t index, int thread) {
    struct counts *counts = *(struct counts *const *)context;
    atomic_fetch_add(&counts->ran[index], 1);
    if (thread < 0 || thread >= counts->threads)
        atomic_fetch_add(&counts->bad_thread, 1);
}

static bool never(void *context) {
    (void)context;
    return false;
}

static void every_task_runs_once(void **state) {
    (void)state;
    for (int threads = 1; threads <= 5; threads++) {
        struct mm_pool *pool;
        struct counts *counts = calloc(1, sizeof *counts);
        counts->threads = threads;
        assert_int_equal(mm_pool_create(threads, &pool), MMOE_OK);
        for (int n = 0; n < LOOPS; n++) {
            struct mm_pool_loop loop = {n % 3 == 0 ? n % 2 : TASKS, count, &counts, never, NULL};
            assert_true(mm_pool_run(pool, &loop));
        }
        int expected_first = 0, expected = 0;
        for (int n = 0; n < LOOPS; n++) {
            expected += n % 3 != 0;
            expected_first += n % 3 != 0 || n % 2 == 1;
        }
        assert_int_equal(counts->ran[0], expected_first);
        for (int i = 1; i < TASKS; i++)
            assert_int_equal(counts->ran[i], expected);
        assert_int_equal(counts->bad_thread, 0);
        mm_pool_destroy(&pool);
        assert_null(pool);
        mm_pool_destroy(&pool);
        free(counts);
    }
}

static bool after_ten(void *context) {
    return atomic_fetch_add((atomic_int *)context, 1) >= 10;
}

static void a_stopped_loop_begins_no_more_tasks(void **state) {
    (void)state;
    struct mm_pool *pool;
    struct counts *counts = calloc(1, sizeof *counts);
    counts->threads = 3;
    assert_int_equal(mm_pool_create(3, &pool), MMOE_OK);
    atomic_int asked = 0;
    struct mm_pool_loop stopped = {TASKS, count, &counts, after_ten, &asked};
    assert_false(mm_pool_run(pool, &stopped));
    int ran = 0;
    for (int i = 0; i < TASKS; i++)
        ran += counts->ran[i];
    assert_int_equal(ran, 10);
    struct mm_pool_loop again = {TASKS, count, &counts, never, NULL}; /* the pool is as good as new */
    assert_true(mm_pool_run(pool, &again));
    mm_pool_destroy(&pool);
    free(counts);
}

static void threads_are_shared_among_the_ranks(void **state) {
    (void)state;
    mmoe_group_config config = {.threads = 0};
    int cores = mm_pool_threads(&config, 1);
    assert_true(cores >= 1);
    assert_int_equal(mm_pool_threads(&config, 2), cores / 2 > 1 ? cores / 2 : 1);
    assert_int_equal(mm_pool_threads(&config, 64 * cores), 1);
    config.threads = 7;
    assert_int_equal(mm_pool_threads(&config, 4), 7);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_task_runs_once),
        cmocka_unit_test(a_stopped_loop_begins_no_more_tasks),
        cmocka_unit_test(threads_are_shared_among_the_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
