/* Which thread runs next, and when asynchronous work happens. */
#include "sim/machine.h"

#include <algorithm>
#include <cmath>

namespace sim {

namespace {

/* The model makes it one load also where the simulator is in a shared library. */
__attribute__((tls_model("initial-exec"))) thread_local thread *running_thread;

/* How many times those who wait with an eye on something else are woken in vain: before the host hears of a stall, and
 * before that is a deadlock, which takes some hours of simulated time. It passes ever faster, but slowly so: who looks
 * at the clock only every few hundredth time gives up after about as long as it meant to, and in that order. Those at
 * an mbarrier are many, and rarely mean to give up. */
const unsigned SHORT_PATIENCE = 2, LONG_PATIENCE = 30000, ROUNDS_A_DOUBLING = 1400, ROUNDS_OF_MBARRIERS = 64;

/* Not inlined, so that no address of a thread-local object is kept across a switch: the caller of `run` may be another
 * thread next time. */
__attribute__((noinline)) void set_running(thread *t) {
    running_thread = t;
}

uint64_t mixed(uint64_t hash, uint64_t with) {
    return (hash ^ with) * 0x9e3779b97f4a7c15ull + (hash >> 29);
}

} // namespace

__attribute__((noinline)) thread &current() {
    return *running_thread;
}

__attribute__((noinline)) thread &enter(const void *where) {
    thread &t = *running_thread;
    t.where = where;
    t.of->home->counters.steps++;
    return t;
}

void machine::impl::make_ready(thread &t) {
    warp &w = *t.of;
    t.waits = wait_for::NOTHING;
    w.ready |= 1u << t.lane;
    if (!w.queued) {
        w.queued = true;
        queues[w.starved].push_back(&w);
    }
}

void machine::impl::make_ready(warp &w) {
    for (thread &t : w.lanes)
        make_ready(t);
}

thread *machine::impl::pick_lane(warp &w) {
    /* The next one after the last, round the warp: lanes that yield take turns. */
    const uint32_t after = w.ready & ~((2u << last_lane) - 1);
    const unsigned lane = (unsigned)__builtin_ctz(last_warp == &w && after != 0 ? after : w.ready);
    w.ready &= ~(1u << lane);
    last_warp = &w;
    last_lane = lane;
    counters.switches++;
    counters.trace = mixed(counters.trace, (uint64_t)w.actor << 8 | lane);
    return &w.lanes[lane];
}

thread *machine::impl::choose() {
    for (;;) {
        if (stopped || attention || counters.steps >= step_end)
            return nullptr;
        const uint64_t draw = random.next();
        if ((draw >> 24 & 4095) == 0 && waits_for_place()) {
            attention = true;
            return nullptr;
        }
        if (!works.empty() && (draw & 255) < bias.copies_first) {
            step_work();
            continue;
        }
        if (!sleepers.empty() && counters.steps >= next_wake)
            wake_sleepers();
        if (last_warp != nullptr && last_warp->ready != 0 && (draw >> 8 & 255) < bias.stay)
            return pick_lane(*last_warp);
        std::vector<warp *> &queue = queues[queues[0].empty() || (!queues[1].empty() && (draw >> 16 & 255) == 0)];
        if (!queue.empty()) {
            const uint32_t at = (uint32_t)((draw >> 32) * queue.size() >> 32);
            warp *w = queue[at];
            if (w->ready != 0)
                return pick_lane(*w);
            w->queued = false;
            queue[at] = queue.back();
            queue.pop_back();
            continue;
        }
        if (!works.empty()) {
            step_work();
            continue;
        }
        if (waits_for_place() || !wake_the_patient())
            return nullptr;
    }
}

void machine::impl::wake_sleepers() {
    next_wake = ~0ull;
    for (size_t i = 0; i < sleepers.size();) {
        thread *t = sleepers[i];
        if (t->waits == wait_for::SLEEP && t->wake_at > counters.steps) {
            next_wake = std::min(next_wake, t->wake_at);
            i++;
            continue;
        }
        sleepers[i] = sleepers.back();
        sleepers.pop_back();
        if (t->waits == wait_for::SLEEP)
            make_ready(*t);
    }
}

/* Nothing can run: whoever waits for a time, or in a loop of its own, looks again at a later time. */
bool machine::impl::wake_the_patient() {
    if (progress != progress_seen) {
        progress_seen = progress;
        idle_rounds = 0;
        patience = SHORT_PATIENCE;
    }
    if (idle_rounds >= patience)
        return false;
    nanoseconds += (uint64_t)(1000 * std::exp2((double)idle_rounds / ROUNDS_A_DOUBLING));
    const bool mbarriers = ++idle_rounds % ROUNDS_OF_MBARRIERS == SHORT_PATIENCE;
    bool any = false;
    for (const std::unique_ptr<cta> &c : ctas) {
        for (const std::unique_ptr<warp> &w : c->warps) {
            for (thread &t : w->lanes) {
                const bool at_mbarrier = t.waits == wait_for::MBARRIER;
                any |= at_mbarrier;
                if (t.waits == wait_for::FLAG || t.waits == wait_for::SLEEP || (at_mbarrier && mbarriers)) {
                    t.woken_early = true;
                    make_ready(t);
                    any = true;
                }
            }
        }
    }
    return any;
}

bool machine::impl::have_patience() {
    if (progress == progress_seen && idle_rounds >= LONG_PATIENCE)
        return false;
    patience = idle_rounds + 1;
    return true;
}

/* Leaves the running thread, which something will make ready. */
void machine::impl::leave(thread &t) {
    thread *next = choose();
    if (next == &t)
        return;
    set_running(next);
    fiber_switch(t.stack, next != nullptr ? next->stack : main_stack);
}

void machine::impl::park(thread &t, wait_for what) {
    t.waits = what;
    leave(t);
}

void machine::impl::maybe_leave(thread &t) {
    if ((random.next() & 255) >= bias.leave)
        return;
    make_ready(t);
    leave(t);
}

void machine::impl::add_work(std::unique_ptr<async_work> work) {
    works.push_back(work.release());
}

void machine::impl::step_work() {
    const uint32_t at = random.below((uint32_t)works.size());
    counters.steps++;
    counters.trace = mixed(counters.trace, ~(uint64_t)at);
    progress++;
    async_work *work = works[at];
    if (work->step()) {
        works[at] = works.back();
        works.pop_back();
        delete work;
    }
}

state machine::impl::drive(uint64_t steps, const stream *until) {
    step_end = steps < options.step_limit - counters.steps ? counters.steps + steps : options.step_limit;
    const auto reached = [&] { return until != nullptr ? streams[*until]->items.empty() : all_done(); };
    for (;;) {
        attend();
        if (stopped)
            return state::faulted;
        if (reached())
            return state::idle;
        thread *next = choose();
        if (next != nullptr) {
            set_running(next);
            fiber_switch(main_stack, next->stack);
            continue;
        }
        if (stopped || attention)
            continue;
        if (counters.steps >= options.step_limit) {
            record(nullptr, fault::step_limit,
                   format_text("%llu steps are done and work is left", (unsigned long long)counters.steps));
            return state::faulted;
        }
        if (counters.steps >= step_end)
            return state::running;
        if (!place_ctas())
            return state::stalled;
    }
}

} // namespace sim
