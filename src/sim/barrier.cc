/* Barriers of a CTA and of a cluster, registers between warps, and grids that wait for each other. */
#include <algorithm>

#include "sim/gather.h"
#include "sim/operations.h"

namespace sim {

namespace {

void release_warps(std::vector<warp *> &waits, const clocks_ref &clock) {
    for (warp *w : waits) {
        learn(*w, *clock);
        w->home->make_ready(*w);
    }
    waits.clear();
}

/* The last lane of a warp comes to named barrier `id` (0: cta_sync). */
void come(thread &t, unsigned id, unsigned threads, bool waits) {
    warp &w = *t.of;
    cta &c = *w.of;
    named_barrier &b = c.barriers[id];
    if (b.arrived == 0) {
        b.expected = threads;
        b.clock.reset();
    }
    if (b.expected != threads)
        fail(t, fault::named_barrier, "barrier %u for %u threads, but others came to it for %u", id, threads,
             b.expected);
    if ((b.warps >> w.index & 1) != 0)
        fail(t, fault::named_barrier, "the warp comes to barrier %u again before the %u threads have come (%u have)",
             id, threads, b.arrived);
    b.warps |= 1u << w.index;
    b.arrived += 32;
    tell(w, b.clock.own(w.home->pool));
    w.home->progress++;
    if (b.arrived < b.expected) {
        if (!waits)
            return part(t);
        b.waits.push_back(&w);
        return wait_together(t, wait_for::NAMED_BARRIER);
    }
    b.arrived = 0;
    b.warps = 0;
    release_warps(b.waits, b.clock);
    if (waits)
        learn(w, *b.clock);
    part(t);
}

void come_named(thread &t, aligned what, unsigned id, unsigned threads) {
    const unsigned all = (unsigned)t.of->of->warps.size() * 32;
    if (id == 0 || id > 15)
        fail(t, fault::named_barrier, "barrier %u, expected 1 to 15", id);
    if (threads == 0 || threads % 32 != 0 || threads > all)
        fail(t, fault::named_barrier, "barrier %u for %u threads, expected a multiple of 32 up to the CTA's %u", id,
             threads, all);
    not_polling(t);
    if (gather(t, what, (uint64_t)id << 32 | threads))
        come(t, id, threads, what == aligned::BARRIER_SYNC);
}

/* Warps that wait for registers take them as they come. */
void share_out_registers(cta &c) {
    for (const std::unique_ptr<warp> &w : c.warps) {
        if (w->registers_wanted == 0)
            continue;
        const int more = (int)(w->registers_wanted - w->registers) * 32;
        if (more > c.registers_free)
            continue;
        c.registers_free -= more;
        w->registers = w->registers_wanted;
        w->registers_wanted = 0;
        w->home->make_ready(*w);
    }
}

void check_registers(thread &t, unsigned registers) {
    if (registers < 24 || registers > 256 || registers % 8 != 0)
        fail(t, fault::registers, "%u registers, expected a multiple of 8 from 24 to 256", registers);
}

} // namespace

void cta_sync() {
    thread &t = enter(__builtin_return_address(0));
    cta &c = *t.of->of;
    not_polling(t);
    if (c.ended_warps > 0)
        fail(t, fault::named_barrier, "cta_sync, but %u of the CTA's warps have ended", c.ended_warps);
    if (gather(t, aligned::CTA_SYNC, 0))
        come(t, 0, (unsigned)c.warps.size() * 32, true);
}

void barrier_sync(uint32_t id, uint32_t threads) {
    come_named(enter(__builtin_return_address(0)), aligned::BARRIER_SYNC, id, threads);
}

void barrier_arrive(uint32_t id, uint32_t threads) {
    come_named(enter(__builtin_return_address(0)), aligned::BARRIER_ARRIVE, id, threads);
}

void cluster_sync() {
    thread &t = enter(__builtin_return_address(0));
    not_polling(t);
    if (!gather(t, aligned::CLUSTER_SYNC, 0))
        return;
    warp &w = *t.of;
    cluster &group = *w.of->group;
    if (group.arrived == 0)
        group.clock.reset();
    tell(w, group.clock.own(w.home->pool));
    w.home->progress++;
    if (++group.arrived < group.members.size() * w.of->warps.size()) {
        group.waits.push_back(&w);
        return wait_together(t, wait_for::CLUSTER);
    }
    group.arrived = 0;
    release_warps(group.waits, group.clock);
    learn(w, *group.clock);
    part(t);
}

void registers_give(unsigned registers) {
    thread &t = enter(__builtin_return_address(0));
    warp &w = *t.of;
    check_registers(t, registers);
    if (!gather(t, aligned::REGISTERS_GIVE, registers))
        return;
    if (registers > w.registers)
        fail(t, fault::registers, "registers_give<%u>, but the warp has only %u", registers, w.registers);
    w.of->registers_free += (int)(w.registers - registers) * 32;
    w.registers = registers;
    w.home->progress++;
    share_out_registers(*w.of);
    part(t);
}

void registers_take(unsigned registers) {
    thread &t = enter(__builtin_return_address(0));
    warp &w = *t.of;
    check_registers(t, registers);
    if (!gather(t, aligned::REGISTERS_TAKE, registers))
        return;
    if (registers < w.registers)
        fail(t, fault::registers, "registers_take<%u>, but the warp has %u", registers, w.registers);
    w.registers_wanted = registers;
    for (thread &other : w.lanes)
        other.waits = wait_for::REGISTERS;
    share_out_registers(*w.of);
    w.home->leave(t);
}

void grid_launch_dependents() {
    thread &t = enter(__builtin_return_address(0));
    cta &c = *t.of->of;
    if (c.let)
        return;
    c.let = true;
    c.of->letting++;
    t.of->home->attention = true;
    t.of->home->maybe_leave(t);
}

void grid_dependency_wait() {
    thread &t = enter(__builtin_return_address(0));
    grid &g = *t.of->of->of;
    not_polling(t);
    if (g.waits_before) {
        g.waits.push_back(&t);
        t.of->home->park(t, wait_for::GRID);
    }
    learn(t, g.before);
}

} // namespace sim
