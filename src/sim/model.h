/* What a machine is made of: devices, grids, clusters, CTAs, warps, threads. */
#ifndef SIM_MODEL_H
#define SIM_MODEL_H

#include <array>
#include <deque>
#include <memory>
#include <vector>

#include "sim/clocks.h"
#include "sim/fiber.h"
#include "sim/shadow.h"
#include "sim/sim.h"

namespace sim {

struct cta;
struct grid;
struct mbarrier;
struct thread;
struct warp;
class warpgroup;

enum class wait_for : uint8_t {
    NOTHING,
    LANES,         /* the warp's other lanes, to come to an aligned operation */
    NAMED_BARRIER, /* cta_sync and barrier_sync */
    CLUSTER,       /* cluster_sync */
    MBARRIER,      /* may give up: mbarrier_test says false */
    FLAG,          /* polled memory to change: may give up */
    SLEEP,         /* time */
    BULK,          /* bulk groups */
    WGMMA,         /* wgmma groups */
    REGISTERS,     /* registers that other warps give */
    GRID           /* the grid before this one on its stream */
};

/* Aligned operations: what lanes must come to together. */
enum class aligned : uint8_t {
    NONE,
    WARP_INDEX,
    WARP_SYNC,
    SHUFFLE,
    BALLOT,
    ELECT,
    CTA_SYNC,
    BARRIER_SYNC,
    BARRIER_ARRIVE,
    CLUSTER_SYNC,
    REGISTERS_GIVE,
    REGISTERS_TAKE,
    MATRIX_STORE,
    MATRIX_LOAD,
    WGMMA,
    WGMMA_FENCE,
    WGMMA_COMMIT,
    WGMMA_WAIT
};
const char *aligned_name(aligned what);

/* A thread's bulk groups: group g is closed by the g-th commit, from 1. */
struct bulk_groups {
    struct group {
        uint32_t reads = 0, writes = 0; /* stores that still read shared memory, that have not landed */
    };
    uint16_t reads_actor = 0, writes_actor = 0;
    uint32_t reads_clock = 0, writes_clock = 0; /* of group 0 */
    uint32_t first = 1;                         /* the group at the front */
    std::deque<group> pending = {group()};      /* the last one is open */
    thread *waiter = nullptr;
    uint32_t last_used = 0; /* the last group that has a store */
    uint32_t waited = 0;    /* groups up to here must be done: */
    bool reads_only = false;

    uint32_t last_read() const { return reads_clock + last_used; }
    uint32_t open() const { return first + (uint32_t)pending.size() - 1; }
    group &at(uint32_t number) { return pending[number - first]; }
    bool done(uint32_t until, bool reading) const;
};

/* What a thread that polls has seen since it last did anything else. */
struct poll_history {
    static const unsigned LIMIT = 8;
    struct {
        const uint32_t *address;
        uint32_t value;
    } seen[LIMIT];
    unsigned count = 0;
};

struct thread {
    fiber stack;
    warp *of = nullptr;
    uint8_t lane = 0;
    bool ended = false;
    bool woken_early = false; /* its wait did not come true, but it may look again */
    wait_for waits = wait_for::NOTHING;
    const void *where = nullptr; /* return address of the operation it is in */
    mbarrier *bar = nullptr;     /* it waits for this one's phase */
    uint32_t bar_phase = 0;
    uint64_t wake_at = 0; /* of a sleep, in steps */
    poll_history polls;
    bool said_not_yet = false; /* mbarrier_test last said false with no reason */

    /* Order, see order.h. */
    uint32_t clock = 0;
    uint32_t fence_clock[VIEWS] = {}, unfenced[VIEWS] = {};
    bool fenced[VIEWS] = {};
    clocks_ref extra;    /* learnt by this lane alone since the warp last met */
    clocks_ref released; /* at its last gpu or system fence: */
    bool released_to_system = false;
    clocks_ref seen; /* what a fence would acquire */

    std::shared_ptr<bulk_groups> bulk; /* shared with the stores under way */
};

struct warp {
    machine::impl *home = nullptr;
    cta *of = nullptr;
    unsigned index = 0;
    bool queued = false, starved = false;
    uint32_t ready = 0, ended = 0;

    /* The aligned operation that lanes are gathering for. */
    uint32_t gathered = 0;
    aligned gathers = aligned::NONE;
    const void *gathers_at = nullptr; /* return address in the lane that came first */
    uint64_t signature = 0;           /* what must be equal in all lanes */
    uint64_t given[32] = {};
    uint32_t result[32] = {};
    uint32_t matrices[32][4] = {};

    /* Order. */
    uint16_t actor = 0;
    clocks base;           /* known to all lanes */
    uint32_t accessed = 0; /* lanes that touched memory since the warp last met */
    uint32_t floor = 0;    /* labels of accesses are at least this */

    unsigned registers = 0, registers_wanted = 0; /* wanted: 0 unless it waits */
    uint64_t products_issued = 0;
    uint32_t product_groups = 0;  /* closed */
    uint32_t products_wanted = 0; /* the group that a wgmma_wait waits for */
    uint32_t product_fences = 0;
    thread lanes[32];
};

struct mbarrier {
    cta *of = nullptr;
    uint32_t offset = 0; /* in the CTA's shared memory */
    uint32_t count = 0;
    uint32_t missing = 0; /* arrivals */
    int64_t bytes = 0;    /* expected minus landed */
    uint32_t phase = 0;   /* completed phases */
    uint32_t copies = 0;  /* under way, to land in this phase */
    epoch made;
    bool fenced = false; /* by mbarrier_init_fence */
    uint16_t actor = 0;  /* of the copies that land on it; its clock counts phases: */
    uint32_t first_clock = 0;
    uint32_t last_copy = 0; /* clock of the last one */
    struct signal {
        epoch by;
        uint32_t phase_clock;
    };
    std::vector<signal> signals;   /* the last arrival of each warp of other CTAs */
    clocks_ref arrived, done;      /* by this phase's arrivals; what the end of the last phase showed */
    std::vector<thread *> waits;   /* for the end of this phase */
    std::vector<int64_t> observed; /* by each warp: the last completed phase it saw, -1: none */

    uint32_t clock_now() const { return first_clock + phase + 1; }
    uint32_t clock_before() const { return first_clock + phase; }
};

struct named_barrier {
    uint32_t expected = 0, arrived = 0; /* threads; 0: not in use */
    uint32_t warps = 0;                 /* that came */
    std::vector<warp *> waits;
    clocks_ref clock;
};

struct cluster {
    std::vector<cta *> members;
    unsigned arrived = 0; /* warps */
    std::vector<warp *> waits;
    clocks_ref clock;
};

struct cta {
    grid *of = nullptr;
    unsigned index = 0, rank = 0;
    std::shared_ptr<cluster> group;
    std::vector<std::unique_ptr<warp>> warps;
    unsigned ended_warps = 0;
    bool ended = false;
    bool let = false; /* the dependent grid start */
    std::vector<char> shared;
    region_shadow cells;
    std::deque<mbarrier> mbarriers;
    std::array<named_barrier, 16> barriers;
    std::vector<std::unique_ptr<warpgroup>> warpgroups;
    unsigned landing = 0, reading = 0; /* copies under way to and from its shared memory */
    int registers_free = 0;
    std::vector<uint16_t> async_actors; /* to give back */
};

struct grid {
    machine::impl *home = nullptr;
    struct launch how;
    std::unique_ptr<char[]> storage;
    void *parameters = nullptr;
    unsigned device = 0;
    std::vector<unsigned> order; /* clusters still to start, last first */
    unsigned resident = 0;       /* CTAs at once */
    unsigned running = 0;
    unsigned copies = 0; /* under way */
    bool begun = false;
    unsigned letting = 0;        /* CTAs that let a dependent grid start, or have ended */
    bool waits_before = false;   /* the grid before it has not ended */
    std::vector<thread *> waits; /* for that */
    clocks_ref before;           /* and what its end showed */
    clocks_ref host;             /* what the host had done at the launch */
    clocks_ref start;
    clocks end;
};

/* Something that happens by itself, later. */
struct async_work {
    virtual ~async_work() = default;
    /* Does a part of it. true: it is done, and is deleted. */
    virtual bool step() = 0;
};

} // namespace sim

#endif
