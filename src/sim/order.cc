/* Happens-before between lanes, warps and asynchronous work. */
#include "sim/order.h"

#include <algorithm>

namespace sim {

namespace {

bool lane_knows(const thread &t, const epoch &e, view v) {
    return t.of->base.knows(e, v) || (t.extra && t.extra->knows(e, v));
}

void advance(thread &t, uint32_t to) {
    t.clock = to;
    t.of->home->note_clock(t.of->actor, false, to, t.where);
}

/* What the lane fenced and has learnt nothing since is kept as a mark; this writes it out. */
void write_out_fences(thread &t) {
    for (view v : {FENCED_SHARED, FENCED_GLOBAL}) {
        if (!t.fenced[v])
            continue;
        t.fenced[v] = false;
        clocks &own = t.extra.own(t.of->home->pool);
        own.fence(v);
        own.join_view(v, t.of->base, KNOWN);
    }
}

/* Which of the warp's own writes, labelled up to `most`, are fenced: all, or those of lanes that fenced since the warp
 * last met. */
void meet_fenced(warp &w, view v, uint32_t most) {
    const uint32_t before = w.base.warp(v, w.actor), last = w.base.warp(KNOWN, w.actor);
    uint32_t clean = 0, fenced = 0;
    for (const thread &t : w.lanes) {
        clean |= (uint32_t)(t.unfenced[v] <= before) << t.lane;
        fenced |= (uint32_t)(t.fence_clock[v] > last) << t.lane;
    }
    if (clean == ~0u) {
        w.base.set_warp(v, w.actor, most);
        for (thread &t : w.lanes)
            t.unfenced[v] = 0;
        return;
    }
    if ((clean & fenced) != 0)
        w.base.set_lanes(v, w.actor, clean & fenced, most);
    for (const thread &t : w.lanes)
        if (((fenced & ~clean) >> t.lane & 1) != 0)
            w.base.set_lanes(v, w.actor, 1u << t.lane, t.fence_clock[v]);
}

} // namespace

uint32_t label(const thread &t) {
    return std::max(t.clock, t.of->floor);
}

bool knows(const thread &t, const epoch &e, view v) {
    if (!e.has(ASYNC) && e.actor == t.of->actor && e.lane == t.lane && (v == KNOWN || e.clock <= t.fence_clock[v]))
        return true;
    return lane_knows(t, e, v != KNOWN && t.fenced[v] ? KNOWN : v);
}

void tell(thread &t, clocks &to) {
    warp &w = *t.of;
    to.join(w.base);
    if (t.extra)
        to.join(*t.extra);
    const uint32_t now = label(t), self = 1u << t.lane;
    const bool alone = (w.accessed & ~self) == 0;
    const auto told = [&](view v, uint32_t upto) {
        if (alone)
            to.set_warp(v, w.actor, upto);
        else
            to.set_lanes(v, w.actor, self, upto);
    };
    told(KNOWN, now);
    for (view v : {FENCED_SHARED, FENCED_GLOBAL}) {
        if (t.fenced[v]) {
            to.join_view(v, w.base, KNOWN);
            if (t.extra)
                to.join_view(v, *t.extra, KNOWN);
        }
        if (t.fence_clock[v] > w.base.warp(KNOWN, w.actor))
            told(v, t.unfenced[v] == 0 ? now : t.fence_clock[v]);
    }
    /* Nobody else has touched anything under these labels, and nobody will. */
    if (alone)
        w.floor = now + 1;
    advance(t, now + 1);
}

void tell_asyncs(const thread &t, clocks &to) {
    for (const clocks *from : {(const clocks *)&t.of->base, t.extra.get()}) {
        if (from == nullptr)
            continue;
        to.join_asyncs(*from);
        for (view v : {KNOWN, FENCED_SHARED, DONE})
            to.join_view(v, *from, DONE);
    }
}

void learn(thread &t, const clocks_ref &from) {
    if (!from || t.extra == from)
        return;
    write_out_fences(t);
    if (!t.extra)
        t.extra = from;
    else
        t.extra.own(t.of->home->pool).join(*from);
}

void learn_async(thread &t, uint16_t actor, uint32_t clock) {
    if (t.of->base.async(actor) < clock)
        t.extra.own(t.of->home->pool).set_async(actor, clock);
}

void learn_done(thread &t) {
    write_out_fences(t);
    clocks &own = t.extra.own(t.of->home->pool);
    own.join_view(DONE, own, FENCED_SHARED);
    own.join_view(DONE, t.of->base, FENCED_SHARED);
    own.set_lanes(DONE, t.of->actor, 1u << t.lane, t.fence_clock[FENCED_SHARED]);
}

void fence_proxy(thread &t, view v) {
    const uint32_t now = label(t);
    t.fenced[v] = true;
    t.fence_clock[v] = now;
    t.unfenced[v] = 0;
    advance(t, now + 1);
}

void meet(warp &w, const void *where) {
    clocks &base = w.base;
    for (view v : {FENCED_SHARED, FENCED_GLOBAL}) {
        bool any = false;
        const clocks *last = nullptr;
        for (thread &t : w.lanes) {
            if (!t.fenced[v])
                continue;
            if (!any)
                base.fence(v);
            any = true;
            if (t.extra && t.extra.get() != last)
                base.join_view(v, *(last = t.extra.get()), KNOWN);
            t.fenced[v] = false;
        }
    }
    const clocks *last = nullptr;
    uint32_t most = w.floor;
    for (thread &t : w.lanes) {
        if (t.extra && t.extra.get() != last)
            base.join(*(last = t.extra.get()));
        most = std::max(most, t.clock);
    }
    for (thread &t : w.lanes)
        t.extra.reset();
    for (view v : {FENCED_SHARED, FENCED_GLOBAL})
        meet_fenced(w, v, most);
    base.set_warp(KNOWN, w.actor, most);
    w.floor = most + 1;
    w.accessed = 0;
    w.home->note_clock(w.actor, false, w.floor, where);
}

void tell(const warp &w, clocks &to) {
    to.join(w.base);
}

void learn(warp &w, const clocks &from) {
    w.base.join(from);
}

void learn_done(warp &w) {
    w.base.join_view(DONE, w.base, FENCED_SHARED);
}

thread_observer::thread_observer(thread &t, uint8_t flags) : by(t) {
    self.clock = label(t);
    self.actor = t.of->actor;
    self.lane = t.lane;
    self.flags = flags;
}

thread_observer::thread_observer(thread &t, uint16_t actor, uint32_t clock, uint8_t flags, view v) : by(t) {
    self.clock = clock;
    self.actor = actor;
    self.flags = flags | ASYNC;
    writes_seen = v;
}

bool thread_observer::same_device(const epoch &e) const {
    const machine::impl &m = *by.of->home;
    const actor_info &info = e.has(ASYNC) ? m.async_infos[e.actor] : m.warp_infos[e.actor];
    return info.device == (int)by.of->of->of->device;
}

} // namespace sim
