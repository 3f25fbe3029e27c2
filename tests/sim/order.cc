/* Vector clocks and shadow memory alone, without threads. */
#include <vector>

#include "check.h"
#include "sim/clocks.h"
#include "sim/shadow.h"

using namespace sim;

namespace {

epoch by_warp(uint16_t actor, uint8_t lane, uint32_t clock, uint8_t flags = 0) {
    epoch e;
    e.actor = actor;
    e.lane = lane;
    e.clock = clock;
    e.flags = flags;
    return e;
}

epoch by_copy(uint16_t actor, uint32_t clock) {
    return by_warp(actor, 0, clock, ASYNC);
}

void clocks_join() {
    clocks a, b;
    a.set_warp(KNOWN, 3, 10);
    a.set_async(2, 4);
    b.set_warp(KNOWN, 3, 7);
    b.set_warp(FENCED_SHARED, 3, 6);
    b.set_warp(KNOWN, 9, 1);
    a.join(b);
    CHECK(a.knows(by_warp(3, 5, 10), KNOWN) && !a.knows(by_warp(3, 5, 11), KNOWN));
    CHECK(a.knows(by_warp(9, 0, 1), KNOWN) && !a.knows(by_warp(8, 0, 1), KNOWN));
    CHECK(a.knows(by_warp(3, 0, 6), FENCED_SHARED) && !a.knows(by_warp(3, 0, 7), FENCED_SHARED));
    CHECK(!a.knows(by_warp(3, 0, 1), FENCED_GLOBAL));
    CHECK(a.knows(by_copy(2, 4), KNOWN) && a.knows(by_copy(2, 4), FENCED_GLOBAL) && !a.knows(by_copy(2, 5), KNOWN));
    a.fence(FENCED_GLOBAL);
    CHECK(a.knows(by_warp(3, 0, 10), FENCED_GLOBAL) && !a.knows(by_warp(3, 0, 7), FENCED_SHARED));
    clocks asyncs;
    asyncs.join_asyncs(a);
    CHECK(asyncs.knows(by_copy(2, 4), KNOWN) && !asyncs.knows(by_warp(3, 0, 1), KNOWN));
}

void single_lanes_are_known() {
    clocks a;
    a.set_warp(KNOWN, 1, 5);
    a.set_lanes(KNOWN, 1, 1u << 4, 8);
    CHECK(a.knows(by_warp(1, 4, 8), KNOWN) && !a.knows(by_warp(1, 4, 9), KNOWN));
    CHECK(!a.knows(by_warp(1, 3, 6), KNOWN) && !a.knows(by_warp(1, 4, 6), FENCED_SHARED));
    clocks b;
    b.set_lanes(KNOWN, 1, ~(1u << 4), 8);
    CHECK(!b.knows(by_warp(1, 4, 1), KNOWN) && b.knows(by_warp(1, 31, 8), KNOWN));
    b.join(a);
    CHECK(b.warp(KNOWN, 1) == 8);
    b.set_lanes(KNOWN, 1, 1, 7); /* known already */
    CHECK(b.knows(by_warp(1, 0, 8), KNOWN) && !b.knows(by_warp(1, 0, 9), KNOWN));
    b.set_warp(KNOWN, 1, 12);
    b.join(a);
    CHECK(b.warp(KNOWN, 1) == 12);
}

void references_share_until_written() {
    clocks_pool pool;
    clocks_ref a = pool.empty();
    a.own(pool).set_async(1, 1);
    clocks_ref b = a;
    CHECK(a == b);
    b.own(pool).set_async(1, 2);
    CHECK(a->async(1) == 1 && b->async(1) == 2 && !(a == b));
    const clocks *const storage = b.get();
    b.reset();
    CHECK(!b);
    CHECK(pool.empty().get() == storage); /* used again */
}

struct seen final : observer {
    seen(const epoch &e, const clocks &c, view v = KNOWN) : known(c) {
        self = e;
        writes_seen = v;
    }
    bool knows(const epoch &e, view v) const override {
        return (v == KNOWN && !e.has(ASYNC) && e.actor == self.actor && e.lane == self.lane) || known.knows(e, v);
    }
    bool same_device(const epoch &e) const override { return e.actor < 100; }
    const clocks &known;
};

void accesses_clash() {
    shadow s;
    region_shadow r;
    r.resize(256);
    clocks nothing, first;
    first.set_warp(KNOWN, 1, 1);
    CHECK(s.read(r, 0, 16, seen(by_warp(1, 0, 1), nothing)).kind == conflict::uninitialised);
    CHECK(s.write(r, 0, 32, seen(by_warp(1, 0, 1), nothing)).kind == conflict::none);
    CHECK(s.read(r, 8, 4, seen(by_warp(1, 0, 1), nothing)).kind == conflict::none);
    const clash c = s.read(r, 4, 16, seen(by_warp(2, 0, 1), nothing));
    CHECK(c.kind == conflict::race && c.offset == 4 && c.earlier.actor == 1 && c.earlier_writes);
    CHECK(s.read(r, 4, 16, seen(by_warp(2, 0, 1), first)).kind == conflict::none);
    CHECK(s.read(r, 28, 8, seen(by_warp(2, 0, 1), first)).kind == conflict::uninitialised);
    /* Read by 2, unordered with a write by 3 that knows 1's alone. */
    const clash w = s.write(r, 18, 2, seen(by_warp(3, 0, 1), first));
    CHECK(w.kind == conflict::race && !w.earlier_writes && w.earlier.actor == 2);
    CHECK(s.write(r, 20, 2, seen(by_warp(3, 0, 1), first)).kind == conflict::none); /* the next bytes: only written */
    /* Lanes of one warp that have not met. */
    CHECK(s.write(r, 64, 2, seen(by_warp(1, 0, 5), first)).kind == conflict::none);
    CHECK(s.write(r, 66, 2, seen(by_warp(1, 1, 5), first)).kind == conflict::none);
    CHECK(s.read(r, 64, 2, seen(by_warp(1, 1, 5), first)).kind == conflict::race);
}

void several_readers_are_remembered() {
    shadow s;
    region_shadow r;
    r.resize(64);
    clocks written, most, all;
    written.set_warp(KNOWN, 1, 1);
    most = written;
    for (uint16_t reader = 2; reader < 9; reader++)
        most.set_warp(KNOWN, reader, 1);
    all = most;
    all.set_warp(KNOWN, 9, 1);
    CHECK(s.write(r, 0, 64, seen(by_warp(1, 0, 1), written)).kind == conflict::none);
    for (uint16_t reader = 2; reader < 10; reader++)
        for (uint8_t lane = 0; lane < 32; lane++)
            CHECK(s.read(r, 0, 64, seen(by_warp(reader, lane, 1), written)).kind == conflict::none);
    const clash c = s.write(r, 16, 16, seen(by_warp(1, 0, 2), most));
    CHECK(c.kind == conflict::race && c.earlier.actor == 9);
    CHECK(s.write(r, 16, 16, seen(by_warp(1, 0, 2), all)).kind == conflict::none);
    r.release(s);
}

void proxies_and_atomics() {
    shadow s;
    region_shadow r;
    r.resize(64);
    clocks known, fenced;
    known.set_warp(KNOWN, 1, 1);
    fenced = known;
    fenced.fence(FENCED_SHARED);
    CHECK(s.write(r, 0, 16, seen(by_warp(1, 0, 1), known)).kind == conflict::none);
    CHECK(s.read(r, 0, 16, seen(by_copy(1, 1), known, FENCED_SHARED)).kind == conflict::proxy);
    CHECK(s.read(r, 0, 16, seen(by_copy(1, 1), fenced, FENCED_SHARED)).kind == conflict::none);
    CHECK(s.read(r, 0, 16, seen(by_copy(1, 1), fenced, FENCED_GLOBAL)).kind == conflict::proxy);
    CHECK(s.write(r, 32, 4, seen(by_warp(1, 0, 1, ATOMIC), known)).kind == conflict::none);
    CHECK(s.modify(r, 32, 4, seen(by_warp(2, 0, 1, ATOMIC), clocks())).kind == conflict::none);
    CHECK(s.read(r, 32, 4, seen(by_warp(3, 0, 1), clocks())).kind == conflict::race);
    /* Device scope does not reach another device. */
    CHECK(s.write(r, 48, 4, seen(by_warp(100, 0, 1, ATOMIC), known)).kind == conflict::none);
    CHECK(s.modify(r, 48, 4, seen(by_warp(2, 0, 1, ATOMIC), clocks())).kind == conflict::race);
    CHECK(s.write(r, 52, 4, seen(by_warp(100, 0, 1, ATOMIC | SYSTEM), known)).kind == conflict::none);
    CHECK(s.modify(r, 52, 4, seen(by_warp(2, 0, 1, ATOMIC | SYSTEM), clocks())).kind == conflict::none);
}

} // namespace

int main() {
    clocks_join();
    single_lanes_are_known();
    references_share_until_written();
    accesses_clash();
    several_readers_are_remembered();
    proxies_and_atomics();
    return checks_result();
}
