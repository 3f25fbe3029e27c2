/* wgmma: issue, late execution, and accumulators that hold NaN in between. */
#include "sim/warpgroup.h"

#include <algorithm>
#include <cstring>

#include "sim/access.h"
#include "sim/gather.h"
#include "sim/operations.h"
#include "sim/report.h"
#include "sim/where.h"

namespace sim {

namespace {

const uint32_t POISON = 0x7fc0dead; /* a NaN */
const uint32_t ALL_WARPS = 15;

/* Reads by a warp's share of a product, as the warp knows things after it has met. */
class product_observer final : public observer {
  public:
    product_observer(const warp &w, uint16_t actor, uint32_t clock) : by(w) {
        self.clock = clock;
        self.actor = actor;
        self.flags = ASYNC;
        writes_seen = FENCED_SHARED;
    }
    bool knows(const epoch &e, view v) const override { return by.base.knows(e, v); }
    bool same_device(const epoch &) const override { return false; }

  private:
    const warp &by;
};

struct products_of final : async_work {
    explicit products_of(warpgroup &g) : group(g) {}
    bool step() override { return !group.step(); }
    warpgroup &group;
};

/* Calls use(element of d, row, column) for each of a lane's elements. */
template <typename function> void each_element(const warp &w, unsigned lane, unsigned columns, function use) {
    const unsigned row = 16 * (w.index % 4) + lane / 4, column = 2 * (lane % 4);
    for (unsigned i = 0; i < columns / 8; i++)
        for (unsigned j = 0; j < 4; j++)
            use(4 * i + j, row + 8 * (j / 2), 8 * i + column + j % 2);
}

bool is_poison(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits == POISON;
}

void poison(float *d, unsigned count) {
    float value;
    memcpy(&value, &POISON, sizeof value);
    std::fill(d, d + count, value);
}

void check_rows(thread &t, const operand &o, uint32_t row, uint32_t rows, uint32_t box, uint32_t chunk, uint32_t chunks,
                const observer &by, const char *name) {
    cta &c = *t.of->of;
    machine::impl &m = *t.of->home;
    for (uint32_t r = row; r < row + rows; r++) {
        const uint32_t begin = o.row_address(r, box);
        for (uint32_t i = chunk; i < chunk + chunks; i++) {
            const size_t offset = swizzled(begin + 16 * i) - SHARED_BASE;
            check_shared(t, c, offset, 16, access::READ, by, name);
        }
    }
    const size_t first = swizzled(o.row_address(row, box)) - SHARED_BASE;
    if (m.options.check_order && (m.shade.flags_at(c.cells, first) & LINEAR) != 0)
        fail(t, fault::swizzle, "%s at +0x%zx, which a tensor map without the 128-byte swizzle has laid", name, first);
}

/* What this warp's tensor core reads: its 16 rows of A, and all of B. */
void check_operands(thread &t, const product &p, const observer &by) {
    const uint32_t quarter = t.of->index % 4;
    if (p.a.mn_major)
        check_rows(t, p.a, 0, 16, 0, 2 * quarter, 2, by, "wgmma reads A");
    else
        check_rows(t, p.a, 16 * quarter, 16, 0, 0, 2, by, "wgmma reads A");
    if (!p.b.mn_major)
        return check_rows(t, p.b, 0, p.columns, 0, 0, 2, by, "wgmma reads B");
    for (uint32_t box = 0; box < p.columns / 64; box++)
        check_rows(t, p.b, 0, 16, box, 0, 8, by, "wgmma reads B");
}

warpgroup &group_of(thread &t) {
    cta &c = *t.of->of;
    if (c.warps.size() % 4 != 0 && t.of->index / 4 == c.warps.size() / 4)
        fail(t, fault::divergence, "wgmma in a warpgroup of %zu warps", c.warps.size() % 4);
    return *c.warpgroups[t.of->index / 4];
}

/* For a thread that must stop when there is a text. */
void stop_if(thread &t, fault kind, std::string &wrong) {
    if (wrong.empty())
        return;
    t.of->home->record(&t, kind, std::move(wrong));
    wrong = std::string();
    give_up(t);
}

} // namespace

warpgroup::warpgroup(cta &c, unsigned number) : of(c), index(number) {}

accumulators &warpgroup::find(const warp &w, unsigned columns, float *const (&d)[32]) {
    const size_t first = w.index % 4 * 32;
    for (const std::unique_ptr<accumulators> &a : arrays)
        if (a->columns == columns && a->d[first] == d[0])
            return *a;
    arrays.push_back(std::make_unique<accumulators>());
    arrays.back()->columns = columns;
    arrays.back()->value.resize(64 * columns);
    return *arrays.back();
}

/* The warp's part of accumulators that are not in flight: kept aside, and poisoned where the thread sees them. */
std::string warpgroup::take(warp &w, const product &p, accumulators &a, float *const (&d)[32]) {
    const unsigned self = w.index % 4;
    bool touched = !p.accumulate || (a.delivered >> self & 1) == 0;
    for (unsigned lane = 0; lane < 32; lane++) {
        each_element(w, lane, p.columns, [&](unsigned i, unsigned row, unsigned column) {
            float &kept = a.value[row * p.columns + column];
            touched = touched || memcmp(&kept, &d[lane][i], sizeof kept) != 0;
            kept = d[lane][i];
        });
        poison(d[lane], p.columns / 2);
    }
    a.in_flight |= 1u << self;
    if (touched && w.product_fences == a.fences_then[self])
        return "the first wgmma on accumulators that the threads have touched needs a wgmma_fence before it";
    return "";
}

std::string warpgroup::issue(warp &w, const product &p, float *const (&d)[32], const void *where, fault *kind) {
    *kind = fault::divergence;
    const unsigned self = w.index % 4;
    for (size_t i = 4 * index; i < 4 * index + 4; i++)
        if (of.warps[i]->ended != 0)
            return format_text("wgmma, but warp %zu of the warpgroup has ended", i);
    const uint64_t at = w.products_issued++ - done_products;
    const uint32_t group = w.product_groups + 1;
    if (at == pending.size()) {
        pending.emplace_back();
        pending.back().what = p;
        pending.back().group = group;
        pending.back().into = &find(w, p.columns, d);
        pending.back().where = where;
    }
    last_issuer = &w;
    issued &i = pending[at];
    if (i.what.a.descriptor != p.a.descriptor || i.what.b.descriptor != p.b.descriptor ||
        i.what.a.mn_major != p.a.mn_major || i.what.b.mn_major != p.b.mn_major || i.what.columns != p.columns ||
        i.what.accumulate != p.accumulate || i.group != group || !same_source(i.where, where))
        return "the warps of a warpgroup come to different wgmmas, one of them at " + source_text(i.where);
    accumulators &a = *i.into;
    *kind = fault::accumulator;
    for (unsigned lane = 0; lane < 32; lane++) {
        float *&known = a.d[self * 32 + lane];
        if (known != nullptr && known != d[lane])
            return "the threads of a warpgroup give different accumulators to one wgmma";
        known = d[lane];
    }
    if ((a.in_flight >> self & 1) == 0) {
        std::string wrong = take(w, p, a, d);
        if (!wrong.empty())
            return wrong;
    }
    a.last_group[self] = group;
    i.warps |= 1u << self;
    if (pending.front().warps == ALL_WARPS && !listed) {
        listed = true;
        w.home->add_work(std::make_unique<products_of>(*this));
    }
    return "";
}

bool warpgroup::lacks(const warp &w, const void **where) const {
    for (const issued &i : pending) {
        if ((i.warps >> w.index % 4 & 1) == 0) {
            *where = i.where;
            return true;
        }
    }
    return false;
}

bool warpgroup::step() {
    machine::impl &m = *of.of->home;
    multiply(pending.front().what, of.shared.data() - SHARED_BASE, pending.front().into->value.data());
    m.counters.products++;
    pending.pop_front();
    done_products++;
    for (size_t i = 0; i < waits.size();) {
        if (done(waits[i]->of->products_wanted)) {
            m.make_ready(*waits[i]);
            waits[i] = waits.back();
            waits.pop_back();
        } else {
            i++;
        }
    }
    listed = !pending.empty() && pending.front().warps == ALL_WARPS;
    return listed;
}

std::string warpgroup::deliver(warp &w, uint32_t group) {
    const unsigned self = w.index % 4;
    bool untouched = true;
    for (const std::unique_ptr<accumulators> &a : arrays) {
        if ((a->in_flight >> self & 1) == 0 || a->last_group[self] > group)
            continue;
        for (unsigned lane = 0; lane < 32; lane++) {
            float *d = a->d[self * 32 + lane];
            each_element(w, lane, a->columns, [&](unsigned i, unsigned row, unsigned column) {
                untouched = untouched && is_poison(d[i]);
                d[i] = a->value[row * a->columns + column];
            });
        }
        a->in_flight &= ~(1u << self);
        a->delivered |= 1u << self;
        a->fences_then[self] = w.product_fences;
    }
    return untouched ? "" : "accumulators were written between their wgmma and the wgmma_wait that covers it";
}

bool warpgroup::in_flight(const warp &w, unsigned lane, const float *d) const {
    const unsigned self = w.index % 4;
    for (const std::unique_ptr<accumulators> &a : arrays)
        if (a->d[self * 32 + lane] == d && (a->in_flight >> self & 1) != 0)
            return true;
    return false;
}

void wgmma(float *d, unsigned columns, uint64_t a, uint64_t b, bool a_mn_major, bool b_mn_major, bool accumulate) {
    thread &t = enter(__builtin_return_address(0));
    warp &w = *t.of;
    warpgroup &g = group_of(t);
    not_polling(t);
    w.given[t.lane] = (uint64_t)(uintptr_t)d;
    const uint64_t signature = (a * 31 + b) * 31 + columns + 2 * a_mn_major + b_mn_major + 1024 * accumulate;
    if (!gather(t, aligned::WGMMA, signature))
        return;
    product p;
    p.a = {a, a_mn_major, 64};
    p.b = {b, b_mn_major, columns};
    p.columns = columns;
    p.accumulate = accumulate;
    fault kind = fault::descriptor;
    std::string wrong = operand_error(p.a, "A", w.of->shared.size());
    if (wrong.empty())
        wrong = operand_error(p.b, "B", w.of->shared.size());
    stop_if(t, kind, wrong);
    if (g.actor == 0) {
        g.actor = w.home->new_async_actor(
            w.of, format_text("wgmma of warpgroup %u of device %u CTA %u", w.index / 4, w.of->of->device, w.of->index));
        g.first_clock = w.home->async_clocks[g.actor];
    }
    const uint32_t clock = g.first_clock + w.product_groups + 1;
    w.home->note_clock(g.actor, true, clock, t.where);
    check_operands(t, p, product_observer(w, g.actor, clock));
    float *arrays[32];
    for (int lane = 0; lane < 32; lane++)
        arrays[lane] = (float *)(uintptr_t)w.given[lane];
    wrong = g.issue(w, p, arrays, t.where, &kind);
    stop_if(t, kind, wrong);
    part(t);
}

void wgmma_settle(const float *d, unsigned) {
    thread &t = enter(__builtin_return_address(0));
    if (group_of(t).in_flight(*t.of, t.lane, d))
        fail(t, fault::accumulator, "wgmma_settle on accumulators of a wgmma that no wgmma_wait covers yet");
}

void wgmma_fence() {
    thread &t = enter(__builtin_return_address(0));
    group_of(t);
    if (!gather(t, aligned::WGMMA_FENCE, 0))
        return;
    t.of->product_fences++;
    part(t);
}

void wgmma_commit() {
    thread &t = enter(__builtin_return_address(0));
    group_of(t);
    if (!gather(t, aligned::WGMMA_COMMIT, 0))
        return;
    t.of->product_groups++;
    part(t);
}

void wgmma_wait(unsigned pending) {
    thread &t = enter(__builtin_return_address(0));
    warp &w = *t.of;
    warpgroup &g = group_of(t);
    if (!gather(t, aligned::WGMMA_WAIT, pending))
        return;
    const uint32_t group = w.product_groups > pending ? w.product_groups - pending : 0;
    if (!g.done(group)) {
        w.products_wanted = group;
        g.waits.push_back(&t);
        wait_together(t, wait_for::WGMMA);
    }
    w.base.set_async(g.actor, g.first_clock + group);
    learn_done(w);
    std::string wrong = g.deliver(w, group);
    stop_if(t, fault::accumulator, wrong);
    part(t);
}

} // namespace sim
