/* Streams and events. */
#include <memory>

#include "sim/driver/gpus.h"

using namespace sim::driver;

namespace {

event *event_of(mm_cu_event handle) {
    return reinterpret_cast<event *>(handle);
}

stream *handle_of(mm_cu_stream handle) {
    return reinterpret_cast<stream *>(handle);
}

} // namespace

SIM_DRIVER_API cuStreamCreate(mm_cu_stream *out, unsigned) {
    if (!current_context())
        return MM_CUDA_ERROR_INVALID_CONTEXT;
    gpus &g = *the_gpus();
    auto held = g.lock();
    const int device = current_context()->device;
    g.streams.emplace_back(device, g.sim.create_stream((unsigned)device));
    *out = reinterpret_cast<mm_cu_stream>(new stream{device, g.streams.back().second, nullptr});
    return MM_CUDA_SUCCESS;
}

/* Work that is queued still runs. */
SIM_DRIVER_API cuStreamDestroy_v2(mm_cu_stream handle) {
    delete reinterpret_cast<stream *>(handle);
    return MM_CUDA_SUCCESS;
}

SIM_DRIVER_API cuStreamSynchronize(mm_cu_stream handle) {
    sim::stream s;
    if (!the_gpus() || !stream_of(*the_gpus(), handle, &s))
        return MM_CUDA_ERROR_INVALID_CONTEXT;
    gpus &g = *the_gpus();
    auto held = g.lock();
    if (handle && handle_of(handle)->capture)
        return MM_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return g.wait(held, [&g, s] { return g.sim.stream_done(s); });
}

SIM_DRIVER_API cuStreamWriteValue32_v2(mm_cu_stream handle, mm_cu_pointer to, uint32_t value, unsigned flags) {
    sim::stream s;
    if (!the_gpus() || !stream_of(*the_gpus(), handle, &s))
        return MM_CUDA_ERROR_INVALID_CONTEXT;
    gpus &g = *the_gpus();
    auto held = g.lock();
    uint32_t *word = reinterpret_cast<uint32_t *>(to);
    if (mm_cu_result result = g.health(); result != MM_CUDA_SUCCESS)
        return result;
    if (flags != 0 || !g.sim.find(word, sizeof *word, nullptr) || !may_access(word, current_context()->device))
        return MM_CUDA_ERROR_INVALID_VALUE;
    const work write = [word, value](gpus &on, sim::stream where) {
        on.sim.call(where, [&on, word, value] { on.sim.write_flag(word, value); });
    };
    if (!keep_work(handle_of(handle), write))
        write(g, s);
    return MM_CUDA_SUCCESS;
}

SIM_DRIVER_API cuStreamIsCapturing(mm_cu_stream handle, int *status) {
    *status = handle && handle_of(handle)->capture ? MM_CU_CAPTURE_ACTIVE : MM_CU_CAPTURE_NONE;
    return MM_CUDA_SUCCESS;
}

/* Waiting for an event that was never recorded is no wait. */
SIM_DRIVER_API cuStreamWaitEvent(mm_cu_stream handle, mm_cu_event awaited, unsigned) {
    sim::stream s;
    if (!the_gpus() || !stream_of(*the_gpus(), handle, &s))
        return MM_CUDA_ERROR_INVALID_CONTEXT;
    auto held = the_gpus()->lock();
    if (mm_cu_result result = the_gpus()->health(); result != MM_CUDA_SUCCESS)
        return result;
    if (event_of(awaited)->captured)
        return keep_wait(handle_of(handle), *event_of(awaited));
    if (handle && handle_of(handle)->capture)
        return MM_CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    if (event_of(awaited)->recorded)
        the_gpus()->sim.wait(s, event_of(awaited)->sim);
    return MM_CUDA_SUCCESS;
}

SIM_DRIVER_API cuEventCreate(mm_cu_event *out, unsigned) {
    *out = reinterpret_cast<mm_cu_event>(new event);
    return MM_CUDA_SUCCESS;
}

/* Work that is queued and notes its time shares what it writes to. */
SIM_DRIVER_API cuEventDestroy_v2(mm_cu_event handle) {
    delete event_of(handle);
    return MM_CUDA_SUCCESS;
}

SIM_DRIVER_API cuEventRecord(mm_cu_event handle, mm_cu_stream where) {
    sim::stream s;
    if (!the_gpus() || !stream_of(*the_gpus(), where, &s))
        return MM_CUDA_ERROR_INVALID_CONTEXT;
    gpus &g = *the_gpus();
    auto held = g.lock();
    if (mm_cu_result result = g.health(); result != MM_CUDA_SUCCESS)
        return result;
    event &e = *event_of(handle);
    if (keep_record(handle_of(where), e))
        return MM_CUDA_SUCCESS;
    e.captured = nullptr;
    auto steps = std::make_shared<uint64_t>(0);
    g.sim.call(s, [&g, steps] { *steps = g.sim.counters().steps; });
    e.steps = steps;
    e.sim = g.sim.record(s);
    e.recorded = true;
    return MM_CUDA_SUCCESS;
}

/* The machine runs in calls that wait: this one waits a little. */
SIM_DRIVER_API cuEventQuery(mm_cu_event handle) {
    gpus &g = *the_gpus();
    auto held = g.lock_to_look();
    event &e = *event_of(handle);
    if (e.captured)
        return MM_CUDA_ERROR_CAPTURED_EVENT;
    return e.recorded ? g.look(held, [&g, &e] { return g.sim.event_done(e.sim); }) : g.health();
}

SIM_DRIVER_API cuEventSynchronize(mm_cu_event handle) {
    gpus &g = *the_gpus();
    auto held = g.lock();
    event &e = *event_of(handle);
    if (e.captured)
        return MM_CUDA_ERROR_CAPTURED_EVENT;
    return e.recorded ? g.wait(held, [&g, &e] { return g.sim.event_done(e.sim); }) : g.health();
}

/* A step of the simulator counts as a nanosecond. */
SIM_DRIVER_API cuEventElapsedTime(float *milliseconds, mm_cu_event from, mm_cu_event to) {
    gpus &g = *the_gpus();
    auto held = g.lock();
    if (mm_cu_result result = g.health(); result != MM_CUDA_SUCCESS)
        return result;
    const event &first = *event_of(from), &last = *event_of(to);
    if (!first.recorded || !last.recorded)
        return MM_CUDA_ERROR_INVALID_HANDLE;
    if (!g.sim.event_done(first.sim) || !g.sim.event_done(last.sim))
        return MM_CUDA_ERROR_NOT_READY;
    *milliseconds = (float)(*last.steps - *first.steps) * 1e-6f;
    return MM_CUDA_SUCCESS;
}
