/* Flags and counters in global memory: scoped loads, stores and atomics, the fences that go with them, and threads that
 * poll. */
#include <cstring>

#include "sim/access.h"
#include "sim/gather.h"
#include "sim/operations.h"

namespace sim {

namespace {

uint8_t flags_of(scope s) {
    return (uint8_t)(ATOMIC | (s == WHOLE ? SYSTEM : 0));
}

unsigned device_of(const thread &t) {
    return t.of->of->of->device;
}

/* What a read at this scope by this thread takes part in: releases whose scope and its own take in both. */
void each_release(thread &t, const uint32_t *address, scope s, void (*use)(thread &, const clocks_ref &)) {
    machine::impl &m = *t.of->home;
    const auto at = m.flags.find((uintptr_t)address);
    if (at == m.flags.end())
        return;
    const flag &f = at->second;
    if (device_of(t) < f.by_device.size())
        use(t, f.by_device[device_of(t)]);
    if (s == WHOLE)
        use(t, f.system);
}

void acquire(thread &t, const uint32_t *address, scope s) {
    each_release(t, address, s, [](thread &by, const clocks_ref &from) { learn(by, from); });
}

/* A relaxed read acquires at the thread's next fence. */
void remember(thread &t, const uint32_t *address, scope s) {
    each_release(t, address, s, [](thread &by, const clocks_ref &from) {
        if (from)
            by.seen.own(by.of->home->pool).join(*from);
    });
}

void add_release(thread &t, const uint32_t *address, scope s, const clocks &what) {
    machine::impl &m = *t.of->home;
    if (s == WHOLE)
        m.devices[device_of(t)].late->arrive_all(m);
    flag &f = m.flags[(uintptr_t)address];
    f.by_device.resize(m.devices.size());
    f.by_device[device_of(t)].own(m.pool).join(what);
    if (s == WHOLE)
        f.system.own(m.pool).join(what);
}

void release(thread &t, const uint32_t *address, scope s) {
    machine::impl &m = *t.of->home;
    m.scratch.clear();
    tell(t, m.scratch);
    add_release(t, address, s, m.scratch);
}

/* A relaxed write after a fence releases what came before the fence. */
void release_fenced(thread &t, const uint32_t *address, scope s) {
    if (t.released)
        add_release(t, address, s == WHOLE && t.released_to_system ? WHOLE : GPU, *t.released);
}

uint32_t value_at(const uint32_t *address) {
    uint32_t value;
    memcpy(&value, address, sizeof value);
    return value;
}

/* Gives way where a thread reads over and over what does not change: it goes on when one of the words that it has
 * looked at since it last did anything else has changed, or when nobody else can go on. */
void poll(thread &t, const uint32_t *address) {
    machine::impl &m = *t.of->home;
    poll_history &p = t.polls;
    unsigned i = 0;
    while (i < p.count && p.seen[i].address != address)
        i++;
    if (i == p.count) {
        if (p.count == poll_history::LIMIT) {
            m.make_ready(t);
            m.leave(t);
            return;
        }
        p.seen[p.count++] = {address, value_at(address)};
        return m.maybe_leave(t);
    }
    if (p.seen[i].value == value_at(address)) {
        std::swap(p.seen[i], p.seen[p.count - 1]);
        for (unsigned j = 0; j < p.count; j++)
            m.watchers.emplace((uintptr_t)p.seen[j].address, &t);
        m.park(t, wait_for::FLAG);
        t.woken_early = false;
        m.forget_watcher(t);
    }
    p.count = 1;
    p.seen[0] = {address, value_at(address)};
}

allocation &flag_at(thread &t, const uint32_t *address, const char *what, size_t *offset) {
    return global_at(t, address, sizeof *address, sizeof *address, what, offset);
}

void check(thread &t, const uint32_t *address, scope s, access kind, const char *what) {
    size_t offset;
    allocation &a = flag_at(t, address, what, &offset);
    see_late_stores(t, address, sizeof *address);
    t.of->accessed |= 1u << t.lane;
    check_global(t, a, offset, sizeof *address, kind, thread_observer(t, flags_of(s)), what);
}

void put(thread &t, uint32_t *address, uint32_t value) {
    memcpy(address, &value, sizeof value);
    t.of->home->changed(address, sizeof value);
}

uint32_t add(thread &t, uint32_t *address, uint32_t value, scope s, memory_order order, const char *what) {
    not_polling(t);
    t.of->home->maybe_leave(t);
    check(t, address, s, access::MODIFY, what);
    if (order == ACQUIRE_RELEASE)
        acquire(t, address, s);
    if (order == RELAXED)
        release_fenced(t, address, s);
    else
        release(t, address, s);
    const uint32_t old = value_at(address);
    put(t, address, old + value);
    return old;
}

} // namespace

void machine::impl::changed(const void *address, size_t bytes) {
    progress++;
    if (watchers.empty())
        return;
    const uintptr_t begin = (uintptr_t)address & ~(uintptr_t)3;
    for (auto at = watchers.lower_bound(begin); at != watchers.end() && at->first < (uintptr_t)address + bytes; ++at)
        if (at->second->waits == wait_for::FLAG)
            make_ready(*at->second);
}

void machine::impl::forget_watcher(const thread &t) {
    for (unsigned i = 0; i < t.polls.count; i++) {
        const auto range = watchers.equal_range((uintptr_t)t.polls.seen[i].address);
        for (auto at = range.first; at != range.second; ++at) {
            if (at->second == &t) {
                watchers.erase(at);
                break;
            }
        }
    }
}

uint32_t flag_load(const uint32_t *address, scope s, bool acquires) {
    thread &t = enter(__builtin_return_address(0));
    const char *what = acquires ? "an acquiring load" : "a relaxed load";
    size_t offset;
    flag_at(t, address, what, &offset);
    poll(t, address);
    check(t, address, s, access::READ, what);
    if (acquires)
        acquire(t, address, s);
    else
        remember(t, address, s);
    return value_at(address);
}

void flag_store(uint32_t *address, uint32_t value, scope s) {
    thread &t = enter(__builtin_return_address(0));
    not_polling(t);
    t.of->home->maybe_leave(t);
    check(t, address, s, access::WRITE, "a releasing store");
    flag &f = t.of->home->flags[(uintptr_t)address];
    f.system.reset();
    f.by_device.clear();
    release(t, address, s);
    put(t, address, value);
}

void flag_reduce(uint32_t *address, uint32_t value, scope s, memory_order order) {
    add(enter(__builtin_return_address(0)), address, value, s, order, "an atomic add");
}

uint32_t flag_fetch_add(uint32_t *address, uint32_t value, scope s, memory_order order) {
    thread &t = enter(__builtin_return_address(0));
    const uint32_t old = add(t, address, value, s, order, "an atomic add");
    if (order == RELAXED)
        remember(t, address, s);
    return old;
}

uint32_t flag_compare_swap(uint32_t *address, uint32_t expected, uint32_t value) {
    thread &t = enter(__builtin_return_address(0));
    size_t offset;
    flag_at(t, address, "compare_swap", &offset);
    if (value_at(address) != expected)
        poll(t, address);
    else
        t.of->home->maybe_leave(t);
    const uint32_t old = value_at(address);
    check(t, address, WHOLE, old == expected ? access::MODIFY : access::READ, "compare_swap");
    acquire(t, address, WHOLE);
    if (old == expected) {
        not_polling(t);
        release(t, address, WHOLE);
        put(t, address, value);
    }
    return old;
}

void fence(bool system) {
    thread &t = enter(__builtin_return_address(0));
    machine::impl &m = *t.of->home;
    learn(t, t.seen);
    t.seen.reset();
    t.released = m.pool.empty();
    tell(t, t.released.own(m.pool));
    t.released_to_system = system;
    if (system)
        m.devices[device_of(t)].late->arrive_all(m);
    m.maybe_leave(t);
}

void fence_async(bool global) {
    thread &t = enter(__builtin_return_address(0));
    fence_proxy(t, FENCED_SHARED);
    if (global)
        fence_proxy(t, FENCED_GLOBAL);
    for (mbarrier &b : t.of->of->mbarriers)
        b.fenced = b.fenced || knows(t, b.made, KNOWN);
    t.of->home->maybe_leave(t);
}

} // namespace sim
