/* Streams, and grids from their launch to their end. */
#include <algorithm>
#include <cstring>

#include "sim/machine.h"
#include "sim/order.h"
#include "sim/warpgroup.h"

namespace sim {

namespace {

/* Threads of a CTA have this many registers together. */
const unsigned REGISTERS = 65536, REGISTERS_A_THREAD = 255;

void thread_main(void *argument) {
    thread &t = *(thread *)argument;
    fiber_entered(t.stack);
    const grid &g = *t.of->of->of;
    g.how.kernel(g.parameters);
    t.of->home->thread_ended(t);
}

} // namespace

/* On the main stack: starts what can start, ends what has ended. */
void machine::impl::attend() {
    attention = false;
    reap();
    bool again = true;
    while (again && !stopped) {
        again = false;
        for (stream s = 0; s < streams.size() && !stopped; s++)
            again |= advance(s);
    }
    if (!stopped && !random.one_in(4))
        place_ctas();
}

/* The first item of a stream. true: something changed, so others may go on. */
bool machine::impl::advance(stream s) {
    stream_queue &q = *streams[s];
    if (q.items.empty())
        return false;
    stream_queue::item &i = q.items.front();
    switch (i.kind) {
    case stream_queue::item::GRID:
        if (!i.grid->begun) {
            begin_grid(q, *i.grid);
            return true;
        }
        if (!i.grid->order.empty() || i.grid->running > 0 || i.grid->copies > 0)
            return begin_dependent(q);
        end_grid(q, *i.grid);
        break;
    case stream_queue::item::CALL: {
        const std::function<void()> call = std::move(i.call);
        q.clock.own(pool).join(*i.host);
        q.items.pop_front();
        call();
        progress++;
        return true;
    }
    case stream_queue::item::RECORD:
        events[i.e].done = true;
        events[i.e].clock = q.clock;
        break;
    case stream_queue::item::WAIT:
        if (!events[i.e].done)
            return false;
        if (events[i.e].clock)
            q.clock.own(pool).join(*events[i.e].clock);
        break;
    }
    q.items.pop_front();
    progress++;
    return true;
}

/* The grid behind the one that runs, if it may start early. */
bool machine::impl::begin_dependent(stream_queue &q) {
    if (q.items.size() < 2 || q.items[1].kind != stream_queue::item::GRID)
        return false;
    grid &g = *q.items[1].grid;
    const grid &before = *q.items[0].grid;
    if (!g.how.programmatic || g.begun || !before.order.empty() || before.letting < before.how.grid)
        return false;
    g.waits_before = true;
    begin_grid(q, g);
    return true;
}

void machine::impl::begin_grid(stream_queue &q, grid &g) {
    const unsigned cluster = g.how.cluster, clusters = g.how.grid / cluster;
    g.begun = true;
    g.start = q.clock ? pool.copy(*q.clock) : pool.empty();
    g.start.own(pool).join(*g.host);
    for (unsigned c = clusters; c-- > 0;)
        g.order.push_back(c);
    if (bias.shuffle_ctas)
        for (unsigned c = clusters; c > 1; c--)
            std::swap(g.order[c - 1], g.order[random.below(c)]);
    const unsigned most = options.multiprocessors / cluster;
    g.resident = options.resident != 0 ? std::max(options.resident, cluster) : cluster * (1 + random.below(most));
    devices[g.device].active.push_back(&g);
}

void machine::impl::end_grid(stream_queue &q, grid &g) {
    std::vector<grid *> &active = devices[g.device].active;
    active.erase(std::find(active.begin(), active.end(), &g));
    devices[g.device].late->arrive_all(*this);
    /* The end of a grid shows all that it did, to every proxy. */
    clocks &after = q.clock.own(pool);
    after.join(*g.start);
    after.join(g.end);
    after.fence(FENCED_SHARED);
    after.fence(FENCED_GLOBAL);
    if (q.items.size() > 1 && q.items[1].kind == stream_queue::item::GRID && q.items[1].grid->waits_before) {
        grid &next = *q.items[1].grid;
        next.waits_before = false;
        next.before = pool.copy(after);
        for (thread *t : next.waits)
            make_ready(*t);
        next.waits.clear();
    }
}

bool machine::impl::waits_for_place() const {
    for (const device &d : devices)
        for (const grid *g : d.active)
            if (!g->order.empty() && d.free_multiprocessors >= g->how.cluster &&
                g->running + g->how.cluster <= g->resident)
                return true;
    return false;
}

/* Starts clusters where there is room. true: at least one. */
bool machine::impl::place_ctas() {
    bool any = false;
    for (device &d : devices) {
        for (grid *g : d.active) {
            while (!stopped && !g->order.empty() && d.free_multiprocessors >= g->how.cluster &&
                   g->running + g->how.cluster <= g->resident) {
                const unsigned next = g->order.back();
                g->order.pop_back();
                if (!start_cluster(*g, next)) {
                    record(nullptr, fault::launch, "no memory for a CTA of " + g->how.name);
                    return any;
                }
                any = true;
                if (random.one_in(4))
                    break;
            }
        }
    }
    return any;
}

bool machine::impl::start_cluster(grid &g, unsigned number) {
    auto group = std::make_shared<cluster>();
    for (unsigned rank = 0; rank < g.how.cluster; rank++) {
        std::unique_ptr<cta> c = make_cta(g, group, number * g.how.cluster + rank, rank);
        if (c == nullptr)
            return false;
        group->members.push_back(c.get());
        ctas.push_back(std::move(c));
    }
    devices[g.device].free_multiprocessors -= g.how.cluster;
    g.running += g.how.cluster;
    progress++;
    /* Only now, when all members can be found, may threads run. */
    for (cta *c : group->members)
        for (const std::unique_ptr<warp> &w : c->warps)
            make_ready(*w);
    return true;
}

std::unique_ptr<cta> machine::impl::make_cta(grid &g, const std::shared_ptr<cluster> &group, unsigned index,
                                             unsigned rank) {
    auto c = std::make_unique<cta>();
    c->of = &g;
    c->index = index;
    c->rank = rank;
    c->group = group;
    c->shared.assign(g.how.shared_bytes, (char)0xff);
    c->cells.resize(g.how.shared_bytes);
    const unsigned warps = g.how.threads / 32;
    const unsigned registers = std::min(REGISTERS / g.how.threads / 8 * 8, REGISTERS_A_THREAD);
    c->registers_free = (int)(REGISTERS - registers * g.how.threads);
    for (unsigned i = 0; i < warps; i++) {
        c->warps.push_back(std::make_unique<warp>());
        warp &w = *c->warps.back();
        w.home = this;
        w.of = c.get();
        w.index = i;
        w.registers = registers;
        w.actor = new_warp_actor(g.device);
        w.base = *g.start;
        w.floor = warp_clocks[w.actor] + 1;
        actor_info &info = warp_infos[w.actor];
        info = actor_info();
        info.name = format_text("device %u %s", g.device, warp_name(w).c_str());
        info.device = (int)g.device;
        for (unsigned lane = 0; lane < 32; lane++) {
            thread &t = w.lanes[lane];
            t.of = &w;
            t.lane = (uint8_t)lane;
            if (!stacks.start(t.stack, thread_main, &t))
                return nullptr;
        }
    }
    for (const std::unique_ptr<warp> &w : c->warps)
        w->starved = is_starved(bias, *w);
    for (unsigned i = 0; i < (warps + 3) / 4; i++)
        c->warpgroups.push_back(std::make_unique<warpgroup>(*c, i));
    return c;
}

/* Called by the thread itself, as the last thing it does. */
void machine::impl::thread_ended(thread &t) {
    warp &w = *t.of;
    cta &c = *w.of;
    if (w.gathered != 0) {
        record(&t, fault::divergence,
               format_text("the lane ends while lanes 0x%08x of its warp are at %s", w.gathered,
                           gathering_text(w).c_str()));
        give_up(t);
    }
    t.ended = true;
    w.ended |= 1u << t.lane;
    progress++;
    if (w.ended == ~0u) {
        warp_ended(w);
        if (++c.ended_warps == c.warps.size() && !stopped)
            check_end(t);
    }
    leave(t);
    __builtin_unreachable();
}

/* Others may wait for what this warp will not do. */
void machine::impl::warp_ended(const warp &w) {
    cta &c = *w.of;
    if (c.barriers[0].arrived > 0)
        record(&c.barriers[0].waits[0]->lanes[0], fault::named_barrier,
               format_text("cta_sync, but warp %u has ended", w.index));
    const void *where;
    if (!stopped && c.warpgroups[w.index / 4]->lacks(w, &where))
        record(&c.warpgroups[w.index / 4]->issuer()->lanes[0], fault::divergence,
               format_text("wgmma, but warp %u of the warpgroup has ended without it", w.index), where);
}

/* Shared memory is gone when its CTA ends: whatever used it from outside must be known to be over by one of its
 * threads, not just happen to be. */
void machine::impl::check_end(thread &t) {
    cta &c = *t.of->of;
    c.ended = true;
    attention = true;
    t.where = nullptr;
    scratch.clear();
    for (const std::unique_ptr<warp> &w : c.warps) {
        meet(*w, nullptr);
        tell(*w, scratch);
    }
    if (!options.check_order) {
        if (c.landing > 0 || c.reading > 0)
            record(&t, fault::lifetime, "the CTA ends while copies to or from its shared memory are under way");
        return;
    }
    const auto unknown = [&](uint16_t actor, uint32_t clock) { return clock > scratch.async(actor); };
    for (const mbarrier &b : c.mbarriers) {
        if (unknown(b.actor, b.last_copy))
            return record(&t, fault::lifetime,
                          format_text("the CTA ends and none of its threads has waited for the copies to its shared "
                                      "memory that land on mbarrier +0x%x",
                                      b.offset),
                          place_at(async_infos[b.actor], b.last_copy));
        for (const mbarrier::signal &s : b.signals)
            if (unknown(b.actor, s.phase_clock) && !scratch.knows(s.by, KNOWN))
                return record(&t, fault::lifetime,
                              format_text("the CTA ends and none of its threads has waited for an arrival on mbarrier "
                                          "+0x%x by %s",
                                          b.offset, actor_name(*this, s.by).c_str()));
    }
    for (const std::unique_ptr<warp> &w : c.warps) {
        for (const thread &lane : w->lanes) {
            if (lane.bulk == nullptr || !unknown(lane.bulk->reads_actor, lane.bulk->last_read()))
                continue;
            return record(&lane, fault::lifetime,
                          "the CTA ends and no bulk_wait shows that a bulk store has read its shared memory",
                          place_at(async_infos[lane.bulk->reads_actor], lane.bulk->last_read()));
        }
    }
    for (const std::unique_ptr<warpgroup> &g : c.warpgroups)
        if (unknown(g->actor, async_clocks[g->actor]))
            return record(&g->issuer()->lanes[0], fault::lifetime,
                          "the CTA ends and no wgmma_wait covers its last wgmmas",
                          place_at(async_infos[g->actor], async_clocks[g->actor]));
}

/* CTAs that have ended: what they did is in the grid's end, and their place is free. */
void machine::impl::reap() {
    for (size_t i = 0; i < ctas.size();) {
        cta &c = *ctas[i];
        if (!c.ended) {
            i++;
            continue;
        }
        grid &g = *c.of;
        for (std::unique_ptr<warp> &w : c.warps) {
            tell(*w, g.end);
            warp_clocks[w->actor] = w->floor;
            devices[g.device].unused_warp_actors.push_back(w->actor);
            for (thread &t : w->lanes)
                stacks.release(t.stack);
            if (w->queued) {
                std::vector<warp *> &queue = queues[w->starved];
                queue.erase(std::find(queue.begin(), queue.end(), w.get()));
            }
            if (last_warp == w.get())
                last_warp = nullptr;
        }
        for (uint16_t actor : c.async_actors) {
            g.end.set_async(actor, async_clocks[actor]);
            devices[g.device].unused_async_actors.push_back(actor);
        }
        c.cells.release(shade);
        c.group->members[c.rank] = nullptr;
        g.running--;
        g.letting += !c.let;
        devices[g.device].free_multiprocessors++;
        ctas[i] = std::move(ctas.back());
        ctas.pop_back();
    }
}

bool machine::impl::all_done() const {
    for (const std::unique_ptr<stream_queue> &q : streams)
        if (!q->items.empty())
            return false;
    return true;
}

/* An actor that has ended is used again only when this many others have, since whoever learns of the new one seems to
 * know of the old one too; and on its own device, which what it did remains a matter of. */
static const size_t RESTING_ACTORS = 512;

static uint16_t next_actor(machine::impl &m, std::deque<uint16_t> &unused, std::vector<uint32_t> &clocks,
                           std::vector<actor_info> &infos) {
    const bool full = clocks.size() > UINT16_MAX;
    if (full && unused.empty()) {
        m.record(nullptr, fault::launch, "more CTAs at once than the simulator can tell apart");
        return 0;
    }
    if (full || unused.size() > RESTING_ACTORS) {
        const uint16_t actor = unused.front();
        unused.pop_front();
        return actor;
    }
    clocks.push_back(0);
    infos.emplace_back();
    return (uint16_t)(clocks.size() - 1);
}

uint16_t machine::impl::new_warp_actor(unsigned on) {
    return next_actor(*this, devices[on].unused_warp_actors, warp_clocks, warp_infos);
}

uint16_t machine::impl::new_async_actor(cta *owner, std::string name) {
    std::deque<uint16_t> none;
    std::deque<uint16_t> &unused = owner != nullptr ? devices[owner->of->device].unused_async_actors : none;
    const uint16_t actor = next_actor(*this, unused, async_clocks, async_infos);
    actor_info &info = async_infos[actor];
    info = actor_info();
    info.name = std::move(name);
    if (owner != nullptr) {
        info.device = (int)owner->of->device;
        owner->async_actors.push_back(actor);
    }
    return actor;
}

void machine::impl::note_clock(uint16_t actor, bool async, uint32_t clock, const void *where) {
    actor_info &info = (async ? async_infos : warp_infos)[actor];
    if (async)
        async_clocks[actor] = std::max(async_clocks[actor], clock);
    info.history[info.next] = {clock, where};
    info.next = (info.next + 1) % (sizeof info.history / sizeof info.history[0]);
}

} // namespace sim
