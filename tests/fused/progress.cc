/* Calls while other kernels hold multiprocessors, on simulated GPUs: they end with whatever part of their CTAs can run,
 * also when the other kernel waits for a peer that starts it only after the call. And many calls in a row, with ranks
 * that run ahead. Forwards alone, or each with its backward.
 *
 *     fused_progress [SCHEDULES [FIRST_SEED]] */
#include <cstdio>
#include <cstring>
#include <set>
#include <string>

#include "group.h"
#include "hold.h"
#include "kernels/tile_shape.h"
#include "sim/seeds.h"

extern "C" void hold(const hold_params &p);

namespace {

const unsigned MULTIPROCESSORS = 4;

/* Of every other seed; gradients of weights are made on two multiprocessors at least. */
bool has_backwards(uint64_t seed) {
    return seed % 2 == 0;
}
unsigned most_held(uint64_t seed) {
    return MULTIPROCESSORS - (has_backwards(seed) ? CLUSTER_CTAS : 1);
}

const double BOUND = 1e30; /* layers are exact */

struct setting {
    unsigned world;
    uint64_t seed;
    fused_layer layer;
    fused_group group;
    rig_random draws;
    size_t calls = 0;

    setting(unsigned ranks, uint64_t s, unsigned resident)
        : world(ranks), seed(s), layer(make_layer(64 * (1 + (int64_t)(s % 3)), 64, 2 * ranks, 2, true, s)),
          group(layer, options_of(ranks, s), machine_of(ranks, s, resident)), draws(rig_seed(s)) {}

    static group_options options_of(unsigned ranks, uint64_t s) {
        group_options options;
        options.world = ranks;
        options.max_tokens = 8;
        options.ctas = {1 + (unsigned)(s % 6), MULTIPROCESSORS};
        options.backward_ctas = {MULTIPROCESSORS, 1 + (unsigned)(s % 6)};
        options.keep = s % 4 == 0;
        options.accumulate = options.narrow = s % 8 < 4;
        options.grouped = s % 3 > 0;
        options.programmatic = s % 2 == 0;
        options.counted = s % 4 < 2 ? 0 : ~0u;
        return options;
    }
    static sim::options machine_of(unsigned ranks, uint64_t s, unsigned resident) {
        sim::options options;
        options.seed = s;
        options.devices = ranks;
        options.multiprocessors = MULTIPROCESSORS;
        options.resident = resident;
        options.check_order = s % 4 == 0;
        return options;
    }

    /* The calls of a batch are prepared one behind another. */
    std::vector<fused_batch> draw(size_t count) {
        std::vector<fused_batch> batches;
        for (size_t i = 0; i < count; i++) {
            std::vector<int64_t> tokens;
            for (unsigned r = 0; r < world; r++)
                tokens.push_back(rig_below(&draws, 9));
            batches.push_back(make_batch(layer, tokens, (rig_routing)(i % (RIG_HOLES + 1)), rig_next(&draws)));
            const unsigned char poison = i % 2 == 0 ? 0xff : 0x7f;
            const size_t forward = group.prepare(batches[i], poison);
            calls = forward + 1;
            if (has_backwards(seed))
                calls = group.prepare_backward(forward, batches[i], poison) + 1;
        }
        return batches;
    }

    uint32_t *counter(unsigned device) {
        uint32_t *memory = (uint32_t *)group.machine().allocate((int)device, sizeof *memory);
        group.machine().fill(memory, 0, sizeof *memory);
        return memory;
    }

    void launch_hold(sim::stream s, const hold_params &p, unsigned ctas) {
        group.machine().launch(s, sim::launch_of(hold, "hold", p, ctas, HOLD_THREADS, 0));
    }

    std::string fault() {
        const auto &reports = group.machine().reports();
        return reports.empty() ? "" : sim::describe(reports.front());
    }

    std::string check(const std::vector<fused_batch> &batches) {
        std::string wrong = group.finish();
        for (size_t i = 0; i < batches.size() && wrong.empty(); i++) {
            const size_t forward = i * calls / batches.size();
            wrong = group.check_good(forward, batches[i]);
            if (wrong.empty() && has_backwards(seed))
                wrong = group.check_backward(forward + 1, batches[i], BOUND);
        }
        return wrong;
    }
};

/* On each rank another number of multiprocessors is held, up to all but one, until all calls have ended. */
std::string calls_end_beside_holders(unsigned world, uint64_t seed) {
    setting s(world, seed, MULTIPROCESSORS);
    sim::machine &gpus = s.group.machine();
    std::vector<uint32_t *> until;
    for (unsigned r = 0; r < world; r++) {
        const unsigned held = (unsigned)(seed / 2 + r * most_held(seed)) % (most_held(seed) + 1);
        uint32_t *holding = s.counter(r), now = 0;
        until.push_back(s.counter(r));
        if (held == 0)
            continue;
        s.launch_hold(gpus.create_stream(r), {{holding}, 1, until[r], 1}, held);
        while (now < held && gpus.run(1000) != sim::state::faulted)
            gpus.read_flag(&now, holding);
    }
    const std::vector<fused_batch> batches = s.draw(2);
    for (size_t call = 0; call < s.calls; call++)
        s.group.launch_all(call);
    for (unsigned r = 0; r < world; r++)
        if (!gpus.finish_stream(gpus.default_stream(r)))
            return s.fault();
    for (uint32_t *let_go : until)
        gpus.write_flag(let_go, 1);
    return s.check(batches);
}

/* A kernel that meets its peers holds multiprocessors. Even ranks start it before their calls, odd ones after them. */
std::string calls_end_beside_a_collective(unsigned world, uint64_t seed) {
    setting s(world, seed, MULTIPROCESSORS);
    sim::machine &gpus = s.group.machine();
    const unsigned held = 1 + (unsigned)(seed / 2 % most_held(seed));
    hold_params p = {};
    std::vector<sim::stream> streams;
    p.peers = world;
    p.count = world * held;
    for (unsigned r = 0; r < world; r++) {
        p.tell[r] = s.counter(r);
        streams.push_back(gpus.create_stream(r));
    }
    const std::vector<fused_batch> batches = s.draw(2);
    for (unsigned r = 0; r < world; r++) {
        p.until = p.tell[r];
        if (r % 2 == 0)
            s.launch_hold(streams[r], p, held);
        for (size_t call = 0; call < s.calls; call++)
            s.group.launch(call, r);
        if (r % 2 == 1) {
            gpus.wait(streams[r], gpus.record(gpus.default_stream(r)));
            s.launch_hold(streams[r], p, held);
        }
    }
    return s.check(batches);
}

/* All queued at once; one rank's calls are launched one by one, each a while after the one before. */
std::string many_calls_end(unsigned world, uint64_t seed) {
    setting s(world, seed, 0);
    const std::vector<fused_batch> batches = s.draw(has_backwards(seed) ? 4 : 10);
    const unsigned slow = (unsigned)(seed % world);
    for (size_t call = 0; call < s.calls; call++)
        for (unsigned r = 0; r < world; r++)
            if (r != slow)
                s.group.launch(call, r);
    for (size_t call = 0; call < s.calls; call++) {
        s.group.machine().run((uint64_t)rig_below(&s.draws, 100000));
        s.group.launch(call, slow);
    }
    return s.check(batches);
}

} // namespace

int main(int count, char **arguments) {
    const uint64_t seeds = argument_or(count, arguments, 1, rig_small() ? 1 : 6);
    const uint64_t first = argument_or(count, arguments, 2, 1);
    const struct {
        const char *name;
        std::string (*hold)(unsigned world, uint64_t seed);
    } cases[] = {{"beside holders", calls_end_beside_holders},
                 {"beside a collective", calls_end_beside_a_collective},
                 {"many calls", many_calls_end}};
    unsigned failed = 0, tried = 0;
    for (const auto &one : cases)
        for (uint64_t seed = first; seed < first + seeds; seed++, tried++) {
            const unsigned world = seed % 8 == 3 || seed % 8 == 6 ? 4 : 2;
            const std::string wrong = one.hold(world, seed);
            if (!wrong.empty())
                std::printf("%s, W %u, seed %llu: %s\n", one.name, world, (unsigned long long)seed, wrong.c_str());
            failed += !wrong.empty();
        }
    std::printf("%u schedules tried: %u failed\n", tried, failed);
    return failed > 0;
}
