/* mbarriers: phases, arrivals, bytes, and what a wait learns. */
#include "sim/mbarrier.h"

#include <algorithm>
#include <cstring>

#include "sim/access.h"
#include "sim/gather.h"
#include "sim/operations.h"

namespace sim {

namespace {

const uint32_t MAGIC = 0x6d626172, MOST = (1u << 20) - 1; /* arrivals, and bytes at once */

/* What lies in shared memory where an mbarrier is. */
struct handle {
    uint32_t magic, index;
};

mbarrier *find(cta &c, size_t offset) {
    handle h;
    memcpy(&h, &c.shared[offset], sizeof h);
    if (h.magic != MAGIC || h.index >= c.mbarriers.size() || c.mbarriers[h.index].offset != offset)
        return nullptr;
    return &c.mbarriers[h.index];
}

std::string phase_text(const mbarrier &b) {
    return format_text("mbarrier +0x%x in phase %u", b.offset, b.phase);
}

/* Why the phase cannot go on, if so. */
std::string advance(mbarrier &b) {
    if (b.missing != 0 || b.bytes > 0)
        return "";
    if (b.bytes < 0)
        return phase_text(b) + format_text(": all have arrived, and %lld bytes more have landed than were expected",
                                           -(long long)b.bytes);
    if (b.copies > 0)
        return phase_text(b) + format_text(" ends, as the bytes expected have landed, while %u copies that land on it "
                                           "are under way",
                                           b.copies);
    machine::impl &m = *b.of->of->home;
    b.phase++;
    b.missing = b.count;
    m.async_clocks[b.actor] = std::max(m.async_clocks[b.actor], b.clock_before());
    b.arrived.own(m.pool).set_async(b.actor, b.clock_before());
    b.done = std::move(b.arrived);
    b.arrived.reset();
    m.progress++;
    for (thread *t : b.waits)
        m.make_ready(*t);
    b.waits.clear();
    return "";
}

/* The thread's own part of an arrival, after what it tells. */
void arrive(thread &t, mbarrier &b, uint32_t bytes, bool arrival) {
    if (arrival && b.missing == 0)
        fail(t, fault::mbarrier, "mbarrier +0x%x in phase %u: an arrival more than its count of %u", b.offset, b.phase,
             b.count);
    b.bytes += bytes;
    if (b.bytes > MOST)
        fail(t, fault::mbarrier, "mbarrier +0x%x in phase %u expects %lld bytes, at most %u can be expected", b.offset,
             b.phase, (long long)b.bytes, MOST);
    b.missing -= arrival;
    machine::impl &m = *t.of->home;
    m.progress++;
    std::string wrong = advance(b);
    if (!wrong.empty()) {
        m.record(&t, fault::mbarrier, std::move(wrong));
        wrong = std::string();
        give_up(t);
    }
}

void arrive_here(thread &t, uint32_t bar, uint32_t bytes, bool arrival, const char *what) {
    not_polling(t);
    t.of->home->maybe_leave(t);
    mbarrier &b = mbarrier_at(t, *t.of->of, bar, false, what);
    if (arrival)
        tell(t, b.arrived.own(t.of->home->pool));
    arrive(t, b, bytes, arrival);
}

/* Remembers an arrival from another CTA until the CTA's end. */
void note_signal(const thread &t, mbarrier &b) {
    const mbarrier::signal made = {{label(t), t.of->actor, t.lane, 0}, b.clock_now()};
    for (mbarrier::signal &s : b.signals) {
        if (s.by.actor == made.by.actor && s.by.lane == made.by.lane) {
            s = made;
            return;
        }
    }
    b.signals.push_back(made);
}

/* `until` is the last phase that the thread relies on having ended before now. A parity tells two phases apart, so a
 * thread must have seen each phase end, or know it otherwise, before it asks for the next. */
void check_no_skip(thread &t, mbarrier &b, int64_t until) {
    epoch end;
    end.clock = b.first_clock + (uint32_t)until + 1;
    end.actor = b.actor;
    end.flags = ASYNC;
    const int64_t seen = b.observed[t.of->index];
    if (until > seen && !knows(t, end, KNOWN))
        fail(t, fault::mbarrier,
             "mbarrier +0x%x: phase %lld has ended, and this warp last saw the end of phase %lld (-1: none): it skips "
             "a phase, and a parity cannot tell",
             b.offset, (long long)until, (long long)seen);
}

bool has_ended(thread &t, mbarrier &b, uint32_t parity) {
    const int64_t current = b.phase;
    if ((current & 1) == (parity & 1)) {
        check_no_skip(t, b, current - 1);
        return false;
    }
    check_no_skip(t, b, current - 2);
    int64_t &seen = b.observed[t.of->index];
    seen = std::max(seen, current - 1);
    learn(t, b.done);
    return true;
}

void stop_waiting(thread &t, mbarrier &b) {
    b.waits.erase(std::remove(b.waits.begin(), b.waits.end(), &t), b.waits.end());
}

} // namespace

mbarrier &mbarrier_at(thread &t, cta &c, uint32_t bar, bool from_outside, const char *what) {
    const size_t offset = shared_offset(t, c, bar, sizeof(handle), 8, what);
    mbarrier *b = find(c, offset);
    if (b == nullptr)
        fail(t, fault::mbarrier, "%s at +0x%zx, where no mbarrier has been initialised or it was overwritten", what,
             offset);
    if (t.of->home->options.check_order && !knows(t, b->made, KNOWN))
        fail(t, fault::mbarrier, "%s on mbarrier +0x%x, whose mbarrier_init is not ordered before it", what, b->offset);
    if (from_outside && !b->fenced)
        fail(t, fault::mbarrier, "%s on mbarrier +0x%x without an mbarrier_init_fence after its mbarrier_init", what,
             b->offset);
    return *b;
}

std::string mbarrier_land(mbarrier &b, uint32_t phase, uint32_t bytes, bool last) {
    if (b.phase != phase)
        return format_text("bytes for phase %u of ", phase) + phase_text(b) + " land late";
    b.bytes -= bytes;
    if (b.bytes < -(int64_t)MOST)
        return phase_text(b) + ": more bytes have landed than can be counted";
    b.copies -= last;
    return advance(b);
}

void mbarrier_init(uint32_t bar, uint32_t count) {
    thread &t = enter(__builtin_return_address(0));
    cta &c = *t.of->of;
    not_polling(t);
    const size_t offset = shared_offset(t, c, bar, sizeof(handle), 8, "mbarrier_init");
    if (count == 0 || count > MOST)
        fail(t, fault::mbarrier, "mbarrier_init with count %u, expected 1 to %u", count, MOST);
    if (find(c, offset) != nullptr)
        fail(t, fault::mbarrier, "mbarrier_init at +0x%zx, where an mbarrier is already", offset);
    t.of->accessed |= 1u << t.lane;
    const thread_observer by(t, MBARRIER);
    check_shared(t, c, offset, sizeof(handle), access::WRITE, by, "mbarrier_init");
    const handle h = {MAGIC, (uint32_t)c.mbarriers.size()};
    memcpy(&c.shared[offset], &h, sizeof h);
    c.mbarriers.emplace_back();
    mbarrier &b = c.mbarriers.back();
    b.of = &c;
    b.offset = (uint32_t)offset;
    b.count = b.missing = count;
    b.made = by.self;
    machine::impl &m = *t.of->home;
    b.actor = m.new_async_actor(
        &c, format_text("a copy that lands on mbarrier +0x%x of device %u CTA %u", b.offset, c.of->device, c.index));
    b.first_clock = m.async_clocks[b.actor];
    b.observed.assign(c.warps.size(), -1);
}

void mbarrier_init_fence() {
    thread &t = enter(__builtin_return_address(0));
    for (mbarrier &b : t.of->of->mbarriers)
        b.fenced = b.fenced || knows(t, b.made, KNOWN);
}

void mbarrier_arrive(uint32_t bar) {
    arrive_here(enter(__builtin_return_address(0)), bar, 0, true, "mbarrier_arrive");
}

void mbarrier_arrive_expect(uint32_t bar, uint32_t bytes) {
    arrive_here(enter(__builtin_return_address(0)), bar, bytes, true, "mbarrier_arrive_expect");
}

void mbarrier_expect(uint32_t bar, uint32_t bytes) {
    arrive_here(enter(__builtin_return_address(0)), bar, bytes, false, "mbarrier_expect");
}

void mbarrier_arrive_cluster(uint32_t bar, uint32_t rank) {
    thread &t = enter(__builtin_return_address(0));
    const cluster &group = *t.of->of->group;
    not_polling(t);
    t.of->home->maybe_leave(t);
    if (rank >= group.members.size())
        fail(t, fault::bounds, "mbarrier_arrive_cluster on CTA %u of a cluster of %zu", rank, group.members.size());
    cta *target = group.members[rank];
    if (target == nullptr || target->ended)
        fail(t, fault::lifetime, "mbarrier_arrive_cluster on CTA %u of the cluster, which has ended", rank);
    mbarrier &b = mbarrier_at(t, *target, bar, target != t.of->of, "mbarrier_arrive_cluster");
    tell_asyncs(t, b.arrived.own(t.of->home->pool));
    if (target != t.of->of)
        note_signal(t, b);
    arrive(t, b, 0, true);
}

bool mbarrier_test(uint32_t bar, uint32_t parity) {
    thread &t = enter(__builtin_return_address(0));
    machine::impl &m = *t.of->home;
    mbarrier &b = mbarrier_at(t, *t.of->of, bar, false, "mbarrier_test");
    if (has_ended(t, b, parity))
        return true;
    t.said_not_yet = !t.said_not_yet && (m.random.next() & 255) < m.bias.false_alarms;
    if (t.said_not_yet) {
        m.make_ready(t);
        m.leave(t);
        return false;
    }
    t.bar = &b;
    t.bar_phase = b.phase;
    b.waits.push_back(&t);
    m.park(t, wait_for::MBARRIER);
    t.bar = nullptr;
    if (t.woken_early) {
        t.woken_early = false;
        stop_waiting(t, b);
    }
    return has_ended(t, b, parity);
}

} // namespace sim
