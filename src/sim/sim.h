/* The simulator: runs the project's GPU kernels, compiled by the host compiler against isa_sim.h, on simulated GPUs of
 * one process. It is a model of what the machine promises, not of its speed: asynchronous work is late, threads run in
 * an order drawn from a seed, and what the machine does not promise is reported as a fault.
 *
 *     sim::machine gpus(options);
 *     float *data = (float *)gpus.allocate(0, bytes);
 *     gpus.write(data, source, bytes);
 *     gpus.launch(gpus.default_stream(0), sim::launch_of(kernel, "kernel", parameters, grid, threads, shared_bytes));
 *     if (!gpus.finish())
 *         puts(sim::describe(gpus.reports().front()).c_str());
 *
 * Device addresses are host pointers, and every device can address every other's memory. All simulated work is done
 * inside `run` and `finish`, by the calling thread. Two machines share nothing; one machine is used by one thread at a
 * time (a lock of the caller's own, which may pass from thread to thread between calls). After a fault nothing runs any
 * more; memory can still be read. */
#ifndef SIM_SIM_H
#define SIM_SIM_H

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

struct tensor_map;
struct tensor_map_desc;

namespace sim {

enum class fault {
    deadlock,      /* nobody can progress */
    step_limit,    /* options.step_limit reached */
    divergence,    /* lanes of a warp came to different aligned operations, or calls of one, or a lane has ended */
    race,          /* unordered accesses to the same bytes, one of which writes */
    uninitialised, /* a read of bytes that nobody wrote */
    proxy,         /* ordered, but a proxy fence is missing between an ordinary write and the async proxy */
    bounds,        /* outside the CTA's shared memory or any allocation */
    alignment,     /* an address or size that the operation does not take */
    mbarrier,      /* wrong use of an mbarrier: not initialised, arrivals, bytes, phases */
    named_barrier, /* wrong use of cta_sync or a named barrier */
    tensor_map,    /* a bad map, or a box that it does not allow */
    descriptor,    /* a bad wgmma operand */
    swizzle,       /* wgmma reads a tile that TMA laid without its swizzle */
    accumulator,   /* wgmma accumulators touched in flight, or a missing wgmma_fence or wgmma_wait */
    lifetime,      /* shared memory still used by asynchronous work or by a peer when its CTA ends */
    registers,     /* wrong use of registers_give and registers_take */
    launch         /* a launch that the machine refuses */
};
const char *fault_name(fault kind);

struct report {
    fault kind;
    std::string message; /* a sentence: what, where, who else */
    int device = -1;     /* -1: not one thread's fault, and so for the next ones */
    int cta = -1, warp = -1, lane = -1;
    std::string role; /* the launch's name for the warp, if it has one */
    std::string file; /* of the operation, where debug information tells; else empty */
    int line = 0;
};
/* One line: kind, who, where, message. */
std::string describe(const report &r);

struct options {
    uint64_t seed = 1;
    unsigned devices = 1;
    unsigned multiprocessors = 4; /* of a device: a CTA takes one */
    /* How many CTAs of a device may run at once. 0: each launch draws it from the seed, at least one cluster. */
    unsigned resident = 0;
    uint64_t step_limit = 20ull * 1000 * 1000 * 1000; /* in all */
    bool check_order =
        true; /* races, uninitialised reads, proxy fences; false: only what is wrong whatever the order */
};

struct counters {
    uint64_t steps = 0;    /* operations that may switch threads */
    uint64_t switches = 0; /* from thread to thread */
    uint64_t copies = 0;   /* by TMA and bulk operations */
    uint64_t products = 0; /* wgmma operations */
    uint64_t accesses = 0; /* checked accesses to shared and global memory, in pieces of 16 bytes */
    uint64_t trace = 0;    /* a hash of the schedule: equal for equal seeds, launches and memory */
};

/* A kernel made by MM_KERNEL takes its parameters by reference; the simulator knows their bytes. */
using kernel_function = void (*)(const void *parameters);

struct launch {
    kernel_function kernel = nullptr;
    std::string name;
    const void *parameters = nullptr; /* copied by machine::launch */
    size_t parameter_bytes = 0;
    unsigned grid = 1, cluster = 1, threads = 32;
    size_t shared_bytes = 0;        /* dynamic */
    bool programmatic = false;      /* may start before the one before it on the stream ends (grid_dependency_wait) */
    std::vector<std::string> roles; /* names of warps for reports, by warp_index; may be shorter */
};

template <class type>
launch launch_of(void (*kernel)(const type &), std::string name, const type &parameters, unsigned grid,
                 unsigned threads, size_t shared_bytes, unsigned cluster = 1) {
    launch l;
    l.kernel = reinterpret_cast<kernel_function>(reinterpret_cast<void (*)()>(kernel));
    l.name = std::move(name);
    l.parameters = &parameters;
    l.parameter_bytes = sizeof parameters;
    l.grid = grid;
    l.cluster = cluster;
    l.threads = threads;
    l.shared_bytes = shared_bytes;
    return l;
}

enum class state {
    idle,    /* nothing is left to do */
    running, /* the steps asked for are done, there is more */
    stalled, /* everything waits for something that only the host can bring: more launches, a write, an event */
    faulted  /* see reports() */
};

using stream = unsigned; /* of one machine */
using event = unsigned;

class machine {
  public:
    explicit machine(const options &o);
    ~machine();
    machine(const machine &) = delete;
    machine &operator=(const machine &) = delete;

    /* 256-byte aligned, with contents that are not initialised. `device` -1: memory of the host that devices can
     * address. `allocate` gives nullptr when the host has no memory. */
    void *allocate(int device, size_t bytes);
    void free(void *memory);
    /* The device whose allocation holds all these bytes: false if none does. */
    bool find(const void *address, size_t bytes, int *device) const;

    /* By the host, at once: ordered after everything that has ended on streams the host waited for, and before
     * everything launched afterwards. What a running kernel also touches is a race. false: not inside one allocation.
     */
    bool write(void *to, const void *from, size_t bytes);
    bool fill(void *to, unsigned char value, size_t bytes);
    bool read(void *to, const void *from, size_t bytes);
    /* A flag that running kernels poll: release and acquire at system scope. */
    bool write_flag(uint32_t *to, uint32_t value);
    bool read_flag(uint32_t *value, const uint32_t *from);

    /* Work on one stream is done in order; different streams have no order but through events. */
    stream default_stream(unsigned device);
    stream create_stream(unsigned device);
    void launch(stream s, const struct launch &l);
    /* A copy between allocations or with ordinary host memory, and a fill, in the stream's order. */
    void copy(stream s, void *to, const void *from, size_t bytes);
    void fill(stream s, void *to, unsigned char value, size_t bytes);
    /* A function of the host's, called inside `run` in the stream's order. */
    void call(stream s, std::function<void()> function);
    event record(stream s);
    void wait(stream s, event e);
    bool stream_done(stream s) const;
    bool event_done(event e) const;

    /* Until everything is done, or nothing can be, or a fault, or this many steps. */
    state run(uint64_t steps = ~0ull);
    /* The same, until this stream has nothing left: `idle` then. */
    state run_stream(stream s, uint64_t steps = ~0ull);
    /* After a stall, when the host has nothing to bring either: threads that wait for a deadline, or in a loop of their
     * own, look again later in the next `run`; each time a little more time passes. false: they have looked very often
     * in vain, and it is a deadlock. */
    bool let_time_pass();
    /* Runs to the end, lets time pass, and reports a deadlock. true: done without a fault. */
    bool finish();
    bool finish_stream(stream s);
    /* Reports the deadlock of a machine that `run` left stalled: who waits for what. */
    void report_deadlock();

    const std::vector<report> &reports() const;
    const struct counters &counters() const;
    const struct options &options() const;

    struct impl; /* for the simulator's own files */

  private:
    std::unique_ptr<impl> self;
};

/* The simulator's form of a tensor map. false: the driver would refuse it, and *why says what is wrong. */
bool encode_tensor_map(const tensor_map_desc &desc, tensor_map *map, std::string *why);

} // namespace sim

#endif
