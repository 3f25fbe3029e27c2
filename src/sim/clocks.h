/* Vector clocks: what is known to have happened before.
 *
 * An actor is a warp (its lanes have one clock between them), or one asynchronous series: the copies that land on one
 * mbarrier (its clock: the phase), the wgmma groups of a warpgroup, the reads or the writes of a thread's bulk groups.
 * Things that an asynchronous series did are visible to both proxies once they are known. What a warp wrote with
 * ordinary stores is visible to the async proxy only where a proxy fence lies on the way, so for warps there are
 * several clocks: known, known and fenced for shared memory, known and fenced for global memory; and done, which is
 * what was fenced before asynchronous work that is known to be over. */
#ifndef SIM_CLOCKS_H
#define SIM_CLOCKS_H

#include <cstdint>
#include <vector>

namespace sim {

enum view : uint8_t { KNOWN, FENCED_SHARED, FENCED_GLOBAL, DONE, VIEWS };

enum epoch_flag : uint8_t {
    ASYNC = 1,     /* the actor is an asynchronous series, not a warp */
    ATOMIC = 2,    /* by a scoped load or store, an atomic, or a TMA reduction */
    SYSTEM = 4,    /* of an atomic: system scope */
    SWIZZLED = 8,  /* laid by TMA with the 128-byte swizzle */
    LINEAR = 16,   /* laid by TMA without */
    MBARRIER = 32, /* an mbarrier lies here */
    SPECIAL = 64   /* not an epoch: `clock` is an index (shadow.h) */
};

/* When and by whom bytes were last accessed. All zero: never. */
struct epoch {
    uint32_t clock = 0;
    uint16_t actor = 0;
    uint8_t lane = 0;
    uint8_t flags = 0;

    bool never() const { return clock == 0; }
    bool has(epoch_flag flag) const { return (flags & flag) != 0; }
    friend bool operator==(const epoch &a, const epoch &b) {
        return a.clock == b.clock && a.actor == b.actor && a.lane == b.lane && a.flags == b.flags;
    }
    friend bool operator!=(const epoch &a, const epoch &b) { return !(a == b); }
};

class clocks {
  public:
    uint32_t warp(view v, uint16_t actor) const { return at(warps[v], actor); }
    uint32_t async(uint16_t actor) const { return at(asyncs, actor); }
    void set_warp(view v, uint16_t actor, uint32_t clock) { raise(warps[v], actor, clock); }
    void set_async(uint16_t actor, uint32_t clock) { raise(asyncs, actor, clock); }
    /* Only these lanes of the warp are known up to `clock`. */
    void set_lanes(view v, uint16_t actor, uint32_t lanes, uint32_t clock);

    bool knows(const epoch &e, view v) const {
        if (e.has(ASYNC))
            return async(e.actor) >= e.clock;
        return warp(v, e.actor) >= e.clock || (!few.empty() && knows_lane(e, v));
    }

    void join(const clocks &other);
    void join_asyncs(const clocks &other); /* no more than what asynchronous series have done */
    /* What `other` has in one view is in another one here. */
    void join_view(view to, const clocks &other, view from);
    void fence(view v) { join_view(v, *this, KNOWN); }
    void clear();

  private:
    struct some_lanes {
        view v;
        uint16_t actor;
        uint32_t lanes, clock;
    };

    static uint32_t at(const std::vector<uint32_t> &of, uint16_t actor) { return actor < of.size() ? of[actor] : 0; }
    static void raise(std::vector<uint32_t> &of, uint16_t actor, uint32_t clock);
    bool knows_lane(const epoch &e, view v) const;
    void forget_covered();

    std::vector<uint32_t> warps[VIEWS], asyncs;
    std::vector<some_lanes>
        few; /* where single lanes released while others of their warp had not; nearly always empty */
};

/* Counted references to clocks that nobody changes any more, or that have one owner; storage is used again. */
class clocks_pool;
class clocks_ref {
  public:
    clocks_ref() = default;
    clocks_ref(const clocks_ref &other);
    clocks_ref(clocks_ref &&other) noexcept : target(other.target) { other.target = nullptr; }
    clocks_ref &operator=(clocks_ref other) noexcept {
        std::swap(target, other.target);
        return *this;
    }
    ~clocks_ref() { reset(); }

    explicit operator bool() const { return target != nullptr; }
    const clocks *get() const;
    const clocks &operator*() const { return *get(); }
    const clocks *operator->() const { return get(); }
    void reset();
    /* Clocks that this reference alone holds: a copy of the former ones if they are shared. */
    clocks &own(clocks_pool &pool);
    friend bool operator==(const clocks_ref &a, const clocks_ref &b) { return a.target == b.target; }

  private:
    friend class clocks_pool;
    struct counted;
    counted *target = nullptr;
};

class clocks_pool {
  public:
    ~clocks_pool();
    clocks_ref empty();
    clocks_ref copy(const clocks &from);

  private:
    friend class clocks_ref;
    std::vector<clocks_ref::counted *> unused;
};

struct clocks_ref::counted {
    clocks value;
    uint32_t references = 0;
    clocks_pool *home = nullptr;
};

inline clocks_ref::clocks_ref(const clocks_ref &other) : target(other.target) {
    if (target != nullptr)
        target->references++;
}

inline const clocks *clocks_ref::get() const {
    return target != nullptr ? &target->value : nullptr;
}

} // namespace sim

#endif
