/* The simulated GPUs behind libcuda_sim.so: one machine for the process, and how threads of several ranks share it.
 *
 * Every call takes the one lock. Calls that queue work only queue it; the machine runs inside calls that wait, when
 * every rank has come to one: so the order in which host threads happen to be scheduled decides nothing, and a run is
 * the same again for the same seed. A rank that stays away (it waits for another rank's thread, or is done) is awaited
 * for a moment and then left out. */
#ifndef SIM_DRIVER_GPUS_H
#define SIM_DRIVER_GPUS_H

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cuda/driver_api.h"
#include "sim/driver/graphs.h"
#include "sim/sim.h"

/* What the library calls; so that no definition here has other arguments. */
#define MM_DRIVER_FUNCTION(name, symbol, arguments) extern "C" mm_cu_result symbol arguments;
#include "cuda/driver_functions.def"
#undef MM_DRIVER_FUNCTION

namespace sim::driver {

struct settings {
    options machine;
    size_t memory;          /* bytes of each device */
    size_t chunk;           /* what is made in streams shares chunks of so many bytes */
    int breaking = -1;      /* a device that breaks, -1: none, */
    uint64_t breaks_at = 0; /* with this launch of its own, counted from 1 */
};

/* From the environment: MEGAMOE_SIM_DEVICES (8), MEGAMOE_SIM_SEED (1), MEGAMOE_SIM_MULTIPROCESSORS (4),
 * MEGAMOE_SIM_MEMORY (4 GiB), MEGAMOE_SIM_CHUNK (1; a real driver's chunks have 32 MiB), MEGAMOE_SIM_CHECK_ORDER (1; 0
 * leaves out races and uninitialised reads), MEGAMOE_SIM_BREAK (none; "1@20": device 1 breaks with the 20th kernel that
 * is launched on it). MEGAMOE_SIM_NO_LAUNCH names a kernel that can't be launched, while it is set. MEGAMOE_SIM_KERNELS
 * names a library of kernels besides those of src/kernels. */
settings settings_of_environment();

/* Handles that the program holds. */
struct context {
    int device;
};
struct stream {
    int device;
    sim::stream sim;
    std::shared_ptr<graph> capture; /* that it takes part in */
    size_t lane = 0;                /* its part */
};
struct event {
    bool recorded = false;
    sim::event sim = 0;
    std::shared_ptr<uint64_t> steps; /* of the machine when it came */
    std::shared_ptr<graph> captured; /* recorded for a graph: its number there, and the part that did */
    size_t number = 0, lane = 0;
};
struct function {
    std::string name;
    kernel_function kernel;
    unsigned threads, parameter_bytes;
    size_t shared_allowed;
};

class gpus {
  public:
    explicit gpus(const settings &s);

    const settings set;
    std::vector<context> primary; /* of each device */

    /* Under the lock. */
    machine sim;
    std::vector<std::pair<int, sim::stream>> streams; /* with their devices */

    /* Memory of a device, or of the host: -1. nullptr: there is not so much. */
    void *allocate(int device, size_t bytes, bool in_stream);
    void free(void *memory, int device, size_t bytes, bool in_stream);
    size_t available(int device) const;

    /* Held by a call. Taking it counts as activity, unless the call only looks: whoever waits for a rank that stays
     * away waits for it again. */
    std::unique_lock<std::mutex> lock();
    std::unique_lock<std::mutex> lock_to_look() { return std::unique_lock<std::mutex>(mutex); }

    /* Contexts that are in use: the ranks that can come to a wait. */
    void rank_comes();
    void rank_goes();

    /* Runs the machine until `done`. The lock is held. look(): or for a while, after which the caller looks again. */
    mm_cu_result wait(std::unique_lock<std::mutex> &held, std::function<bool()> done);
    mm_cu_result look(std::unique_lock<std::mutex> &held, std::function<bool()> done);

    mm_cu_result wait_for_device(std::unique_lock<std::mutex> &held, int device); /* -1: for all */

    /* CUDA_SUCCESS, or what every call gives after the simulator has found a fault, or after the device of the current
     * context has broken: then nothing more is queued there. */
    mm_cu_result health() const;

    /* Counts a launch on a device; true: with this one it breaks. */
    bool breaks(int device);

  private:
    struct taken_bytes {
        size_t alone = 0, in_streams = 0;
    };
    size_t bytes_of(const taken_bytes &of) const;

    struct waiter {
        std::function<bool()> done;
        bool released;
    };
    using clock = std::chrono::steady_clock;
    mm_cu_result wait_until(std::unique_lock<std::mutex> &held, std::function<bool()> done, clock::time_point end);
    bool is_broken(int device) const;
    bool all_wait() const;
    bool all_came(std::unique_lock<std::mutex> &held, clock::duration patience, clock::time_point end);
    bool is_deadlock(std::unique_lock<std::mutex> &held, clock::time_point end);
    void advance(std::unique_lock<std::mutex> &held, const waiter &own, clock::time_point end);
    void release_who_is_done();
    void tell_faults();

    std::vector<taken_bytes> taken; /* of each device */
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<waiter *> waiting;
    int ranks = 0;
    uint64_t activity = 0;
    clock::time_point last_activity;
    bool faulted = false, told = false;
    uint64_t launches = 0; /* on the device that breaks */
};

/* Made by cuInit and never freed: threads of the program may outlive every order of tear-down. nullptr before. */
gpus *the_gpus();
gpus *make_the_gpus();

/* The calling thread's current context; nullptr: none. */
const context *current_context();

/* The simulator's stream for a handle; NULL: the default stream of the current context. */
bool stream_of(gpus &g, mm_cu_stream handle, sim::stream *out);

/* Whether a device may access an address: no, when it lies in memory that is mapped and not for that device. The lock
 * is held. */
bool may_access(const void *address, int device);

} // namespace sim::driver

#define SIM_DRIVER_API extern "C" __attribute__((visibility("default"))) mm_cu_result

#endif
