/* Captures and their replay; see graphs.h. The driver's functions for this are called by tests alone. */
#include "sim/driver/graphs.h"

#include <algorithm>

#include "sim/driver/gpus.h"

using namespace sim::driver;

namespace sim::driver {

bool keep_work(stream *s, const work &what) {
    if (!s || !s->capture)
        return false;
    graph &g = *s->capture;
    g.all.push_back({captured::WORK, s->lane, what, 0});
    g.done[s->lane]++;
    return true;
}

bool keep_record(stream *s, event &e) {
    if (!s || !s->capture)
        return false;
    graph &g = *s->capture;
    e = event();
    e.captured = s->capture;
    e.number = g.recorded.size();
    e.lane = s->lane;
    g.recorded.push_back(g.done[s->lane]);
    g.all.push_back({captured::RECORD, s->lane, nullptr, e.number});
    return true;
}

/* A stream that waits for what is captured takes part. */
mm_cu_result keep_wait(stream *s, const event &e) {
    if (!s || (s->capture && s->capture != e.captured))
        return MM_CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    graph &g = *e.captured;
    if (!s->capture) {
        s->capture = e.captured;
        s->lane = g.lanes.size();
        g.lanes.push_back(s);
        g.done.push_back(0);
        g.joined.push_back(0);
    }
    if (s->lane == 0)
        g.joined[e.lane] = std::max(g.joined[e.lane], g.recorded[e.number]);
    g.all.push_back({captured::WAIT, s->lane, nullptr, e.number});
    return MM_CUDA_SUCCESS;
}

} // namespace sim::driver

namespace {

/* A graph that can be launched, and the streams beside that of the launch. */
struct executable {
    std::shared_ptr<graph> of;
    std::vector<sim::stream> beside;
};

struct graph_handle {
    std::shared_ptr<graph> of;
};

bool all_joined(const graph &g) {
    for (size_t lane = 1; lane < g.lanes.size(); lane++)
        if (g.joined[lane] < g.done[lane])
            return false;
    return true;
}

} // namespace

/* Not in the library's list: declared here. */
SIM_DRIVER_API cuStreamBeginCapture_v2(mm_cu_stream, int);
SIM_DRIVER_API cuStreamEndCapture(mm_cu_stream, void **);
SIM_DRIVER_API cuGraphInstantiateWithFlags(void **, void *, unsigned long long);
SIM_DRIVER_API cuGraphLaunch(void *, mm_cu_stream);
SIM_DRIVER_API cuGraphDestroy(void *);
SIM_DRIVER_API cuGraphExecDestroy(void *);

SIM_DRIVER_API cuStreamBeginCapture_v2(mm_cu_stream handle, int) {
    stream *s = reinterpret_cast<stream *>(handle);
    if (!s || s->capture)
        return MM_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    auto held = the_gpus()->lock();
    s->capture = std::make_shared<graph>();
    s->lane = 0;
    s->capture->lanes = {s};
    s->capture->done = s->capture->joined = {0};
    return MM_CUDA_SUCCESS;
}

SIM_DRIVER_API cuStreamEndCapture(mm_cu_stream handle, void **out) {
    stream *s = reinterpret_cast<stream *>(handle);
    if (!s || !s->capture || s->lane != 0)
        return MM_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    auto held = the_gpus()->lock();
    std::shared_ptr<graph> of = s->capture;
    const bool whole = all_joined(*of);
    for (stream *lane : of->lanes)
        lane->capture = nullptr;
    *out = whole ? new graph_handle{of} : nullptr;
    return whole ? MM_CUDA_SUCCESS : MM_CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
}

SIM_DRIVER_API cuGraphInstantiateWithFlags(void **out, void *handle, unsigned long long) {
    gpus &g = *the_gpus();
    auto held = g.lock();
    auto *made = new executable{static_cast<graph_handle *>(handle)->of, {}};
    for (size_t lane = 1; lane < made->of->done.size(); lane++) {
        const int device = current_context()->device;
        made->beside.push_back(g.sim.create_stream((unsigned)device));
        g.streams.emplace_back(device, made->beside.back());
    }
    *out = made;
    return MM_CUDA_SUCCESS;
}

SIM_DRIVER_API cuGraphLaunch(void *handle, mm_cu_stream where) {
    const executable &launched = *static_cast<executable *>(handle);
    sim::stream s;
    if (!stream_of(*the_gpus(), where, &s))
        return MM_CUDA_ERROR_INVALID_CONTEXT;
    gpus &g = *the_gpus();
    auto held = g.lock();
    if (mm_cu_result result = g.health(); result != MM_CUDA_SUCCESS)
        return result;
    std::vector<sim::event> events(launched.of->recorded.size());
    for (const captured &each : launched.of->all) {
        const sim::stream lane = each.lane == 0 ? s : launched.beside[each.lane - 1];
        if (each.kind == captured::WORK)
            each.what(g, lane);
        else if (each.kind == captured::RECORD)
            events[each.event] = g.sim.record(lane);
        else
            g.sim.wait(lane, events[each.event]);
    }
    return MM_CUDA_SUCCESS;
}

SIM_DRIVER_API cuGraphDestroy(void *handle) {
    delete static_cast<graph_handle *>(handle);
    return MM_CUDA_SUCCESS;
}

SIM_DRIVER_API cuGraphExecDestroy(void *handle) {
    delete static_cast<executable *>(handle);
    return MM_CUDA_SUCCESS;
}
