/* Operations of a warp's lanes together, and what a thread knows of itself. */
#include <algorithm>

#include "sim/gather.h"
#include "sim/operations.h"
#include "sim/where.h"

namespace sim {

bool gather_unordered(thread &t, aligned what, uint64_t signature) {
    warp &w = *t.of;
    if (w.ended != 0)
        fail(t, fault::divergence, "%s, but lanes 0x%08x of the warp have ended", aligned_name(what), w.ended);
    if (w.gathered == 0) {
        w.gathers = what;
        w.gathers_at = t.where;
        w.signature = signature;
    } else if (w.gathers != what || !same_source(w.gathers_at, t.where)) {
        w.home->record(&t, fault::divergence,
                       format_text("the lane comes to %s while lanes 0x%08x of its warp are at %s", aligned_name(what),
                                   w.gathered, gathering_text(w).c_str()));
        give_up(t);
    } else if (w.signature != signature) {
        fail(t, fault::divergence, "the lane comes to %s with other arguments than lanes 0x%08x of its warp",
             aligned_name(what), w.gathered);
    }
    w.gathered |= 1u << t.lane;
    if (w.gathered != ~0u) {
        w.home->park(t, wait_for::LANES);
        return false;
    }
    w.gathered = 0;
    return true;
}

bool gather(thread &t, aligned what, uint64_t signature) {
    if (!gather_unordered(t, what, signature))
        return false;
    meet(*t.of, t.where);
    return true;
}

void part(thread &t) {
    for (thread &other : t.of->lanes)
        if (&other != &t)
            t.of->home->make_ready(other);
}

void wait_together(thread &t, wait_for what) {
    for (thread &other : t.of->lanes)
        other.waits = what;
    t.of->home->leave(t);
}

uint32_t thread_index() {
    const thread &t = current();
    return t.of->index * 32 + t.lane;
}

uint32_t warp_index() {
    thread &t = enter(__builtin_return_address(0));
    if (gather_unordered(t, aligned::WARP_INDEX, 0))
        part(t);
    return t.of->index;
}

uint32_t cta_index() {
    return current().of->of->index;
}

uint32_t cta_count() {
    return current().of->of->of->how.grid;
}

uint32_t cluster_rank() {
    return current().of->of->rank;
}

uint32_t clock_cycles() {
    return (uint32_t)clock_ns();
}

uint64_t clock_ns() {
    thread &t = enter(__builtin_return_address(0));
    machine::impl &m = *t.of->home;
    m.nanoseconds += 1 + (m.random.next() & 15);
    return m.nanoseconds;
}

void sleep_ns(uint32_t ns) {
    thread &t = enter(__builtin_return_address(0));
    machine::impl &m = *t.of->home;
    /* A step stands for some nanoseconds: short sleeps are a few turns of the others. */
    t.wake_at = m.counters.steps + 1 + m.random.below(ns / 4 + 16);
    m.sleepers.push_back(&t);
    m.next_wake = std::min(m.next_wake, t.wake_at);
    m.park(t, wait_for::SLEEP);
    if (t.woken_early) {
        t.woken_early = false;
        m.sleepers.erase(std::remove(m.sleepers.begin(), m.sleepers.end(), &t), m.sleepers.end());
    }
}

void warp_sync() {
    thread &t = enter(__builtin_return_address(0));
    if (gather(t, aligned::WARP_SYNC, 0))
        part(t);
}

uint32_t shuffle(uint32_t value, shuffle_from from, uint32_t which) {
    thread &t = enter(__builtin_return_address(0));
    warp &w = *t.of;
    uint32_t source = which % 32;
    if (from == FROM_XOR)
        source = t.lane ^ (which % 32);
    else if (from == FROM_UP)
        source = which > t.lane ? t.lane : t.lane - which;
    w.given[t.lane] = (uint64_t)source << 32 | value;
    if (gather_unordered(t, aligned::SHUFFLE, (uint64_t)from)) {
        uint32_t values[32];
        for (int lane = 0; lane < 32; lane++)
            values[lane] = (uint32_t)w.given[lane];
        for (int lane = 0; lane < 32; lane++)
            w.result[lane] = values[w.given[lane] >> 32];
        part(t);
    }
    return w.result[t.lane];
}

uint32_t ballot(bool vote) {
    thread &t = enter(__builtin_return_address(0));
    warp &w = *t.of;
    w.given[t.lane] = vote;
    if (gather_unordered(t, aligned::BALLOT, 0)) {
        uint32_t votes = 0;
        for (int lane = 0; lane < 32; lane++)
            votes |= (uint32_t)w.given[lane] << lane;
        for (int lane = 0; lane < 32; lane++)
            w.result[lane] = votes;
        part(t);
    }
    return w.result[t.lane];
}

bool elect_one() {
    thread &t = enter(__builtin_return_address(0));
    if (gather_unordered(t, aligned::ELECT, 0))
        part(t);
    return t.lane == t.of->home->bias.leader;
}

} // namespace sim
