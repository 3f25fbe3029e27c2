/* What the host makes of failures that a device tells of while it asks: this program plays the device. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cuda/failure.h"
#include "kernels/call_params.h"

#define BEHIND "; calls that failed after it: "

enum { CALLS = 200000 };

struct scene {
    struct mmoe_group group;
    struct mm_cuda_group cuda;
    struct call_told told;
    bool ended;
};

static void set_up(struct scene *scene) {
    memset(scene, 0, sizeof *scene);
    scene->cuda.told = &scene->told;
    scene->group.backend_state = &scene->cuda;
}

/* ---- The device's part, as in call_end.cuh ---- */

static uint32_t count(struct scene *scene) {
    return __atomic_add_fetch(&scene->told.failures, 1, __ATOMIC_SEQ_CST);
}

static void tell_in(struct call_failure *to, uint32_t call, uint32_t number) {
    to->number = number;
    to->result.outcome = CALL_NO_FORWARD;
    __atomic_store_n(&to->result.call, call, __ATOMIC_RELEASE);
}

static void tell_first_if_seen(struct scene *scene, uint32_t call, uint32_t number) {
    struct call_told *told = &scene->told;
    if (__atomic_load_n(&told->seen, __ATOMIC_SEQ_CST) == told->first.result.call)
        tell_in(&told->first, call, number);
}

static void fail_call(struct scene *scene, uint32_t call) {
    const uint32_t number = count(scene);
    tell_in(&scene->told.last, call, number);
    tell_first_if_seen(scene, call, number);
}

/* ---- What the host says ---- */

/* The call that the last sentence is about, and how many it says failed after it. */
static uint32_t named(uint32_t *others) {
    unsigned call = 0, more = 0;
    const char *text = mmoe_last_error(), *behind = strstr(text, BEHIND);
    if (sscanf(text, "the forward that backward %u belongs to failed", &call) != 1 ||
        (behind != NULL && sscanf(behind + strlen(BEHIND), "%u", &more) != 1))
        fail_msg("\"%s\"", text);
    *others = more;
    return call;
}

static void assert_told(mmoe_status status, uint32_t call, uint32_t others) {
    uint32_t more;
    assert_int_equal(status, MMOE_REFUSED);
    assert_int_equal(named(&more), call);
    assert_int_equal(more, others);
}

static void those_behind_are_counted(void **state) {
    struct scene scene;
    (void)state;
    set_up(&scene);
    assert_int_equal(mm_cuda_failure(&scene.group), MMOE_OK);
    fail_call(&scene, 3);
    fail_call(&scene, 4);
    fail_call(&scene, 7);
    assert_told(mm_cuda_failure(&scene.group), 3, 2);
    assert_int_equal(mm_cuda_failure(&scene.group), MMOE_OK);
    fail_call(&scene, 8);
    assert_told(mm_cuda_failure(&scene.group), 8, 0);
}

static void what_a_call_told_of_itself_is_not_counted(void **state) {
    struct scene scene;
    (void)state;
    set_up(&scene);
    fail_call(&scene, 3);
    fail_call(&scene, 4);
    assert_told(mm_cuda_failure_of(&scene.group, 4), 4, 0);
    fail_call(&scene, 5);
    assert_told(mm_cuda_failure(&scene.group), 3, 1);
    fail_call(&scene, 6);
    fail_call(&scene, 7);
    assert_told(mm_cuda_failure(&scene.group), 6, 1);
}

/* The device has counted call 4 when the host asks, and looks what has been seen after that. */
static void one_fails_while_the_host_asks(void **state) {
    struct scene scene;
    (void)state;
    set_up(&scene);
    fail_call(&scene, 3);
    const uint32_t number = count(&scene);
    tell_in(&scene.told.last, 4, number);
    assert_told(mm_cuda_failure(&scene.group), 3, 1);
    tell_first_if_seen(&scene, 4, number);
    assert_told(mm_cuda_failure(&scene.group), 4, 0);
    assert_int_equal(mm_cuda_failure(&scene.group), MMOE_OK);
}

static void *fail_all(void *context) {
    struct scene *scene = context;
    for (uint32_t call = 1; call <= CALLS; call++)
        fail_call(scene, call);
    __atomic_store_n(&scene->ended, true, __ATOMIC_RELEASE);
    return NULL;
}

/* Whatever the device does meanwhile, each failure is named or counted. */
static void none_is_lost(void **state) {
    struct scene scene;
    pthread_t device;
    uint32_t told_up_to = 0;
    (void)state;
    set_up(&scene);
    assert_int_equal(pthread_create(&device, NULL, fail_all, &scene), 0);
    for (bool ended = false; !ended;) {
        ended = __atomic_load_n(&scene.ended, __ATOMIC_ACQUIRE);
        while (mm_cuda_failure(&scene.group) != MMOE_OK) {
            uint32_t others;
            const uint32_t call = named(&others);
            if (call > told_up_to + 1 || call + others < told_up_to || others > CALLS - call)
                fail_msg("call %u and %u after it are told of, those up to %u have been", call, others, told_up_to);
            told_up_to = call + others;
        }
    }
    pthread_join(device, NULL);
    assert_int_equal(told_up_to, CALLS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(those_behind_are_counted),
        cmocka_unit_test(what_a_call_told_of_itself_is_not_counted),
        cmocka_unit_test(one_fails_while_the_host_asks),
        cmocka_unit_test(none_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
