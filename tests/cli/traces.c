/* Traces of ranks whose GPUs have different clocks: moved so that results arrive after they were pushed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "traces.h"

/* What traces.c needs of the rest, and these tests don't. */
int rank_fail(struct rank *rank, int code, const char *format, ...) {
    (void)rank, (void)format;
    return code;
}
int rank_gather(struct rank *rank, const void *mine, size_t bytes, void *all) {
    (void)rank, (void)mine, (void)bytes, (void)all;
    return 0;
}
bool rank_all_well(struct rank *rank) {
    (void)rank;
    return true;
}

#define EVENTS 3 /* of a rank: two pushes to both ranks, the second one later, and the arrival of its own results */

struct scene {
    struct problem problem;
    struct traces traces;
    mmoe_trace_event events[2 * EVENTS];
};

/* Rank r's last push ends at pushed[r], it has its results at arrived[r]; rank 1's clock shows `off` more. */
static void set(struct scene *scene, const int64_t pushed[2], const int64_t arrived[2], int64_t off) {
    memset(scene, 0, sizeof *scene);
    scene->problem.world = 2;
    scene->traces.problem = &scene->problem;
    scene->traces.events = scene->events;
    for (int r = 0; r < 2; r++) {
        mmoe_trace_event *events = scene->events + r * EVENTS;
        const int64_t by = r == 1 ? off : 0;
        events[0] = (mmoe_trace_event){.kind = MMOE_TRACE_PUSH, .ranks = 3, .begin_ns = by, .end_ns = 10 + by};
        events[1] =
            (mmoe_trace_event){.kind = MMOE_TRACE_PUSH, .ranks = 3, .begin_ns = 10 + by, .end_ns = pushed[r] + by};
        events[2] =
            (mmoe_trace_event){.kind = MMOE_TRACE_AWAIT_RESULTS, .begin_ns = 20 + by, .end_ns = arrived[r] + by};
        scene->traces.rank[r].trace = (mmoe_trace){.rank = r,
                                                   .world = 2,
                                                   .multiprocessors = 1,
                                                   .events = events,
                                                   .count = EVENTS,
                                                   .begin_ns = by,
                                                   .end_ns = arrived[r] + by};
    }
}

static void expect_shift(const int64_t pushed[2], const int64_t arrived[2], int64_t off, int64_t shift) {
    struct scene scene;
    set(&scene, pushed, arrived, off);
    traces_align(&scene.traces);
    assert_int_equal(scene.traces.rank[0].shift_ns, 0);
    assert_int_equal(scene.traces.rank[1].shift_ns, shift);
    assert_int_equal(scene.events[2].end_ns, arrived[0]);
    assert_int_equal(scene.events[EVENTS].begin_ns, off + shift);
    assert_int_equal(scene.events[EVENTS + 2].end_ns, arrived[1] + off + shift);
    assert_int_equal(scene.traces.rank[1].trace.begin_ns, off + shift);
    assert_int_equal(scene.traces.rank[1].trace.end_ns, arrived[1] + off + shift);
}

/* Rank 0 is the slower one: rank 1 awaits its results, which come 2 after they were pushed. */
static const int64_t pushed[2] = {1000, 900}, arrived[2] = {1005, 1002};

static void one_clock(void **state) {
    (void)state;
    expect_shift(pushed, arrived, 0, 0);
    expect_shift(pushed, arrived, 100, 0); /* could be: nobody can tell */
}

static void a_clock_ahead(void **state) {
    (void)state;
    expect_shift(pushed, arrived, 5000000, 105 - 5000000);
}

static void a_clock_behind(void **state) {
    (void)state;
    expect_shift(pushed, arrived, -5000000, 5000000 - 2);
}

static void nothing_known(void **state) {
    (void)state;
    struct scene scene;
    set(&scene, pushed, arrived, 777777);
    for (int e = 0; e < 2 * EVENTS; e++)
        scene.events[e].ranks &= scene.events[e].ranks ? (uint64_t)1 << (e / EVENTS) : 0; /* to themselves alone */
    traces_align(&scene.traces);
    assert_int_equal(scene.traces.rank[1].shift_ns, 0);
    scene.traces.rank[1].trace.count = 0;
    traces_align(&scene.traces);
    assert_int_equal(scene.traces.rank[1].shift_ns, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_clock),
        cmocka_unit_test(a_clock_ahead),
        cmocka_unit_test(a_clock_behind),
        cmocka_unit_test(nothing_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
