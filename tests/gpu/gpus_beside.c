/* Calls over several GPUs beside other kernels: they end with any part of the multiprocessors, whatever is held on
 * which rank, also beside collectives that the ranks begin in opposite order; and they read inputs when the stream has
 * come to them. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fused/hold.h"
#include "graphs.h"
#include "ready.h"

#define HIDDEN 128
#define INNER 64
#define TOP_K 2

/* ---- A kernel that holds multiprocessors ---- */

/* More shared memory than a fused kernel leaves, so that no multiprocessor has room for both. */
#define HOLD_SHARED_BYTES (200u << 10)

enum { RUNNING, LET_GO, FLAGS };

struct holder {
    mm_cu_module module;
    struct mm_kernel kernel;
    mm_cu_stream stream, words; /* where it runs, and what it is told */
    uint32_t *flags;            /* on the device */
};

/* The image for a real GPU; simulated ones have the kernel. */
static char *read_image(void) {
    const char *name = getenv("MMOE_TEST_KERNELS");
    FILE *file = name != NULL ? fopen(name, "rb") : NULL;
    if (file == NULL)
        return NULL;
    fseek(file, 0, SEEK_END);
    const long bytes = ftell(file);
    char *image = malloc((size_t)bytes + 1);
    rewind(file);
    if (fread(image, 1, (size_t)bytes, file) != (size_t)bytes) {
        free(image);
        image = NULL;
    }
    fclose(file);
    return image;
}

static bool have_kernel(void) {
    char *image = read_image();
    free(image);
    return image != NULL || getenv("MEGAMOE_SIM_KERNELS") != NULL;
}

static void need_kernel(void) {
    if (!have_kernel()) {
        print_message("not run: no kernel that holds multiprocessors was compiled\n");
        skip();
    }
}

static mmoe_status find_kernel(const struct mm_gpu *gpu, struct holder *holder) {
    char *image = read_image();
    mmoe_status status = mm_gpu_enter(gpu);
    if (status == MMOE_OK)
        status = MM_CU(&gpu->driver, cuModuleLoadData, "loading the kernel that holds", &holder->module, image);
    if (status == MMOE_OK)
        status =
            MM_CU(&gpu->driver, cuModuleGetFunction, "finding it", &holder->kernel.function, holder->module, "hold");
    if (status == MMOE_OK)
        status = MM_CU(&gpu->driver, cuFuncSetAttribute, "allowing it shared memory", holder->kernel.function,
                       MM_CU_MAX_DYNAMIC_SHARED_MEMORY, (int)HOLD_SHARED_BYTES);
    mm_gpu_leave(gpu);
    free(image);
    return status;
}

static bool holder_make(struct rig_rank *rank, struct holder *holder) {
    const uint32_t zeros[FLAGS] = {0};
    *holder = (struct holder){.kernel = {.name = "hold", .shared_bytes = HOLD_SHARED_BYTES}};
    RIG_TRY(rank, find_kernel(gpu_of(rank), holder) == MMOE_OK, "%s", mmoe_last_error());
    RIG_TRY(rank, mmoe_device_alloc(rank->group, sizeof zeros, (void **)&holder->flags) == MMOE_OK, "%s",
            mmoe_last_error());
    RIG_TRY(rank, mmoe_device_write(rank->group, holder->flags, zeros, sizeof zeros) == MMOE_OK, "%s",
            mmoe_last_error());
    return stream_make(rank, &holder->stream) && stream_make(rank, &holder->words);
}

static void holder_free(struct rig_rank *rank, struct holder *holder) {
    stream_free(rank, holder->stream);
    stream_free(rank, holder->words);
    mmoe_device_free(rank->group, (void **)&holder->flags);
    if (mm_gpu_enter(gpu_of(rank)) == MMOE_OK) {
        gpu_of(rank)->driver.cuModuleUnload(holder->module);
        mm_gpu_leave(gpu_of(rank));
    }
}

static bool launch(struct rig_rank *rank, const struct holder *holder, mm_cu_stream stream, unsigned ctas,
                   const struct hold_params *params) {
    const struct mm_launch how = {.stream = stream, .ctas = ctas, .threads = HOLD_THREADS};
    RIG_TRY(rank, mm_gpu_enter(gpu_of(rank)) == MMOE_OK, "%s", mmoe_last_error());
    const mmoe_status status = mm_kernel_launch(gpu_of(rank), &holder->kernel, &how, params);
    mm_gpu_leave(gpu_of(rank));
    RIG_TRY(rank, status == MMOE_OK, "%s", mmoe_last_error());
    return true;
}

/* On a real GPU they run when this returns; where simulated ones run is drawn. */
static bool hold(struct rig_rank *rank, const struct holder *holder, mm_cu_stream stream, unsigned ctas) {
    const struct hold_params params = {
        .tell = {holder->flags + RUNNING}, .peers = 1, .until = holder->flags + LET_GO, .count = 1};
    uint32_t running = 0;
    if (ctas == 0)
        return true;
    if (!launch(rank, holder, stream, ctas, &params))
        return false;
    for (int looks = 0; looks < 1000 && running < ctas && !rig_simulated(); looks++) {
        usleep(1000);
        RIG_TRY(rank, mmoe_device_read(rank->group, &running, holder->flags + RUNNING, sizeof running) == MMOE_OK, "%s",
                mmoe_last_error());
    }
    RIG_TRY(rank, running == ctas || rig_simulated(), "%u of %u CTAs run", running, ctas);
    return true;
}

static bool let_go(struct rig_rank *rank, const struct holder *holder) {
    const struct mm_gpu *gpu = gpu_of(rank);
    const mm_cu_pointer flag = (mm_cu_pointer)(uintptr_t)(holder->flags + LET_GO);
    RIG_TRY(rank, mm_gpu_enter(gpu) == MMOE_OK, "%s", mmoe_last_error());
    const mm_cu_result result = gpu->driver.cuStreamWriteValue32(holder->words, flag, 1, 0);
    mm_gpu_leave(gpu);
    RIG_TRY(rank, result == MM_CUDA_SUCCESS, "letting go gave %d", result);
    return true;
}

/* ---- Calls ---- */

#define LAYERS 2 /* with a growing and with a fixed capacity */
#define BATCHES 3

/* Forwards alone, or forwards and their backwards. */
enum form { FORWARDS, BACKWARDS, FORMS };

static const struct rig_options options_of[FORMS][BATCHES] = {
    {{.forward_only = true}, {.forward_only = true}, {.forward_only = true}},
    {{.keep = MMOE_KEEP_ROWS, .narrow_gradients = true},
     {.keep = MMOE_KEEP_PLAN},
     {.keep = MMOE_KEEP_ROWS, .accumulate = true}}};

struct beside {
    pthread_barrier_t held, over;
    bool first_calls; /* are made beside holders already */
    enum form form;
    struct rig_batch batch[BATCHES];
    int rounds;
    int held_ctas[2]; /* on even and on odd ranks, if there are as many multiprocessors */
};

/* The last batch needs more memory than those before. */
static struct beside *beside_make(int world, enum form form, int64_t most) {
    struct beside *beside = rig_shared(sizeof *beside);
    beside->form = form;
    rig_barrier_make(&beside->held, world);
    rig_barrier_make(&beside->over, world);
    for (int i = 0; i < BATCHES; i++) {
        int64_t tokens[MMOE_MAX_WORLD];
        for (int r = 0; r < world; r++)
            tokens[r] = (i < BATCHES - 1 ? most / 3 : most) - r;
        beside->batch[i] = exact_batch_of(HIDDEN, INNER, world, TOP_K, world, tokens,
                                          i < BATCHES - 1 ? RIG_UNIFORM : RIG_ONE_EXPERT, 850 + (uint64_t)i);
        exact_batch_encode(&beside->batch[i], i);
        rig_reference_of(&beside->batch[i]);
    }
    return beside;
}

static void beside_free(struct beside *beside) {
    for (int i = 0; i < BATCHES; i++)
        rig_batch_free(&beside->batch[i]);
    pthread_barrier_destroy(&beside->held);
    pthread_barrier_destroy(&beside->over);
    rig_shared_free(beside);
}

struct calls {
    mmoe_layer *layers[LAYERS];
    mmoe_saved *saved[LAYERS][BATCHES];
    struct ready ready[BATCHES];
    int made;
};

/* The layer with a fixed capacity takes all memory that calls of the group need: it comes second. */
static bool layer_make(struct rig_rank *rank, const struct beside *beside, struct calls *calls, int layer) {
    mmoe_layer_config config = beside->batch[0].layer;
    config.capacity_policy = layer == 0 ? MMOE_CAPACITY_GROW : MMOE_CAPACITY_FIXED;
    config.capacity = layer == 0 ? 0 : rank->world * rank->group->config.max_tokens * TOP_K;
    RIG_TRY(rank, mmoe_layer_create(rank->group, &config, &calls->layers[layer]) == MMOE_OK, "%s", mmoe_last_error());
    for (int i = 0; i < BATCHES && beside->form == BACKWARDS; i++)
        RIG_TRY(rank,
                mmoe_saved_create(calls->layers[layer], options_of[BACKWARDS][i].keep, &calls->saved[layer][i]) ==
                    MMOE_OK,
                "%s", mmoe_last_error());
    return true;
}

static bool make_call(struct rig_rank *rank, struct calls *calls, int layer, int batch, bool backward) {
    struct rig_call *call = &calls->ready[batch].call;
    call->forward.saved = call->backward.saved = calls->saved[layer][batch];
    const mmoe_status status = backward ? mmoe_backward(calls->layers[layer], &call->backward)
                                        : mmoe_forward(calls->layers[layer], &call->forward);
    RIG_TRY(rank, status == MMOE_OK, "call %d: %s", calls->made, mmoe_last_error());
    calls->made++;
    return true;
}

/* Forwards of all batches, then backwards, the last one first. Makes the layers too, when it is the first time. */
static bool call_all(struct rig_rank *rank, const struct beside *beside, struct calls *calls) {
    for (int layer = 0; layer < LAYERS; layer++) {
        if (calls->layers[layer] == NULL && !layer_make(rank, beside, calls, layer))
            return false;
        for (int i = 0; i < BATCHES; i++)
            if (!ready_poison(rank, &calls->ready[i]) || !make_call(rank, calls, layer, i, false))
                return false;
        for (int i = BATCHES - 1; i >= 0 && beside->form == BACKWARDS; i--)
            if (!make_call(rank, calls, layer, i, true))
                return false;
        for (int i = 0; i < BATCHES; i++)
            if (!ready_compare(rank, &calls->ready[i], calls->made))
                return false;
    }
    return true;
}

static bool calls_make(struct rig_rank *rank, const struct beside *beside, struct calls *calls) {
    memset(calls, 0, sizeof *calls);
    for (int i = 0; i < BATCHES; i++)
        if (!ready_make(rank, &beside->batch[i], &options_of[beside->form][i], NULL, &calls->ready[i]))
            return false;
    return true;
}

static void calls_free(struct rig_rank *rank, struct calls *calls) {
    for (int i = 0; i < BATCHES; i++)
        ready_free(rank, &calls->ready[i]);
    for (int layer = 0; layer < LAYERS; layer++) {
        for (int i = 0; i < BATCHES; i++)
            mmoe_saved_destroy(&calls->saved[layer][i]);
        mmoe_layer_destroy(&calls->layers[layer]);
    }
}

/* Calls use no slots of the last tokens. */
#define SPARE_TOKENS 32

static void run(struct beside *beside, rig_body body) {
    struct rig_world world = rig_world_for(beside->batch, BATCHES, gpus_kind);
    world.config.max_tokens += SPARE_TOKENS;
    rig_world_run(&world, body, beside);
}

/* As many as `wanted`, and one less than all at most. The gradients of weights are made by pairs of multiprocessors
 * that lie in one cluster of the GPU. There are 8 of those: among 9 multiprocessors is a pair. */
static unsigned ctas_of(const struct rig_rank *rank, enum form form, int wanted) {
    const int left = form == FORWARDS ? 1 : rig_simulated() ? 2 : 9;
    const int most = gpu_of(rank)->device.multiprocessors - left;
    return (unsigned)(wanted < most ? wanted : most);
}

/* ---- Multiprocessors that are held until all calls have ended ---- */

static void holding_body(struct rig_rank *rank, void *context) {
    struct beside *beside = context;
    struct holder holder;
    struct calls calls;
    const bool made =
        holder_make(rank, &holder) && calls_make(rank, beside, &calls) &&
        (beside->first_calls || call_all(rank, beside, &calls)) &&
        hold(rank, &holder, holder.stream, ctas_of(rank, beside->form, beside->held_ctas[rank->rank % 2]));
    pthread_barrier_wait(&beside->held);
    const bool good = made && call_all(rank, beside, &calls);
    pthread_barrier_wait(&beside->over);
    const bool free = made && let_go(rank, &holder) && stream_await(rank, holder.stream);
    if (good && free && (rig_small() || call_all(rank, beside, &calls))) {
        calls_free(rank, &calls);
        holder_free(rank, &holder);
    }
}

static void calls_end_beside_holders(void **state) {
    (void)state;
    static const int held[][2] = {{131, 131}, {0, 131}, {131, 1}, {16, 131}, {16, 16}, {1, 1}};
    need_kernel();
    const int count = rig_scaled("ways to hold multiprocessors", COUNT(held), 1);
    for
        GPUS_EACH_WORLD(world)
    for (int form = 0; form < FORMS; form++)
        for (int i = 0; i < count; i++) {
            struct beside *beside = beside_make(world, (enum form)form, rig_scaled("most tokens", 300, 48));
            memcpy(beside->held_ctas, held[(i + form) % COUNT(held)], sizeof held[i]);
            beside->first_calls = (i + form) % 2 == 1;
            run(beside, holding_body);
            beside_free(beside);
        }
}

/* ---- Kernels that wait for one another on all ranks, begun in opposite order ---- */

/* Counters in the ranks' shared memory: the last slot of the gradients of router weights. */
static uint32_t *counter_of(const struct rig_rank *rank, int owner) {
    const struct mm_cuda_group *cuda = rank->group->backend_state;
    const mmoe_group_config *config = &rank->group->config;
    const size_t last = (size_t)(config->max_tokens * config->max_top_k - 1) * sizeof(uint32_t);
    return mm_at(cuda->shared.base[owner] + cuda->layout.dw + last);
}

static bool meet_peers(struct rig_rank *rank, const struct holder *holder, unsigned ctas, int round) {
    struct hold_params params = {.peers = (uint32_t)rank->world,
                                 .until = counter_of(rank, rank->rank),
                                 .count = ctas * (uint32_t)(rank->world * (round + 1))};
    for (int r = 0; r < rank->world; r++)
        params.tell[r] = counter_of(rank, r);
    return launch(rank, holder, holder->stream, ctas, &params);
}

static void meeting_body(struct rig_rank *rank, void *context) {
    struct beside *beside = context;
    const uint32_t zero = 0;
    struct holder holder;
    struct calls calls;
    const bool made = holder_make(rank, &holder) && calls_make(rank, beside, &calls) &&
                      mmoe_device_write(rank->group, counter_of(rank, rank->rank), &zero, sizeof zero) == MMOE_OK;
    const unsigned ctas = ctas_of(rank, beside->form, beside->held_ctas[0]);
    pthread_barrier_wait(&beside->held);
    for (int round = 0; round < beside->rounds && made; round++) {
        const bool meets_first = (rank->rank + round) % 2 == 0;
        if ((meets_first && !meet_peers(rank, &holder, ctas, round)) || !call_all(rank, beside, &calls) ||
            (!meets_first && !meet_peers(rank, &holder, ctas, round)))
            return;
    }
    if (made && stream_await(rank, holder.stream)) {
        calls_free(rank, &calls);
        holder_free(rank, &holder);
    }
}

static void calls_end_beside_kernels_that_meet(void **state) {
    (void)state;
    static const int held[] = {1, 16, 131}; /* on each */
    need_kernel();
    /* A simulated GPU need not run more than one CTA of a kernel at a time. */
    const int count = rig_simulated() ? 1 : COUNT(held);
    for
        GPUS_EACH_WORLD(world)
    for (int form = rig_small() ? BACKWARDS : FORWARDS; form < FORMS; form++)
        for (int i = 0; i < count; i++) {
            struct beside *beside = beside_make(world, (enum form)form, rig_scaled("most tokens", 300, 48));
            beside->held_ctas[0] = held[i];
            beside->rounds = rig_scaled("rounds", 8, 2);
            run(beside, meeting_body);
            beside_free(beside);
        }
}

/* ---- Inputs that come late in the stream ---- */

struct late {
    struct rig_rank *rank;
    const struct holder *holder;
};

static void *let_go_later(void *argument) {
    const struct late *late = argument;
    usleep(100000);
    return let_go(late->rank, late->holder) ? argument : NULL;
}

static const enum rig_operand inputs[] = {RIG_X, RIG_IDS, RIG_WEIGHTS, RIG_DY};

/* Other values in the inputs; the right ones in pinned memory. */
static mmoe_status spoil(const struct mm_gpu *gpu, const struct ready *ready, void *pinned[]) {
    mmoe_status status = mm_gpu_enter(gpu);
    for (int i = 0; i < COUNT(inputs) && status == MMOE_OK; i++) {
        const struct rig_tensor *tensor = &ready->call.tensor[inputs[i]];
        status = MM_CU(&gpu->driver, cuMemHostAlloc, "making pinned memory", &pinned[i], tensor->bytes, 0);
        if (status == MMOE_OK) {
            memcpy(pinned[i], tensor->memory, tensor->bytes);
            status = MM_CU(&gpu->driver, cuMemsetD8Async, "spoiling inputs",
                           (mm_cu_pointer)(uintptr_t)ready->placed.memory[inputs[i]], 0x55, tensor->bytes, NULL);
        }
    }
    if (status == MMOE_OK)
        status = MM_CU(&gpu->driver, cuStreamSynchronize, "spoiling inputs", NULL);
    mm_gpu_leave(gpu);
    return status;
}

static mmoe_status bring(const struct mm_gpu *gpu, const struct ready *ready, void *const pinned[],
                         mm_cu_stream stream) {
    mmoe_status status = mm_gpu_enter(gpu);
    for (int i = 0; i < COUNT(inputs) && status == MMOE_OK; i++)
        status = mm_copy_to_device(gpu, (mm_cu_pointer)(uintptr_t)ready->placed.memory[inputs[i]], pinned[i],
                                   ready->call.tensor[inputs[i]].bytes, stream, "bringing inputs");
    mm_gpu_leave(gpu);
    return status;
}

/* The stream is busy, then the inputs are brought, then the calls are made. */
static bool call_behind(struct rig_rank *rank, struct calls *calls, int layer, const struct holder *holder,
                        mm_cu_stream stream) {
    const bool at_once = rig_simulated(); /* where nobody but a waiting rank brings what it waits for */
    const struct mm_gpu *gpu = gpu_of(rank);
    struct ready *ready = &calls->ready[0];
    struct late late = {rank, holder};
    void *pinned[COUNT(inputs)], *let = &late;
    pthread_t later;
    RIG_TRY(rank, spoil(gpu, ready, pinned) == MMOE_OK, "%s", mmoe_last_error());
    if (!ready_poison(rank, ready) || !hold(rank, holder, stream, 1))
        return false;
    RIG_TRY(rank, at_once ? let_go(rank, holder) : pthread_create(&later, NULL, let_go_later, &late) == 0,
            "nobody lets go");
    RIG_TRY(rank, bring(gpu, ready, pinned, stream) == MMOE_OK, "%s", mmoe_last_error());
    ready->call.forward.stream = ready->call.backward.stream = stream;
    if (!make_call(rank, calls, layer, 0, false) || !make_call(rank, calls, layer, 0, true))
        return false;
    RIG_TRY(rank, at_once || (pthread_join(later, &let) == 0 && let != NULL), "not let go");
    if (!stream_await(rank, stream))
        return false;
    for (int i = 0; i < COUNT(inputs); i++)
        gpu->driver.cuMemFreeHost(pinned[i]);
    return true;
}

static void late_body(struct rig_rank *rank, void *context) {
    struct beside *beside = context;
    struct calls calls;
    mm_cu_stream stream;
    if (!calls_make(rank, beside, &calls) || !layer_make(rank, beside, &calls, 0) ||
        !layer_make(rank, beside, &calls, 1) || !stream_make(rank, &stream))
        return;
    for (int i = 0; i < rig_scaled("calls with late inputs", 2 * LAYERS, LAYERS); i++) {
        struct holder holder;
        if (!holder_make(rank, &holder) || !call_behind(rank, &calls, i % LAYERS, &holder, stream) ||
            !ready_compare(rank, &calls.ready[0], calls.made))
            return;
        holder_free(rank, &holder);
    }
    stream_free(rank, stream);
    calls_free(rank, &calls);
}

static void inputs_may_come_late(void **state) {
    (void)state;
    need_kernel();
    for
        GPUS_EACH_WORLD(world) {
            struct beside *beside = beside_make(world, BACKWARDS, rig_scaled("most tokens", 2000, 48));
            run(beside, late_body);
            beside_free(beside);
        }
}

int main(void) {
    const struct CMUnitTest of_processes[] = {
        cmocka_unit_test(calls_end_beside_holders),
        cmocka_unit_test(calls_end_beside_kernels_that_meet),
    };
    const struct CMUnitTest of_threads[] = {
        cmocka_unit_test(calls_end_beside_holders),
        cmocka_unit_test(calls_end_beside_kernels_that_meet),
        cmocka_unit_test(inputs_may_come_late),
    };
    return gpus_main(2, GPUS_TESTS(of_processes), GPUS_TESTS(of_threads));
}
