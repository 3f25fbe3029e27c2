/* Calls on streams of the caller, on one GPU. */
#include <dlfcn.h>
#include <string.h>

#include "cuda/state.h"
#include "support.h"

/* Flags of the driver: a stream that does not wait for the default one; other streams may do anything in a capture. */
enum { NON_BLOCKING = 1, CAPTURE_RELAXED = 2 };

static const struct mm_driver *driver_of(const struct rig_rank *rank) {
    const struct mm_cuda_group *cuda = rank->group->backend_state;
    return &cuda->gpu.driver;
}

#define RIG_CU(rank, call) RIG_EXPECT(rank, (call) == MM_CUDA_SUCCESS, "%s failed", #call)

static struct rig_batch some_batch(void) {
    mmoe_layer_config layer = rig_layer(128, 64, 4, 2);
    const int64_t tokens = 50;
    return rig_batch_make(&layer, 1, &tokens, RIG_HOLES, 501);
}

/* ---- A stream of the caller ---- */

struct same {
    struct rig_batch first, other;
};

/* Forward and backward on a stream that nothing but these calls and the wait for it orders. */
static void own_stream_body(struct rig_rank *rank, void *context) {
    struct rig_batch *batch = &((struct same *)context)->other;
    const struct rig_options options = {.keep = MMOE_KEEP_ROWS};
    const struct mm_driver *driver = driver_of(rank);
    mmoe_layer *layer;
    mmoe_saved *saved;
    mm_cu_stream stream;
    struct rig_placed placed;
    RIG_OK(rank, mmoe_layer_create(rank->group, &batch->layer, &layer));
    RIG_OK(rank, mmoe_saved_create(layer, MMOE_KEEP_ROWS, &saved));
    struct rig_call call = rig_call_make(rank, batch, &options, saved, 0xff);
    RIG_EXPECT(rank, rig_call_place(rank, &call, &placed), "not placed");
    RIG_OK(rank, mm_gpu_enter(&((struct mm_cuda_group *)rank->group->backend_state)->gpu));
    RIG_CU(rank, driver->cuStreamCreate(&stream, NON_BLOCKING));
    call.forward.stream = call.backward.stream = stream;
    for (int i = 0; i < 3; i++) {
        RIG_OK(rank, mmoe_forward(layer, &call.forward));
        RIG_OK(rank, mmoe_backward(layer, &call.backward));
    }
    RIG_CU(rank, driver->cuStreamSynchronize(stream));
    RIG_EXPECT(rank,
               rig_call_fetch(rank, &call, &placed) && rig_call_take_forward(rank, &call, batch) &&
                   rig_call_take_backward(rank, &call, batch),
               "not taken");
    RIG_CU(rank, driver->cuStreamDestroy(stream));
    mm_gpu_leave(&((struct mm_cuda_group *)rank->group->backend_state)->gpu);
    rig_placed_free(rank, &placed);
    rig_call_free(&call);
    mmoe_saved_destroy(&saved);
    mmoe_layer_destroy(&layer);
}

static void a_stream_of_the_caller_gives_the_same_bits(void **state) {
    (void)state;
    const struct rig_options options = {.keep = MMOE_KEEP_ROWS};
    struct same same = {some_batch(), some_batch()};
    run_one(&same.first, &options);
    struct rig_world world = rig_world_for(&same.other, 1, RIG_THREADS);
    rig_world_run(&world, own_stream_body, &same);
    rig_same_bits(&same.first, &same.other, "another stream");
    rig_batch_free(&same.first);
    rig_batch_free(&same.other);
}

/* ---- B35: capture ---- */

typedef mm_cu_result begin_capture(mm_cu_stream stream, int mode);
typedef mm_cu_result end_capture(mm_cu_stream stream, void **graph);

/* ISO C has no conversion from an object pointer to a function pointer. */
static bool find(const struct mm_driver *driver, const char *name, void *function) {
    void *found = dlsym(driver->library, name);
    memcpy(function, &found, sizeof found);
    return found != NULL;
}

/* A forward while its stream is captured: refused with a sentence, nothing is written, and the next call works. */
static void capture_body(struct rig_rank *rank, void *context) {
    struct rig_batch *batch = context;
    const struct rig_options options = {0};
    const struct mm_driver *driver = driver_of(rank);
    begin_capture *begin;
    end_capture *end;
    mmoe_layer *layer;
    mmoe_saved *saved;
    mm_cu_stream stream;
    struct rig_placed placed;
    void *graph;
    RIG_EXPECT(rank, find(driver, "cuStreamBeginCapture_v2", &begin) && find(driver, "cuStreamEndCapture", &end),
               "the driver can't capture");
    RIG_OK(rank, mmoe_layer_create(rank->group, &batch->layer, &layer));
    RIG_OK(rank, mmoe_saved_create(layer, MMOE_KEEP_PLAN, &saved));
    struct rig_call call = rig_call_make(rank, batch, &options, saved, 0x7f);
    RIG_EXPECT(rank, rig_call_place(rank, &call, &placed), "not placed");
    RIG_OK(rank, mm_gpu_enter(&((struct mm_cuda_group *)rank->group->backend_state)->gpu));
    RIG_CU(rank, driver->cuStreamCreate(&stream, NON_BLOCKING));
    call.forward.stream = stream;
    RIG_CU(rank, begin(stream, CAPTURE_RELAXED));
    const mmoe_status status = mmoe_forward(layer, &call.forward);
    RIG_EXPECT(rank, status == MMOE_UNSUPPORTED && strstr(mmoe_last_error(), "stream is being captured"), "%s: %s",
               mmoe_status_name(status), mmoe_last_error());
    RIG_CU(rank, end(stream, &graph));
    RIG_CU(rank, driver->cuStreamDestroy(stream));
    mm_gpu_leave(&((struct mm_cuda_group *)rank->group->backend_state)->gpu);
    RIG_EXPECT(rank, rig_call_fetch(rank, &call, &placed) && rig_call_untouched(&call), "a refused call wrote");
    rig_placed_free(rank, &placed);
    rig_call_free(&call);
    if (!rig_step(rank, layer, saved, batch, &options, 0xff))
        return;
    mmoe_saved_destroy(&saved);
    mmoe_layer_destroy(&layer);
}

static void b35_capture_is_refused(void **state) {
    (void)state;
    not_at_small_size("capture of a stream, which the simulator does not know");
    const struct rig_options options = {0};
    struct rig_batch batch = some_batch();
    struct rig_world world = rig_world_for(&batch, 1, RIG_THREADS);
    rig_world_run(&world, capture_body, &batch);
    rig_compare(&batch, &options, RIG_BOUND);
    rig_batch_free(&batch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_of_the_caller_gives_the_same_bits),
        cmocka_unit_test(b35_capture_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
