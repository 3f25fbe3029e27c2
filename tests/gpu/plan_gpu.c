/* The routing plan kernels on a GPU: compared with the host's plan over random shapes, then timed.
 *
 *     plan_gpu CUBIN...
 *
 * Exit status 1 when a plan differs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/device_memory.h"
#include "cuda/kernel.h"
#include "kernels/enter_params.h"
#include "plan_kernel/device_plan.h"

#define TIMED_PLANS 200
#define FLUSH_BYTES ((size_t)256 << 20) /* more than the L2 cache holds */

struct bench {
    struct mm_gpu gpu;
    mm_cu_module modules[8];
    mm_cu_stream stream;
    mm_cu_event from, to;
    int multiprocessors;
    struct mm_device_buffer block, flush;
    struct mm_kernel count, place, enter;
};

static void must(mmoe_status status) {
    if (status != MMOE_OK) {
        fprintf(stderr, "plan_gpu: %s\n", mmoe_last_error());
        exit(1);
    }
}

#define CALL(b, function, ...) must(MM_CU(&(b)->gpu.driver, function, "plan_gpu", __VA_ARGS__))

static void *take(size_t bytes) {
    void *memory = malloc(bytes + 1);
    if (memory == NULL) {
        fprintf(stderr, "plan_gpu: no memory for %zu bytes\n", bytes);
        exit(1);
    }
    return memory;
}

/* ---- Setting up ---- */

static void load(struct bench *b, const char *path) {
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) {
        perror(path);
        exit(1);
    }
    const long bytes = ftell(file);
    rewind(file);
    void *image = take((size_t)bytes);
    if (bytes < 0 || fread(image, 1, (size_t)bytes, file) != (size_t)bytes) {
        perror(path);
        exit(1);
    }
    fclose(file);
    CALL(b, cuModuleLoadData, &b->modules[b->gpu.module_count++], image);
    free(image);
}

static void open_gpu(struct bench *b, int images, char **paths) {
    mm_cu_device device;
    must(mm_driver_open(&b->gpu.driver, MM_DRIVER_VERSION_NEEDED));
    CALL(b, cuDeviceGet, &device, 0);
    CALL(b, cuDevicePrimaryCtxRetain, &b->gpu.context, device);
    CALL(b, cuCtxPushCurrent, b->gpu.context);
    CALL(b, cuDeviceGetAttribute, &b->multiprocessors, MM_CU_MULTIPROCESSOR_COUNT, device);
    b->gpu.modules = b->modules;
    for (int i = 0; i < images; i++)
        load(b, paths[i]);
    CALL(b, cuStreamCreate, &b->stream, 0);
    CALL(b, cuEventCreate, &b->from, MM_CU_EVENT_TIMED);
    CALL(b, cuEventCreate, &b->to, MM_CU_EVENT_TIMED);
    must(mm_device_reserve(&b->gpu, &b->flush, FLUSH_BYTES, "what empties the cache"));
}

/* Shared memory depends on the case. */
static void find_kernels(struct bench *b, const struct plan_case *c) {
    const uint32_t experts = (uint32_t)c->shape.experts;
    must(mm_kernel_find(&b->gpu, "mm_count_slots", plan_count_shared_bytes(experts), &b->count));
    must(mm_kernel_find(&b->gpu, "mm_place_slots", plan_place_shared_bytes(experts, c->warps), &b->place));
    must(mm_kernel_find(&b->gpu, "mm_call_enter", ENTER_SHARED_BYTES, &b->enter));
}

/* ---- One plan ---- */

static void launch_count(const struct bench *b, const struct plan_params *p) {
    const struct mm_launch launch = {.stream = b->stream, .ctas = p->world * p->chunks, .threads = 32 * p->warps};
    must(mm_kernel_launch(&b->gpu, &b->count, &launch, p));
}

static void launch_place(const struct bench *b, const struct plan_params *p) {
    const struct mm_launch launch = {
        .stream = b->stream, .ctas = p->world * p->chunks, .threads = 32 * p->warps, .overlapping = true};
    must(mm_kernel_launch(&b->gpu, &b->place, &launch, p));
}

static void launch_plan(const struct bench *b, const struct plan_params *p) {
    launch_count(b, p);
    launch_place(b, p);
}

/* Puts the case on the device, everything else poisoned. */
static struct plan_params upload(struct bench *b, const struct plan_case *c, unsigned char poison) {
    struct plan_params params;
    const size_t bytes = plan_case_place(c, NULL, &params), input_bytes = plan_case_input_bytes(c);
    void *inputs = take(input_bytes);
    plan_case_write_inputs(c, inputs);
    must(mm_device_reserve(&b->gpu, &b->block, bytes, "the plan"));
    CALL(b, cuMemsetD8Async, b->block.address, poison, bytes, b->stream);
    must(mm_copy_to_device(&b->gpu, b->block.address, inputs, input_bytes, b->stream, "copying the ids"));
    plan_case_place(c, (void *)(uintptr_t)b->block.address, &params);
    CALL(b, cuStreamSynchronize, b->stream);
    free(inputs);
    return params;
}

static bool compare(struct bench *b, const struct plan_case *c, unsigned char poison) {
    struct plan_params params;
    const size_t bytes = plan_case_place(c, NULL, &params);
    void *block = take(bytes);
    must(mm_copy_to_host(&b->gpu, block, b->block.address, bytes, b->stream, "copying the plan"));
    CALL(b, cuStreamSynchronize, b->stream);
    const bool same = plan_case_compare(c, block, poison);
    free(block);
    return same;
}

static bool run_case(struct bench *b, const struct plan_case *c) {
    for (int i = 0; i < 2; i++) {
        const unsigned char poison = i == 0 ? 0xff : 0x4b;
        const struct plan_params params = upload(b, c, poison);
        find_kernels(b, c);
        launch_plan(b, &params);
        if (!compare(b, c, poison))
            return false;
    }
    return true;
}

/* ---- Random shapes ---- */

static bool run_random_case(struct bench *b, uint64_t seed) {
    struct plan_case c;
    plan_case_random(&c, seed, (uint32_t)b->multiprocessors, 1000);
    bool same = true;
    for (c.shape.rank = 0; same && c.shape.rank < c.shape.world; c.shape.rank++)
        same = run_case(b, &c);
    if (!same)
        printf("seed %llu differs\n", (unsigned long long)seed);
    plan_case_free(&c);
    return same;
}

/* ---- Timing ---- */

static double elapsed_us(struct bench *b) {
    float milliseconds;
    CALL(b, cuEventRecord, b->to, b->stream);
    CALL(b, cuEventSynchronize, b->to);
    CALL(b, cuEventElapsedTime, &milliseconds, b->from, b->to);
    return 1000.0 * milliseconds;
}

static double back_to_back_us(struct bench *b, const struct plan_params *p,
                              void (*launch)(const struct bench *, const struct plan_params *)) {
    for (int i = 0; i < 20; i++)
        launch(b, p);
    CALL(b, cuEventRecord, b->from, b->stream);
    for (int i = 0; i < TIMED_PLANS; i++)
        launch(b, p);
    return elapsed_us(b) / TIMED_PLANS;
}

static int compare_times(const void *a, const void *b) {
    const double difference = *(const double *)a - *(const double *)b;
    return (difference > 0) - (difference < 0);
}

/* The median of plans whose inputs are in no cache. */
static double cold_us(struct bench *b, const struct plan_params *p) {
    double times[TIMED_PLANS];
    for (int i = 0; i < TIMED_PLANS; i++) {
        CALL(b, cuMemsetD8Async, b->flush.address, (unsigned char)i, FLUSH_BYTES, b->stream);
        CALL(b, cuEventRecord, b->from, b->stream);
        launch_plan(b, p);
        times[i] = elapsed_us(b);
    }
    qsort(times, TIMED_PLANS, sizeof times[0], compare_times);
    return times[TIMED_PLANS / 2];
}

/* How the segments of all ranks lie behind one another, all of them on this GPU. */
struct segments {
    mm_cu_pointer base;
    size_t slots_bytes, bytes; /* of the ids, and of the weights; of a segment */
};

static struct segments segments_of(const struct plan_case *c, mm_cu_pointer base) {
    const size_t slots_bytes = mm_align((size_t)(c->tokens[0] * c->shape.top_k) * sizeof(int32_t));
    return (struct segments){base, slots_bytes, mm_align(sizeof(struct call_control)) + 2 * slots_bytes};
}

/* Whether each rank's segment holds the first rank's ids and weights. */
static bool same_slots(struct bench *b, const struct plan_case *c, const struct segments *s) {
    const size_t bytes = (size_t)(c->tokens[0] * c->shape.top_k) * sizeof(int32_t);
    char *segment = take(s->bytes);
    bool same = true;
    for (int r = 0; r < c->shape.world; r++) {
        must(mm_copy_to_host(&b->gpu, segment, s->base + (size_t)r * s->bytes, s->bytes, b->stream,
                             "copying a segment"));
        CALL(b, cuStreamSynchronize, b->stream);
        const char *ids = segment + mm_align(sizeof(struct call_control));
        same = same && memcmp(ids, c->ids, bytes) == 0 && memcmp(ids + s->slots_bytes, c->weights, bytes) == 0;
    }
    free(segment);
    return same;
}

/* What the first rank brings to a call, without its tokens. The number of the call doesn't matter. */
static struct enter_params enter_of(const struct plan_case *c, const struct plan_params *p, const struct segments *s,
                                    mm_cu_pointer scratch) {
    struct enter_params enter = {
        .group = {.world = p->world, .state = (struct call_state *)(uintptr_t)(scratch + 4096)},
        .ids = {(void *)(uintptr_t)p->ids, {p->top_k, 1}},
        .weights = {(void *)(uintptr_t)p->weights, {p->top_k, 1}},
        .tokens = (uint32_t)c->tokens[0],
        .top_k = p->top_k,
        .experts = p->experts,
        .ids_slot = mm_align(sizeof(struct call_control)),
        .weights_slot = mm_align(sizeof(struct call_control)) + s->slots_bytes,
        .ctas_done = (uint32_t *)(uintptr_t)scratch,
        .first_faults = (uint32_t *)(uintptr_t)(scratch + 128),
    };
    for (uint32_t r = 0; r < p->world; r++)
        enter.group.segment[r] = (unsigned char *)(uintptr_t)(s->base + r * s->bytes);
    return enter;
}

static double enter_us(struct bench *b, const struct plan_case *c, const struct plan_params *p, bool *same) {
    enum { SCRATCH_BYTES = 8192 };
    struct mm_device_buffer scratch = {0}, out = {0};
    const size_t bytes = segments_of(c, 0).bytes * p->world;
    must(mm_device_reserve(&b->gpu, &scratch, SCRATCH_BYTES, "scratch"));
    must(mm_device_reserve(&b->gpu, &out, bytes, "the segments of all ranks"));
    CALL(b, cuMemsetD8Async, scratch.address, 0, SCRATCH_BYTES, b->stream);
    CALL(b, cuMemsetD8Async, out.address, 0, bytes, b->stream);
    const struct segments segments = segments_of(c, out.address);
    const struct enter_params enter = enter_of(c, p, &segments, scratch.address);
    const struct mm_launch launch = {
        .stream = b->stream, .ctas = (unsigned)b->multiprocessors, .threads = ENTER_THREADS};
    for (int i = 0; i < 20 + TIMED_PLANS; i++) {
        if (i == 20)
            CALL(b, cuEventRecord, b->from, b->stream);
        must(mm_kernel_launch(&b->gpu, &b->enter, &launch, &enter));
    }
    const double time = elapsed_us(b) / TIMED_PLANS;
    *same = *same && same_slots(b, c, &segments);
    mm_device_free(&b->gpu, &scratch);
    mm_device_free(&b->gpu, &out);
    return time;
}

static bool time_case(struct bench *b, const char *name, enum rig_routing kind, int world, int experts) {
    struct rig_random random = rig_seed(7);
    struct plan_case c = {.shape = {.world = world, .experts = experts, .top_k = 8, .capacity = MM_NO_CAPACITY},
                          .max_tokens = 16384};
    for (int r = 0; r < world; r++)
        c.tokens[r] = (int32_t)c.max_tokens;
    /* The rank with the last expert: it has all rows of the skewed routing. */
    c.shape.rank = world - 1;
    plan_case_draw(&c, kind, &random, (uint32_t)b->multiprocessors);
    bool same = run_case(b, &c);
    const struct plan_params params = upload(b, &c, 0);
    const double enter = enter_us(b, &c, &params, &same);
    printf("%-12s %2d %5d %9.1f %9.1f %9.1f %9.1f %9.1f   %s\n", name, world, experts,
           back_to_back_us(b, &params, launch_plan), cold_us(b, &params), back_to_back_us(b, &params, launch_count),
           back_to_back_us(b, &params, launch_place), enter, same ? "equal" : "DIFFERENT");
    fflush(stdout);
    plan_case_free(&c);
    return same;
}

int main(int argc, char **argv) {
    enum { CASES = 200 };
    struct bench b = {0};
    int differ = 0;
    if (argc < 2 || argc > 9) {
        fprintf(stderr, "usage: plan_gpu CUBIN...\n");
        return 2;
    }
    open_gpu(&b, argc - 1, argv + 1);
    for (uint64_t seed = 0; seed < CASES; seed++)
        differ += !run_random_case(&b, seed);
    printf("%d random routings, every rank: %d differ from the host's plan\n\n", CASES, differ);
    printf("16384 tokens a rank, 8 slots, microseconds; %d multiprocessors\n", b.multiprocessors);
    printf("%-12s %2s %5s %9s %9s %9s %9s %9s\n", "routing", "W", "E", "plan", "cold", "count", "place", "enter");
    differ += !time_case(&b, "uniform", RIG_UNIFORM, 8, 128);
    differ += !time_case(&b, "zipf", RIG_ZIPF, 8, 128);
    differ += !time_case(&b, "one expert", RIG_ONE_EXPERT, 8, 128);
    differ += !time_case(&b, "a third -1", RIG_HOLES, 8, 128);
    differ += !time_case(&b, "uniform", RIG_UNIFORM, 1, 128);
    differ += !time_case(&b, "uniform", RIG_UNIFORM, 2, 128);
    differ += !time_case(&b, "uniform", RIG_UNIFORM, 8, 512);
    differ += !time_case(&b, "uniform", RIG_UNIFORM, 1, 512);
    mm_device_free(&b.gpu, &b.block);
    mm_device_free(&b.gpu, &b.flush);
    return differ > 0;
}
