/* The inside of a machine. */
#ifndef SIM_MACHINE_H
#define SIM_MACHINE_H

#include <map>
#include <unordered_map>

#include "sim/late.h"
#include "sim/memory.h"
#include "sim/model.h"
#include "sim/random.h"
#include "sim/schedule.h"

namespace sim {

/* Synchronisation through one word of global memory: what an acquire of it learns. */
struct flag {
    clocks_ref system;                 /* released at system scope */
    std::vector<clocks_ref> by_device; /* released by each device, at whatever scope */
};

struct stream_queue {
    struct item {
        enum { GRID, CALL, RECORD, WAIT } kind;
        std::unique_ptr<struct grid> grid;
        std::function<void()> call;
        event e = 0;
        clocks_ref host; /* of a call: what the host had done */
    };
    unsigned device = 0;
    std::deque<item> items;
    clocks_ref clock;   /* what has ended on it */
    uint16_t actor = 0; /* of its copies */
    uint32_t copies = 0;
};

struct event_state {
    bool done = false;
    clocks_ref clock;
};

/* Who an actor is, for messages. */
struct actor_info {
    std::string name; /* "mbarrier at +0x1000" */
    int device = -1;
    struct {
        uint32_t clock;
        const void *where;
    } history[16] = {}; /* the operations at which its clock last advanced */
    unsigned next = 0;
};

struct machine::impl {
    explicit impl(const struct options &o);
    ~impl();

    const struct options options;
    struct counters counters;
    std::vector<report> reports;
    bool stopped = false; /* by a fault */

    /* Choices (schedule.cc, scheduler.cc). */
    random_source random;
    schedule bias;
    std::vector<warp *> queues[2]; /* warps with lanes that can run; the starved ones */
    warp *last_warp = nullptr;
    unsigned last_lane = 0;
    std::vector<thread *> sleepers;
    uint64_t next_wake = ~0ull, step_end = 0;
    std::vector<async_work *> works; /* owned */
    uint64_t progress = 0, progress_seen = 0;
    unsigned idle_rounds = 0, patience = 0; /* rounds done in vain, and how many to do */
    bool attention = false;                 /* streams or CTAs have something for the main stack to do */
    uint64_t nanoseconds = 1000;
    fiber main_stack;

    thread *choose();
    thread *pick_lane(warp &w);
    bool wake_the_patient();
    bool have_patience();
    void wake_sleepers();
    void make_ready(thread &t);
    void make_ready(warp &w); /* all its lanes */
    void park(thread &t, wait_for what);
    void maybe_leave(thread &t);
    void leave(thread &t);
    void add_work(std::unique_ptr<async_work> work);
    void step_work();
    state drive(uint64_t steps, const stream *until);

    /* Order and shadow. */
    clocks_pool pool;
    clocks scratch;
    shadow shade;
    clocks host;                                     /* what the host knows */
    uint32_t host_clock = 1;                         /* actor 1 is the host */
    std::vector<uint32_t> warp_clocks, async_clocks; /* last used by each actor; 0: the actor is unused */
    std::vector<actor_info> warp_infos, async_infos;
    std::unordered_map<uintptr_t, flag> flags;
    std::multimap<uintptr_t, thread *> watchers; /* of polled words */

    uint16_t new_warp_actor(unsigned on);
    uint16_t new_async_actor(cta *owner, std::string name);
    void note_clock(uint16_t actor, bool async, uint32_t clock, const void *where);
    void changed(const void *address, size_t bytes); /* wakes who polls there */
    void forget_watcher(const thread &t);
    void host_released();

    /* Memory. */
    global_memory memory{shade};
    stack_pool stacks;

    /* Streams and grids (launch.cc). */
    struct device {
        unsigned free_multiprocessors;
        std::vector<grid *> active;
        std::unique_ptr<late_stores> late;
        std::deque<uint16_t> unused_warp_actors, unused_async_actors; /* that have ended here */
    };
    std::vector<device> devices;
    std::vector<std::unique_ptr<stream_queue>> streams;
    std::vector<event_state> events;
    std::vector<std::unique_ptr<cta>> ctas; /* that run, or have ended and still have copies under way */

    void attend();
    bool advance(stream s);
    bool begin_dependent(stream_queue &q);
    void begin_grid(stream_queue &q, grid &g);
    void end_grid(stream_queue &q, grid &g);
    bool place_ctas();
    bool start_cluster(grid &g, unsigned number);
    std::unique_ptr<cta> make_cta(grid &g, const std::shared_ptr<cluster> &group, unsigned index, unsigned rank);
    void thread_ended(thread &t);
    void warp_ended(const warp &w);
    void check_end(thread &t);
    void reap();
    bool waits_for_place() const;
    bool all_done() const;

    /* Faults (report.cc): the machine stops. `where`: if not where the thread is. */
    void record(const thread *t, fault kind, std::string message, const void *where = nullptr);
    void deadlock();
};

thread &current();
/* The current thread begins an operation; `where`: the operation's return address. */
thread &enter(const void *where);
[[noreturn]] void give_up(thread &t); /* after a fault of its own was recorded */
[[noreturn]] void fail(thread &t, fault kind, const char *format, ...) __attribute__((format(printf, 3, 4)));
std::string format_text(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* "CTA 3 warp 5 (push)" */
std::string warp_name(const warp &w);
/* "a shuffle, kernels/tile.cuh:80": what lanes of the warp are gathering for, and where. */
std::string gathering_text(const warp &w);
/* The operation at which an actor's clock last advanced until then. */
const void *place_at(const actor_info &info, uint32_t clock);
/* Where an actor was at a clock: its name and the source line of the operation. */
std::string actor_name(machine::impl &m, const epoch &e);

} // namespace sim

#endif
