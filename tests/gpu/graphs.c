/* Graphs; see graphs.h. */
#include "graphs.h"

#include <dlfcn.h>
#include <string.h>

/* Flags of the driver: other threads' streams may do anything in a capture, or nothing unsafe, which is what frameworks
 * ask for. */
enum { CAPTURE_GLOBAL = 0, CAPTURE_RELAXED = 2 };

const struct mm_gpu *gpu_of(const struct rig_rank *rank) {
    return &((const struct mm_cuda_group *)rank->group->backend_state)->gpu;
}

/* ISO C has no conversion from an object pointer to a function pointer. */
static void find(const struct rig_rank *rank, const char *name, void *function) {
    void *found = dlsym(gpu_of(rank)->driver.library, name);
    memcpy(function, &found, sizeof found);
}

#define IN_CONTEXT(rank, ...)                                                                                          \
    do {                                                                                                               \
        RIG_TRY(rank, mm_gpu_enter(gpu_of(rank)) == MMOE_OK, "no context: %s", mmoe_last_error());                     \
        const mm_cu_result result_ = (__VA_ARGS__);                                                                    \
        mm_gpu_leave(gpu_of(rank));                                                                                    \
        RIG_TRY(rank, result_ == MM_CUDA_SUCCESS, "%s gave %d", #__VA_ARGS__, result_);                                \
    } while (0)

bool stream_make(struct rig_rank *rank, mm_cu_stream *stream) {
    IN_CONTEXT(rank, gpu_of(rank)->driver.cuStreamCreate(stream, MM_CU_STREAM_NON_BLOCKING));
    return true;
}

bool stream_await(struct rig_rank *rank, mm_cu_stream stream) {
    IN_CONTEXT(rank, gpu_of(rank)->driver.cuStreamSynchronize(stream));
    return true;
}

void stream_free(const struct rig_rank *rank, mm_cu_stream stream) {
    gpu_of(rank)->driver.cuStreamDestroy(stream);
}

/* Ranks that are threads of one process would disturb each other in a global capture: one may allocate meanwhile. */
bool capture_begin(struct rig_rank *rank, mm_cu_stream stream) {
    mm_cu_result (*begin)(mm_cu_stream, int);
    find(rank, "cuStreamBeginCapture_v2", &begin);
    IN_CONTEXT(rank, begin(stream, rank->group->in_threads && rank->world > 1 ? CAPTURE_RELAXED : CAPTURE_GLOBAL));
    return true;
}

bool capture_end(struct rig_rank *rank, mm_cu_stream stream, void **graph) {
    mm_cu_result (*end)(mm_cu_stream, void **), (*instantiate)(void **, void *, unsigned long long), (*destroy)(void *);
    void *captured;
    find(rank, "cuStreamEndCapture", &end);
    find(rank, "cuGraphInstantiateWithFlags", &instantiate);
    find(rank, "cuGraphDestroy", &destroy);
    IN_CONTEXT(rank, end(stream, &captured));
    IN_CONTEXT(rank, instantiate(graph, captured, 0));
    IN_CONTEXT(rank, destroy(captured));
    return true;
}

bool graph_launch(struct rig_rank *rank, void *graph, mm_cu_stream stream) {
    mm_cu_result (*launch)(void *, mm_cu_stream);
    find(rank, "cuGraphLaunch", &launch);
    IN_CONTEXT(rank, launch(graph, stream));
    return true;
}

void graph_free(const struct rig_rank *rank, void *graph) {
    mm_cu_result (*destroy)(void *);
    find(rank, "cuGraphExecDestroy", &destroy);
    destroy(graph);
}
