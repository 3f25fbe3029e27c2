/* Traces of ranks whose GPUs have different clocks: moved so that results arrive after they were pushed; and two calls
 * on one time line. */
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

#define EVENTS                                                                                                         \
    3 /* of a rank and call: two pushes to both ranks, the second one later, the arrival of its own results */
#define MOST (TRACE_PASSES * EVENTS)

struct scene {
    struct problem problem;
    struct traces traces;
    mmoe_trace_event events[2 * MOST];
};

static void open_scene(struct scene *scene) {
    memset(scene, 0, sizeof *scene);
    scene->problem.world = 2;
    scene->traces.problem = &scene->problem;
    scene->traces.events = scene->events;
    scene->traces.most_events = MOST;
    for (int r = 0; r < 2; r++)
        for (int pass = 0; pass < TRACE_PASSES; pass++)
            scene->traces.rank[r].call[pass].trace =
                (mmoe_trace){.rank = r, .world = 2, .events = scene->events + r * MOST};
}

/* A call that begins at `begin`: rank r's last push ends pushed[r] later, it has its results arrived[r] later; rank 1's
 * clock shows `off` more. Calls are set in order. */
static void set(struct scene *scene, enum trace_pass pass, int64_t begin, const int64_t pushed[2],
                const int64_t arrived[2], int64_t off) {
    for (int r = 0; r < 2; r++) {
        mmoe_trace_event *events = scene->events + r * MOST + (int)pass * EVENTS;
        const int64_t by = begin + (r == 1 ? off : 0);
        events[0] = (mmoe_trace_event){.kind = MMOE_TRACE_PUSH, .ranks = 3, .begin_ns = by, .end_ns = 10 + by};
        events[1] =
            (mmoe_trace_event){.kind = MMOE_TRACE_PUSH, .ranks = 3, .begin_ns = 10 + by, .end_ns = pushed[r] + by};
        events[2] = (mmoe_trace_event){.role = MMOE_TRACE_CONSUMER,
                                       .kind = MMOE_TRACE_AWAIT_RESULTS,
                                       .begin_ns = 20 + by,
                                       .end_ns = arrived[r] + by};
        scene->traces.rank[r].call[pass].trace = (mmoe_trace){.rank = r,
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
    open_scene(&scene);
    set(&scene, TRACE_FORWARD, 0, pushed, arrived, off);
    traces_align(&scene.traces);
    assert_int_equal(scene.traces.rank[0].shift_ns, 0);
    assert_int_equal(scene.traces.rank[1].shift_ns, shift);
    assert_int_equal(scene.events[2].end_ns, arrived[0]);
    assert_int_equal(scene.events[MOST].begin_ns, off + shift);
    assert_int_equal(scene.events[MOST + 2].end_ns, arrived[1] + off + shift);
    assert_int_equal(scene.traces.rank[1].call[TRACE_FORWARD].trace.begin_ns, off + shift);
    assert_int_equal(scene.traces.rank[1].call[TRACE_FORWARD].trace.end_ns, arrived[1] + off + shift);
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
    open_scene(&scene);
    set(&scene, TRACE_FORWARD, 0, pushed, arrived, 777777);
    for (int e = 0; e < 2 * MOST; e++)
        scene.events[e].ranks &= scene.events[e].ranks ? (uint64_t)1 << (e / MOST) : 0; /* to themselves alone */
    traces_align(&scene.traces);
    assert_int_equal(scene.traces.rank[1].shift_ns, 0);
    scene.traces.rank[1].call[TRACE_FORWARD].trace.count = 0;
    traces_align(&scene.traces);
    assert_int_equal(scene.traces.rank[1].shift_ns, 0);
}

/* In the second call rank 1 is the slower one: what it pushes reaches rank 0 one later. So much the first can't tell.
 */
static void two_calls_know_more(void **state) {
    (void)state;
    static const int64_t pushed_later[2] = {900, 1000}, arrived_later[2] = {1001, 1003};
    struct scene scene;
    open_scene(&scene);
    set(&scene, TRACE_FORWARD, 0, pushed, arrived, 5000);
    set(&scene, TRACE_BACKWARD, 100000, pushed_later, arrived_later, 5000);
    traces_align(&scene.traces);
    assert_int_equal(scene.traces.rank[1].shift_ns, 1 - 5000);
    assert_int_equal(scene.events[MOST + 1].end_ns, 901);
    assert_int_equal(scene.events[MOST + EVENTS + 1].end_ns, 101001);
}

/* What lies between two calls is cut out, to a hundredth of both; no less than there was is left. */
static void expect_cut(int64_t between, int64_t cut) {
    static const int64_t sent[2] = {900, 800}, there[2] = {1000, 1000};
    struct scene scene;
    open_scene(&scene);
    set(&scene, TRACE_FORWARD, 500, sent, there, 0);
    set(&scene, TRACE_BACKWARD, 1500 + between, sent, there, 0);
    traces_join(&scene.traces);
    assert_int_equal(scene.traces.cut_ns, cut);
    assert_int_equal(scene.traces.begin_ns, 500);
    assert_int_equal(scene.traces.end_ns, 2500 + between - cut);
    assert_int_equal(scene.traces.rank[1].call[TRACE_BACKWARD].trace.begin_ns, 1500 + between - cut);
    const mmoe_trace *whole = &scene.traces.rank[1].whole;
    assert_int_equal(whole->count, 2 * EVENTS);
    assert_int_equal(whole->multiprocessors, 1);
    for (int64_t e = 1; e < whole->count; e++) {
        const mmoe_trace_event *event = &whole->events[e];
        assert_true(event->role > event[-1].role || event->begin_ns >= event[-1].begin_ns);
    }
}

static void calls_on_one_line(void **state) {
    (void)state;
    expect_cut(1000000, 1000000 - 20);
    expect_cut(10, 0);
}

static void one_call_alone(void **state) {
    (void)state;
    for (int pass = 0; pass < TRACE_PASSES; pass++) {
        struct scene scene;
        open_scene(&scene);
        set(&scene, (enum trace_pass)pass, 300, pushed, arrived, 0);
        traces_join(&scene.traces);
        assert_int_equal(scene.traces.cut_ns, 0);
        assert_int_equal(scene.traces.begin_ns, 300);
        assert_int_equal(scene.traces.end_ns, 300 + arrived[0]);
        assert_int_equal(scene.traces.rank[0].whole.count, EVENTS);
        assert_int_equal(scene.traces.rank[0].whole.begin_ns, 300);
        assert_int_equal(scene.traces.rank[0].whole.end_ns, 300 + arrived[0]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_clock),      cmocka_unit_test(a_clock_ahead),       cmocka_unit_test(a_clock_behind),
        cmocka_unit_test(nothing_known),  cmocka_unit_test(two_calls_know_more), cmocka_unit_test(calls_on_one_line),
        cmocka_unit_test(one_call_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
