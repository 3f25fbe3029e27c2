/* The public interface: memory, streams, runs. */
#include "sim/machine.h"

#include <cstring>

#include "sim/order.h"
#include "sim/warpgroup.h"

namespace sim {

namespace {

#if defined(__SANITIZE_ADDRESS__) || !defined(__OPTIMIZE__)
const size_t STACK_BYTES = 256 * 1024;
#else
const size_t STACK_BYTES = 64 * 1024;
#endif

const uint16_t HOST_ACTOR = 1;

/* An access by the host, or by the copies of a stream: both know what is in `known`. */
class host_observer final : public observer {
  public:
    host_observer(const clocks &known_to, const epoch &as) : known(known_to) { self = as; }
    bool knows(const epoch &e, view v) const override {
        return e == self || (!e.has(ASYNC) && e.actor == HOST_ACTOR && !self.has(ASYNC)) || known.knows(e, v);
    }
    bool same_device(const epoch &) const override { return false; }

  private:
    const clocks &known;
};

} // namespace

machine::impl::impl(const struct options &o) : options(o), random(o.seed), stacks(STACK_BYTES) {
    bias = draw_schedule(random);
    /* Actor 0 is nobody, 1 the host. */
    warp_clocks = {0, 0};
    warp_infos.resize(2);
    async_clocks = {0};
    async_infos.resize(1);
    for (unsigned d = 0; d < o.devices; d++) {
        devices.push_back({o.multiprocessors, {}, std::make_unique<late_stores>(), {}, {}});
        streams.push_back(std::make_unique<stream_queue>());
        streams.back()->device = d;
    }
    host_released();
}

machine::impl::~impl() {
    for (async_work *w : works)
        delete w;
}

/* What the host does next is later than what it has shown. */
void machine::impl::host_released() {
    for (view v : {KNOWN, FENCED_SHARED, FENCED_GLOBAL})
        host.set_warp(v, HOST_ACTOR, host_clock);
    host_clock++;
    progress++;
}

machine::machine(const struct options &o) : self(std::make_unique<impl>(o)) {}
machine::~machine() = default;

void *machine::allocate(int device, size_t bytes) {
    return self->memory.allocate(device, bytes);
}

void machine::free(void *memory) {
    for (impl::device &d : self->devices)
        d.late->arrive_all(*self);
    self->memory.free(memory);
}

bool machine::find(const void *address, size_t bytes, int *device) const {
    const allocation *a = self->memory.find(address, bytes);
    if (a != nullptr && device != nullptr)
        *device = a->device;
    return a != nullptr;
}

/* Checks a host access and, unless it clashes, says where the bytes are. */
static bool host_access(machine::impl &m, const void *address, size_t bytes, bool writes, const clocks &known,
                        const epoch &as) {
    allocation *a = m.memory.find(address, bytes);
    if (a == nullptr)
        return false;
    if (m.options.check_order && !m.stopped && bytes > 0) {
        const size_t offset = (size_t)((const char *)address - a->data);
        const host_observer by(known, as);
        const clash found =
            writes ? m.shade.write(a->cells, offset, bytes, by) : m.shade.read(a->cells, offset, bytes, by);
        if (found.kind == conflict::race || found.kind == conflict::over_mbarrier)
            m.record(nullptr, fault::race,
                     format_text("the host %s device memory at %p +%zu, which is not ordered after %s by %s",
                                 writes ? "writes" : "reads", (void *)a->data, found.offset,
                                 found.earlier_writes ? "a write" : "a read", actor_name(m, found.earlier).c_str()));
    }
    return true;
}

static epoch host_epoch(const machine::impl &m) {
    epoch e;
    e.clock = m.host_clock;
    e.actor = HOST_ACTOR;
    return e;
}

bool machine::write(void *to, const void *from, size_t bytes) {
    if (!host_access(*self, to, bytes, true, self->host, host_epoch(*self)))
        return false;
    memcpy(to, from, bytes);
    return true;
}

bool machine::fill(void *to, unsigned char value, size_t bytes) {
    if (!host_access(*self, to, bytes, true, self->host, host_epoch(*self)))
        return false;
    memset(to, value, bytes);
    return true;
}

bool machine::read(void *to, const void *from, size_t bytes) {
    if (!host_access(*self, from, bytes, false, self->host, host_epoch(*self)))
        return false;
    memcpy(to, from, bytes);
    return true;
}

bool machine::write_flag(uint32_t *to, uint32_t value) {
    epoch as = host_epoch(*self);
    as.flags = ATOMIC | SYSTEM;
    if (!host_access(*self, to, sizeof *to, true, self->host, as))
        return false;
    self->host_released();
    flag &f = self->flags[(uintptr_t)to];
    f.system = self->pool.copy(self->host);
    f.by_device.clear();
    *to = value;
    self->changed(to, sizeof *to);
    return true;
}

bool machine::read_flag(uint32_t *value, const uint32_t *from) {
    epoch as = host_epoch(*self);
    as.flags = ATOMIC | SYSTEM;
    if (!host_access(*self, from, sizeof *from, false, self->host, as))
        return false;
    const auto f = self->flags.find((uintptr_t)from);
    if (f != self->flags.end() && f->second.system)
        self->host.join(*f->second.system);
    *value = *from;
    return true;
}

stream machine::default_stream(unsigned device) {
    return device;
}

stream machine::create_stream(unsigned device) {
    self->streams.push_back(std::make_unique<stream_queue>());
    self->streams.back()->device = device;
    return (stream)self->streams.size() - 1;
}

static std::string launch_refusal(const struct launch &l, const options &o) {
    if (l.kernel == nullptr)
        return "there is no kernel";
    if (l.threads == 0 || l.threads > 1024 || l.threads % 32 != 0)
        return format_text("threads = %u, expected a multiple of 32 up to 1024", l.threads);
    if (l.cluster == 0 || l.cluster > 8 || l.cluster > o.multiprocessors)
        return format_text("cluster = %u, expected 1 to 8, and at most %u multiprocessors", l.cluster,
                           o.multiprocessors);
    if (l.grid == 0 || l.grid % l.cluster != 0)
        return format_text("grid = %u, expected a multiple of the cluster size %u", l.grid, l.cluster);
    if (l.shared_bytes > 227 * 1024)
        return format_text("shared_bytes = %zu, expected at most %d", l.shared_bytes, 227 * 1024);
    return "";
}

void machine::launch(stream s, const struct launch &l) {
    const std::string refusal = launch_refusal(l, self->options);
    if (!refusal.empty()) {
        self->record(nullptr, fault::launch, l.name + ": " + refusal);
        return;
    }
    auto g = std::make_unique<grid>();
    g->home = self.get();
    g->how = l;
    g->storage = std::make_unique<char[]>(l.parameter_bytes + 64);
    g->parameters = (void *)(((uintptr_t)g->storage.get() + 63) / 64 * 64);
    if (l.parameter_bytes > 0)
        memcpy(g->parameters, l.parameters, l.parameter_bytes);
    g->device = self->streams[s]->device;
    self->host_released();
    g->host = self->pool.copy(self->host);
    stream_queue::item i;
    i.kind = stream_queue::item::GRID;
    i.grid = std::move(g);
    self->streams[s]->items.push_back(std::move(i));
    self->attention = true;
}

/* Copies and fills of a stream are a series of their own. Memory of the host that is in no allocation is not checked.
 */
static void stream_access(machine::impl &m, stream s, const void *address, size_t bytes, bool writes) {
    stream_queue &q = *m.streams[s];
    epoch as;
    as.clock = q.copies;
    as.actor = q.actor;
    as.flags = ASYNC;
    host_access(m, address, bytes, writes, *q.clock, as);
}

static void begin_copy(machine::impl &m, stream s) {
    stream_queue &q = *m.streams[s];
    if (q.actor == 0)
        q.actor = m.new_async_actor(nullptr, format_text("a copy of stream %u", s));
    q.copies++;
    q.clock.own(m.pool).set_async(q.actor, q.copies);
}

void machine::copy(stream s, void *to, const void *from, size_t bytes) {
    impl &m = *self;
    call(s, [&m, s, to, from, bytes] {
        begin_copy(m, s);
        stream_access(m, s, from, bytes, false);
        stream_access(m, s, to, bytes, true);
        memmove(to, from, bytes);
        m.changed(to, bytes);
    });
}

void machine::fill(stream s, void *to, unsigned char value, size_t bytes) {
    impl &m = *self;
    call(s, [&m, s, to, value, bytes] {
        begin_copy(m, s);
        stream_access(m, s, to, bytes, true);
        memset(to, value, bytes);
        m.changed(to, bytes);
    });
}

void machine::call(stream s, std::function<void()> function) {
    self->host_released();
    stream_queue::item i;
    i.kind = stream_queue::item::CALL;
    i.host = self->pool.copy(self->host);
    i.call = std::move(function);
    self->streams[s]->items.push_back(std::move(i));
    self->attention = true;
}

event machine::record(stream s) {
    const event e = (event)self->events.size();
    self->events.emplace_back();
    stream_queue::item i;
    i.kind = stream_queue::item::RECORD;
    i.e = e;
    self->streams[s]->items.push_back(std::move(i));
    self->attention = true;
    return e;
}

void machine::wait(stream s, event e) {
    stream_queue::item i;
    i.kind = stream_queue::item::WAIT;
    i.e = e;
    self->streams[s]->items.push_back(std::move(i));
    self->attention = true;
}

/* Whoever is told that something has ended knows what it did. */
bool machine::stream_done(stream s) const {
    const stream_queue &q = *self->streams[s];
    if (!q.items.empty())
        return false;
    if (q.clock)
        self->host.join(*q.clock);
    return true;
}

bool machine::event_done(event e) const {
    const event_state &state_of = self->events[e];
    if (state_of.done && state_of.clock)
        self->host.join(*state_of.clock);
    return state_of.done;
}

state machine::run(uint64_t steps) {
    const state s = self->drive(steps, nullptr);
    if (s == state::idle)
        for (const std::unique_ptr<stream_queue> &q : self->streams)
            if (q->clock)
                self->host.join(*q->clock);
    return s;
}

state machine::run_stream(stream s, uint64_t steps) {
    const state reached = self->drive(steps, &s);
    if (reached == state::idle && self->streams[s]->clock)
        self->host.join(*self->streams[s]->clock);
    return reached;
}

bool machine::let_time_pass() {
    return self->have_patience();
}

bool machine::finish() {
    state s;
    do {
        s = run();
    } while (s == state::stalled && let_time_pass());
    if (s == state::stalled)
        report_deadlock();
    return s == state::idle;
}

bool machine::finish_stream(stream s) {
    state reached;
    do {
        reached = run_stream(s);
    } while (reached == state::stalled && let_time_pass());
    if (reached == state::stalled)
        report_deadlock();
    return reached == state::idle;
}

void machine::report_deadlock() {
    self->deadlock();
}

const std::vector<report> &machine::reports() const {
    return self->reports;
}

const struct counters &machine::counters() const {
    self->counters.accesses = self->shade.accesses;
    return self->counters;
}

const struct options &machine::options() const {
    return self->options;
}

} // namespace sim
