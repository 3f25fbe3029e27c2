/* How often a call over several GPUs has its host read, wait or allocate: a growing forward reads once, whatever room
 * there is, and allocates only for want of it; with a fixed capacity nothing of the kind happens. */
#include "cuda/state.h"
#include "gpus.h"

#define TOP_K 2

static const struct rig_options keep_plan = {.keep = MMOE_KEEP_PLAN}, keep_rows = {.keep = MMOE_KEEP_ROWS};

/* ---- The driver's functions, counted ---- */

static struct mm_driver real;

/* By this thread, which is a rank. */
static _Thread_local struct { int reads, waits, allocations; } counted;

static mm_cu_result count_read(void *to, mm_cu_pointer from, size_t bytes, mm_cu_stream stream) {
    counted.reads++;
    return real.cuMemcpyDtoHAsync(to, from, bytes, stream);
}

static mm_cu_result count_stream_wait(mm_cu_stream stream) {
    counted.waits++;
    return real.cuStreamSynchronize(stream);
}

static mm_cu_result count_context_wait(void) {
    counted.waits++;
    return real.cuCtxSynchronize();
}

static mm_cu_result count_event_wait(mm_cu_event event) {
    counted.waits++;
    return real.cuEventSynchronize(event);
}

/* A host that looks whether it may go on waits. */
static mm_cu_result count_look(mm_cu_event event) {
    counted.waits++;
    return real.cuEventQuery(event);
}

static mm_cu_result count_allocation(mm_cu_pointer *pointer, size_t bytes) {
    counted.allocations++;
    return real.cuMemAlloc(pointer, bytes);
}

static mm_cu_result count_queued_allocation(mm_cu_pointer *pointer, size_t bytes, mm_cu_pool pool,
                                            mm_cu_stream stream) {
    counted.allocations++;
    return real.cuMemAllocFromPoolAsync(pointer, bytes, pool, stream);
}

static mm_cu_result count_pinned_allocation(void **pointer, size_t bytes, unsigned flags) {
    counted.allocations++;
    return real.cuMemHostAlloc(pointer, bytes, flags);
}

static void count_all_of(const mmoe_group *group) {
    struct mm_driver *driver = &((struct mm_cuda_group *)group->backend_state)->gpu.driver;
    driver->cuMemcpyDtoHAsync = count_read;
    driver->cuStreamSynchronize = count_stream_wait;
    driver->cuCtxSynchronize = count_context_wait;
    driver->cuEventSynchronize = count_event_wait;
    driver->cuEventQuery = count_look;
    driver->cuMemAlloc = count_allocation;
    driver->cuMemAllocFromPoolAsync = count_queued_allocation;
    driver->cuMemHostAlloc = count_pinned_allocation;
}

/* ---- Calls ---- */

struct step {
    int64_t tokens;
    int reads;
    bool allocates;
};

#define MOST_STEPS 5

struct counting {
    struct rig_batch batch[MOST_STEPS];
    const struct step *steps;
    const struct rig_options *options;
    int count;
};

static bool is_counted(struct rig_rank *rank, const char *what, int step, int reads, bool allocates, bool waits) {
    RIG_TRY(rank, counted.reads == reads && (counted.allocations > 0) <= allocates && (counted.waits > 0) <= waits,
            "%s %d: %d reads, %d allocations, %d waits, expected %d reads", what, step, counted.reads,
            counted.allocations, counted.waits, reads);
    counted.reads = counted.waits = counted.allocations = 0;
    return true;
}

static bool make_step(struct rig_rank *rank, struct counting *counting, int i, mmoe_layer *layer, mmoe_saved *saved) {
    const struct step *step = &counting->steps[i];
    const bool grows = counting->batch[i].layer.capacity_policy == MMOE_CAPACITY_GROW;
    struct rig_placed placed;
    struct rig_call call = rig_call_make(rank, &counting->batch[i], counting->options, saved, 0xff);
    if (!rig_call_place(rank, &call, &placed))
        return false;
    counted.reads = counted.waits = counted.allocations = 0;
    RIG_TRY(rank, mmoe_forward(layer, &call.forward) == MMOE_OK, "%s", mmoe_last_error());
    if (!is_counted(rank, "forward", i, step->reads, step->allocates, grows))
        return false;
    RIG_TRY(rank, mmoe_backward(layer, &call.backward) == MMOE_OK, "%s", mmoe_last_error());
    if (!is_counted(rank, "backward", i, 0, step->allocates, false))
        return false;
    const bool good = rig_call_fetch(rank, &call, &placed) && rig_call_take_forward(rank, &call, &counting->batch[i]) &&
                      rig_call_take_backward(rank, &call, &counting->batch[i]);
    rig_placed_free(rank, &placed);
    rig_call_free(&call);
    return good;
}

static void counting_body(struct rig_rank *rank, void *context) {
    struct counting *counting = context;
    mmoe_layer *layer;
    mmoe_saved *saved;
    RIG_OK(rank, mmoe_layer_create(rank->group, &counting->batch[0].layer, &layer));
    RIG_OK(rank, mmoe_saved_create(layer, counting->options->keep, &saved));
    count_all_of(rank->group);
    for (int i = 0; i < counting->count; i++)
        if (!make_step(rank, counting, i, layer, saved))
            return;
    mmoe_saved_destroy(&saved);
    mmoe_layer_destroy(&layer);
}

/* The driver's functions, as any group has them. */
static void find_real_functions(void) {
    if (real.cuInit == NULL)
        assert_int_equal(mm_driver_open(&real, MM_DRIVER_VERSION_NEEDED), MMOE_OK);
}

static void run(int world, const mmoe_layer_config *layer, const struct step *steps, int count,
                const struct rig_options *options) {
    struct counting counting = {.steps = steps, .options = options, .count = count};
    for (int i = 0; i < count; i++) {
        int64_t tokens[MMOE_MAX_WORLD];
        for (int r = 0; r < world; r++)
            tokens[r] = steps[i].tokens;
        counting.batch[i] = rig_batch_make(layer, world, tokens, RIG_ONE_EXPERT, 890 + (uint64_t)i);
        rig_batch_positive(&counting.batch[i]);
    }
    struct rig_world ranks = rig_world_for(counting.batch, count, gpus_kind);
    find_real_functions();
    rig_world_run(&ranks, counting_body, &counting);
    for (int i = 0; i < count; i++) {
        rig_compare(&counting.batch[i], options, RIG_BOUND);
        rig_batch_free(&counting.batch[i]);
    }
}

/* All rows go to one rank, at last more of them than there is a plan for. */
static void a_growing_forward_reads_once(void **state) {
    (void)state;
    static const struct step steps[] = {{10, 1, true}, {10, 1, false}, {150, 1, true}, {300, 1, true}, {300, 1, false}};
    for
        GPUS_EACH_WORLD(world)
    for (int keep = 0; keep < 2; keep++) {
        const mmoe_layer_config layer = rig_layer(64, 64, world, TOP_K);
        run(world, &layer, steps, COUNT(steps), keep ? &keep_rows : &keep_plan);
    }
}

static void a_fixed_capacity_needs_no_host(void **state) {
    (void)state;
    static const struct step steps[] = {{10, 0, false}, {0, 0, false}, {60, 0, false}};
    for
        GPUS_EACH_WORLD(world)
    for (int keep = 0; keep < 2; keep++) {
        mmoe_layer_config layer = rig_layer(64, 64, 2 * world, TOP_K);
        layer.capacity_policy = MMOE_CAPACITY_FIXED;
        layer.capacity = 60 * world * TOP_K;
        run(world, &layer, steps, COUNT(steps), keep ? &keep_rows : &keep_plan);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_growing_forward_reads_once),
        cmocka_unit_test(a_fixed_capacity_needs_no_host),
    };
    return gpus_main(2, (struct gpus_tests){NULL, 0}, GPUS_TESTS(tests));
}
