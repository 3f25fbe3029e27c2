/* The machine and its waiting threads; see gpus.h. */
#include "sim/driver/gpus.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>

namespace sim::driver {

namespace {

constexpr uint64_t steps_at_a_time = 20000;
constexpr auto moment = std::chrono::milliseconds(20); /* for a rank to come to a wait */
constexpr auto patience =
    std::chrono::milliseconds(2000); /* for a rank that is away to bring what a stalled machine needs */
constexpr auto glance = std::chrono::milliseconds(5); /* of a call that only looks */

uint64_t number_of_environment(const char *name, uint64_t otherwise) {
    const char *text = std::getenv(name);
    return text && *text ? std::strtoull(text, nullptr, 0) : otherwise;
}

std::atomic<gpus *> made{nullptr};

} // namespace

settings settings_of_environment() {
    settings s;
    s.machine.seed = number_of_environment("MEGAMOE_SIM_SEED", 1);
    s.machine.devices = (unsigned)number_of_environment("MEGAMOE_SIM_DEVICES", 8);
    s.machine.multiprocessors = (unsigned)number_of_environment("MEGAMOE_SIM_MULTIPROCESSORS", 4);
    s.machine.check_order = number_of_environment("MEGAMOE_SIM_CHECK_ORDER", 1) != 0;
    s.memory = number_of_environment("MEGAMOE_SIM_MEMORY", (uint64_t)4 << 30);
    s.chunk = std::max<size_t>(number_of_environment("MEGAMOE_SIM_CHUNK", 1), 1);
    if (const char *breaks = std::getenv("MEGAMOE_SIM_BREAK"))
        std::sscanf(breaks, "%d@%" SCNu64, &s.breaking, &s.breaks_at);
    return s;
}

gpus::gpus(const settings &s) : set(s), sim(s.machine), taken(s.machine.devices) {
    for (unsigned d = 0; d < s.machine.devices; d++) {
        primary.push_back({(int)d});
        streams.emplace_back((int)d, sim.default_stream(d));
    }
}

gpus *the_gpus() {
    return made.load();
}

gpus *make_the_gpus() {
    static std::mutex one_at_a_time;
    std::lock_guard<std::mutex> held(one_at_a_time);
    if (!made.load())
        made.store(new gpus(settings_of_environment()));
    return made.load();
}

size_t gpus::bytes_of(const taken_bytes &of) const {
    const size_t chunks = (of.in_streams + set.chunk - 1) / set.chunk;
    return of.alone + chunks * set.chunk;
}

void *gpus::allocate(int device, size_t bytes, bool in_stream) {
    if (device < 0)
        return sim.allocate(device, bytes);
    taken_bytes with = taken[(size_t)device];
    (in_stream ? with.in_streams : with.alone) += bytes;
    if (bytes > set.memory || bytes_of(with) > set.memory)
        return nullptr;
    void *memory = sim.allocate(device, bytes);
    if (memory)
        taken[(size_t)device] = with;
    return memory;
}

void gpus::free(void *memory, int device, size_t bytes, bool in_stream) {
    sim.free(memory);
    if (device < 0)
        return;
    taken_bytes &of = taken[(size_t)device];
    (in_stream ? of.in_streams : of.alone) -= bytes;
}

size_t gpus::available(int device) const {
    return set.memory - bytes_of(taken[(size_t)device]);
}

std::unique_lock<std::mutex> gpus::lock() {
    std::unique_lock<std::mutex> held(mutex);
    activity++;
    last_activity = clock::now();
    changed.notify_all();
    return held;
}

void gpus::rank_comes() {
    ranks++;
}

void gpus::rank_goes() {
    ranks--;
}

bool gpus::is_broken(int device) const {
    return device == set.breaking && launches >= set.breaks_at;
}

bool gpus::breaks(int device) {
    launches += device == set.breaking;
    return is_broken(device);
}

mm_cu_result gpus::health() const {
    const context *current = current_context();
    return faulted                                 ? MM_CUDA_ERROR_ILLEGAL_INSTRUCTION
           : current && is_broken(current->device) ? MM_CUDA_ERROR_LAUNCH_FAILED
                                                   : MM_CUDA_SUCCESS;
}

bool gpus::all_wait() const {
    return (int)waiting.size() >= ranks;
}

void gpus::release_who_is_done() {
    auto done = [this](waiter *w) { return w->released = faulted || w->done(); };
    waiting.erase(std::remove_if(waiting.begin(), waiting.end(), done), waiting.end());
    changed.notify_all();
}

void gpus::tell_faults() {
    for (const report &r : sim.reports())
        if (!told)
            std::fprintf(stderr, "libcuda_sim, seed %llu: %s\n", (unsigned long long)set.machine.seed,
                         describe(r).c_str());
    told = true;
}

/* Whether every rank waits, or those that don't have called nothing for some time; until that is so, or not soon. */
bool gpus::all_came(std::unique_lock<std::mutex> &held, clock::duration longest, clock::time_point end) {
    const uint64_t before = activity;
    const clock::time_point over = last_activity + longest;
    if (!all_wait() && clock::now() < over)
        changed.wait_until(held, std::min(over, end), [&] { return activity != before || all_wait(); });
    return all_wait() || (activity == before && clock::now() >= over);
}

/* Everything on the GPUs waits for what only the host, or time, could bring. Time on the GPUs passes fast: a rank that
 * is away gets the chance to come before it does. */
bool gpus::is_deadlock(std::unique_lock<std::mutex> &held, clock::time_point end) {
    return all_came(held, patience, end) && !waiting.empty() && !sim.let_time_pass();
}

/* Who has what it waits for goes on at once: it may be the one that brings what the others need. */
void gpus::advance(std::unique_lock<std::mutex> &held, const waiter &own, clock::time_point end) {
    state now = sim.run(steps_at_a_time);
    release_who_is_done();
    if ((now == state::stalled || now == state::idle) && !own.released && is_deadlock(held, end)) {
        sim.report_deadlock();
        now = state::faulted;
    }
    if (now == state::faulted) {
        faulted = true;
        tell_faults();
        release_who_is_done();
    }
}

mm_cu_result gpus::wait(std::unique_lock<std::mutex> &held, std::function<bool()> done) {
    return wait_until(held, std::move(done), clock::time_point::max());
}

mm_cu_result gpus::look(std::unique_lock<std::mutex> &held, std::function<bool()> done) {
    return wait_until(held, std::move(done), clock::now() + glance);
}

mm_cu_result gpus::wait_until(std::unique_lock<std::mutex> &held, std::function<bool()> done, clock::time_point end) {
    if (mm_cu_result result = health(); result != MM_CUDA_SUCCESS)
        return result;
    waiter own{std::move(done), false};
    waiting.push_back(&own);
    release_who_is_done();
    while (!own.released && clock::now() < end)
        if (all_came(held, moment, end))
            advance(held, own, end);
    if (own.released)
        return health();
    waiting.erase(std::find(waiting.begin(), waiting.end(), &own));
    return MM_CUDA_ERROR_NOT_READY;
}

mm_cu_result gpus::wait_for_device(std::unique_lock<std::mutex> &held, int device) {
    return wait(held, [this, device] {
        for (const auto &[owner, s] : streams)
            if ((device < 0 || owner == device) && !sim.stream_done(s))
                return false;
        return true;
    });
}

bool stream_of(gpus &g, mm_cu_stream handle, sim::stream *out) {
    const context *current = current_context();
    if (handle)
        *out = reinterpret_cast<const stream *>(handle)->sim;
    else if (current)
        *out = g.sim.default_stream((unsigned)current->device);
    return handle || current;
}

} // namespace sim::driver
