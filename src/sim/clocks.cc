/* Joins of vector clocks, and the pool that their storage comes from. */
#include "sim/clocks.h"

#include <algorithm>

namespace sim {

namespace {

void join_all(std::vector<uint32_t> &to, const std::vector<uint32_t> &from) {
    if (to.size() < from.size())
        to.resize(from.size());
    uint32_t *into = to.data();
    const uint32_t *with = from.data();
    for (size_t i = 0, count = from.size(); i < count; i++)
        into[i] = std::max(into[i], with[i]);
}

} // namespace

void clocks::raise(std::vector<uint32_t> &of, uint16_t actor, uint32_t clock) {
    if (of.size() <= actor)
        of.resize(actor + 1u);
    of[actor] = std::max(of[actor], clock);
}

bool clocks::knows_lane(const epoch &e, view v) const {
    for (const some_lanes &s : few)
        if (s.v == v && s.actor == e.actor && s.clock >= e.clock && e.lane < 32 && (s.lanes >> e.lane & 1) != 0)
            return true;
    return false;
}

void clocks::set_lanes(view v, uint16_t actor, uint32_t lanes, uint32_t clock) {
    if (lanes == ~0u)
        return set_warp(v, actor, clock);
    if (warp(v, actor) >= clock)
        return;
    for (size_t i = 0; i < few.size();) {
        const some_lanes s = few[i];
        if (s.v == v && s.actor == actor) {
            if (s.clock >= clock && (lanes & ~s.lanes) == 0)
                return;
            const bool covered = s.clock <= clock && (s.lanes & ~lanes) == 0;
            if (covered || s.clock == clock) {
                few[i] = few.back();
                few.pop_back();
                /* Together they may cover others, or all lanes. */
                return set_lanes(v, actor, lanes | s.lanes, clock);
            }
        }
        i++;
    }
    few.push_back({v, actor, lanes, clock});
}

void clocks::forget_covered() {
    few.erase(
        std::remove_if(few.begin(), few.end(), [&](const some_lanes &s) { return warp(s.v, s.actor) >= s.clock; }),
        few.end());
}

void clocks::join(const clocks &other) {
    for (int v = 0; v < VIEWS; v++)
        join_all(warps[v], other.warps[v]);
    join_asyncs(other);
    for (const some_lanes &s : other.few)
        set_lanes(s.v, s.actor, s.lanes, s.clock);
    if (!few.empty())
        forget_covered();
}

void clocks::join_asyncs(const clocks &other) {
    join_all(asyncs, other.asyncs);
}

void clocks::join_view(view to, const clocks &other, view from) {
    join_all(warps[to], other.warps[from]);
    /* By place: setting lanes may move the list that is read. */
    for (size_t i = 0; i < other.few.size(); i++) {
        const some_lanes s = other.few[i];
        if (s.v == from)
            set_lanes(to, s.actor, s.lanes, s.clock);
    }
}

void clocks::clear() {
    for (std::vector<uint32_t> &w : warps)
        w.clear();
    asyncs.clear();
    few.clear();
}

void clocks_ref::reset() {
    if (target != nullptr && --target->references == 0)
        target->home->unused.push_back(target);
    target = nullptr;
}

clocks &clocks_ref::own(clocks_pool &pool) {
    if (target == nullptr)
        *this = pool.empty();
    else if (target->references > 1)
        *this = pool.copy(target->value);
    return target->value;
}

clocks_pool::~clocks_pool() {
    for (clocks_ref::counted *c : unused)
        delete c;
}

clocks_ref clocks_pool::empty() {
    clocks_ref ref;
    if (unused.empty()) {
        ref.target = new clocks_ref::counted;
        ref.target->home = this;
    } else {
        ref.target = unused.back();
        unused.pop_back();
        ref.target->value.clear();
    }
    ref.target->references = 1;
    return ref;
}

clocks_ref clocks_pool::copy(const clocks &from) {
    clocks_ref ref = empty();
    ref.target->value = from;
    return ref;
}

} // namespace sim
