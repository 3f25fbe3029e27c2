/* Machines: same seed, same run; streams, events, the host's part, residency, deadlines, late stores, several devices.
 *
 *     sim_machine [SEEDS] */
#include <chrono>
#include <set>
#include <string>
#include <vector>

#include "check.h"
#include "kernels.h"
#include "seeds.h"
#include "sim/sim.h"

extern "C" {
void add_one(const words &p);
void count_residents(const words &p);
void wait_for_flag(const words &p);
void wait_until_deadline(const words &p);
void wait_seldom_looking(const words &p);
void wait_for_ever(const words &p);
void let_then_write(const words &p);
void begin_then_read(const words &p);
void store_to_peer(const words &p);
void read_from_peer(const words &p);
void pass_round(const ring_parameters &p);
void shuffle_on(const words &p);
void refill(const refill_parameters &p);
}

namespace {

sim::options options_of(uint64_t seed, unsigned devices = 1) {
    sim::options o;
    o.seed = seed;
    o.devices = devices;
    return o;
}

uint32_t *zeros(sim::machine &gpus, int device, size_t count) {
    uint32_t *memory = (uint32_t *)gpus.allocate(device, count * 4);
    gpus.fill(memory, 0, count * 4);
    return memory;
}

uint32_t word_at(sim::machine &gpus, const uint32_t *address) {
    uint32_t value = ~0u;
    CHECK(gpus.read(&value, address, sizeof value));
    return value;
}

void run(sim::machine &gpus, sim::stream s, void (*kernel)(const words &), const words &p, unsigned ctas = 1,
         unsigned threads = 32) {
    gpus.launch(s, sim::launch_of(kernel, "kernel", p, ctas, threads, 0));
}

bool finished(sim::machine &gpus) {
    const bool done = gpus.finish();
    if (!done)
        std::printf("seed %llu: %s\n", (unsigned long long)gpus.options().seed,
                    sim::describe(gpus.reports().front()).c_str());
    return done;
}

/* Devices that pass words round; the answer is the schedule. `slice`: steps a call of run. */
uint64_t pass_words(uint64_t seed, unsigned devices, uint32_t rounds, uint64_t slice, double *switches_a_second) {
    sim::machine gpus(options_of(seed, devices));
    ring_parameters p = {};
    p.devices = devices;
    p.rounds = rounds;
    std::vector<uint32_t *> sums;
    for (unsigned d = 0; d < devices; d++) {
        p.slot[d] = zeros(gpus, (int)d, 1);
        p.ready[d] = zeros(gpus, (int)d, 1);
        p.taken[d] = zeros(gpus, (int)d, 1);
        sums.push_back(zeros(gpus, (int)d, 32));
    }
    for (unsigned d = 0; d < devices; d++) {
        p.device = d;
        p.sums = sums[d];
        gpus.launch(gpus.default_stream(d), sim::launch_of(pass_round, "pass_round", p, 1, RING_THREADS, 64));
    }
    const auto start = std::chrono::steady_clock::now();
    sim::state state;
    do {
        state = gpus.run(slice);
    } while (state == sim::state::running);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    CHECK(state == sim::state::idle);
    if (state != sim::state::idle) {
        if (state == sim::state::stalled)
            gpus.report_deadlock();
        std::printf("seed %llu: %s\n", (unsigned long long)seed, sim::describe(gpus.reports().front()).c_str());
        return 0;
    }
    for (unsigned d = 0; d < devices; d++)
        for (unsigned lane = 0; lane < 32; lane++)
            CHECK(word_at(gpus, sums[d] + lane) == rounds * (rounds + 1) / 2 * ((d + devices - 1) % devices + 1));
    if (switches_a_second != nullptr)
        *switches_a_second = (double)gpus.counters().switches / seconds;
    return gpus.counters().trace;
}

void same_seed_same_run(uint64_t seeds) {
    std::set<uint64_t> schedules;
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        const uint64_t whole = pass_words(seed, 3, 10, ~0ull, nullptr);
        CHECK(pass_words(seed, 3, 10, ~0ull, nullptr) == whole);
        schedules.insert(whole);
    }
    CHECK(schedules.size() > seeds / 2);
    std::printf("words passed round 3 devices: %zu schedules tried\n", schedules.size());
}

void runs_in_slices(uint64_t seeds) {
    for (uint64_t seed = 1; seed <= seeds; seed++)
        CHECK(pass_words(seed, 2, 5, 1 + seed, nullptr) != 0);
}

void eight_devices(uint64_t seeds) {
    std::set<uint64_t> schedules;
    double speed = 0;
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        double one = 0;
        schedules.insert(pass_words(seed, 8, 50, ~0ull, &one));
        speed += one / (double)seeds;
    }
    std::printf("words passed round 8 devices: %zu schedules tried, %.1f million switches a second\n", schedules.size(),
                speed * 1e-6);
}

void streams_keep_order(uint64_t seed) {
    sim::machine gpus(options_of(seed));
    const uint32_t count = 300;
    uint32_t *a = zeros(gpus, 0, count), *b = (uint32_t *)gpus.allocate(0, count * 4);
    const sim::stream s = gpus.create_stream(0), other = gpus.create_stream(0);
    std::vector<uint32_t> back(count);
    run(gpus, s, add_one, {b, a, nullptr, count}, 3, 64);
    run(gpus, s, add_one, {a, b, nullptr, count}, 2, 64);
    const sim::event e = gpus.record(s);
    gpus.wait(other, e);
    run(gpus, other, add_one, {b, a, nullptr, count}, 3, 64);
    gpus.copy(other, back.data(), b, count * 4);
    CHECK(!gpus.stream_done(other) && !gpus.event_done(e));
    CHECK(finished(gpus));
    CHECK(gpus.stream_done(other) && gpus.event_done(e));
    for (uint32_t word : back)
        CHECK(word == 3);
}

void streams_without_order_race(uint64_t seed) {
    sim::machine gpus(options_of(seed));
    uint32_t *a = zeros(gpus, 0, 64), *b = zeros(gpus, 0, 64);
    run(gpus, gpus.create_stream(0), add_one, {a, b, nullptr, 64});
    run(gpus, gpus.create_stream(0), add_one, {b, a, nullptr, 64});
    CHECK(!gpus.finish() && gpus.reports().front().kind == sim::fault::race);
}

void host_must_wait_before_it_reads(uint64_t seed) {
    sim::machine gpus(options_of(seed));
    uint32_t *a = zeros(gpus, 0, 64), *b = zeros(gpus, 0, 64), *flag = zeros(gpus, 0, 1);
    const sim::stream s = gpus.create_stream(0), other = gpus.create_stream(0);
    run(gpus, s, add_one, {a, b, nullptr, 64});
    run(gpus, other, wait_for_flag, {b, a, flag, 1});
    CHECK(gpus.run_stream(s) == sim::state::idle);
    CHECK(word_at(gpus, a) == 1);
    CHECK(gpus.run() == sim::state::stalled && gpus.reports().empty());
    CHECK(gpus.write_flag(flag, 1));
    uint32_t seen = 0;
    CHECK(gpus.read_flag(&seen, flag) && seen == 1);
    CHECK(finished(gpus));
    CHECK(word_at(gpus, b) == 1);

    sim::machine hasty(options_of(seed));
    a = zeros(hasty, 0, 64);
    flag = zeros(hasty, 0, 1);
    run(hasty, hasty.create_stream(0), add_one, {a, a, nullptr, 64});
    run(hasty, 0, wait_for_flag, {a, a, flag, 1});
    CHECK(hasty.run() == sim::state::stalled);
    uint32_t value;
    hasty.read(&value, a, 4);
    CHECK(!hasty.reports().empty() && hasty.reports().front().kind == sim::fault::race);
}

void residents_are_bounded(uint64_t seed) {
    sim::options o = options_of(seed);
    o.multiprocessors = 6;
    o.resident = (unsigned)(seed % 4);
    sim::machine gpus(o);
    uint32_t *counts = zeros(gpus, 0, 3);
    run(gpus, 0, count_residents, {counts, nullptr, nullptr, 0}, 20);
    CHECK(finished(gpus));
    CHECK(word_at(gpus, counts) == 0 && word_at(gpus, counts + 2) == 20);
    CHECK(word_at(gpus, counts + 1) >= 1 && word_at(gpus, counts + 1) <= (o.resident != 0 ? o.resident : 6));
}

void deadlines_pass(uint64_t seed) {
    sim::machine gpus(options_of(seed));
    for (const auto wait : {wait_until_deadline, wait_seldom_looking}) {
        uint32_t *flag = zeros(gpus, 0, 1), *came = zeros(gpus, 0, 2);
        run(gpus, 0, wait, {came, nullptr, flag, 3000000000u});
        CHECK(finished(gpus));
        CHECK(word_at(gpus, came) == 0);
        run(gpus, 0, wait, {came, nullptr, flag, 3000000000u});
        CHECK(gpus.run() == sim::state::stalled);
        gpus.write_flag(flag, 1);
        CHECK(finished(gpus));
        CHECK(word_at(gpus, came) == 1);
    }
}

/* Also for those who seldom look at the clock. */
void deadlines_pass_in_order(uint64_t seed) {
    sim::machine gpus(options_of(seed, 2));
    uint32_t *flag = zeros(gpus, 0, 1), *came = zeros(gpus, 0, 2 * 32);
    run(gpus, 1, wait_seldom_looking, {came, nullptr, flag, 3000000000u});
    run(gpus, 0, wait_seldom_looking, {came + 32, nullptr, flag, 2000000000u});
    CHECK(gpus.finish_stream(0));
    CHECK(!gpus.stream_done(1));
    CHECK(finished(gpus));
}

void a_stall_is_a_deadlock(uint64_t seed) {
    sim::machine gpus(options_of(seed));
    const words p = {nullptr, nullptr, zeros(gpus, 0, 1), 0};
    struct sim::launch l = sim::launch_of(wait_for_ever, "wait_for_ever", p, 1, 32, 0);
    l.roles = {"waiter"};
    gpus.launch(0, l);
    CHECK(gpus.run() == sim::state::stalled);

    CHECK(!gpus.finish());
    const sim::report &r = gpus.reports().front();
    CHECK(r.kind == sim::fault::deadlock && r.message.find("waiter") != std::string::npos);
    CHECK(r.message.find("kernels.cu:") != std::string::npos);
    CHECK(gpus.run() == sim::state::faulted);
}

void dependents_start_early(uint64_t seeds) {
    unsigned early[2] = {};
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        for (const bool programmatic : {false, true}) {
            sim::machine gpus(options_of(seed));
            uint32_t *a = zeros(gpus, 0, 2), *b = zeros(gpus, 0, 2), *flag = zeros(gpus, 0, 1);
            run(gpus, 0, let_then_write, {a, nullptr, flag, 0});
            const words p = {b, a, flag, 0};
            struct sim::launch l = sim::launch_of(begin_then_read, "begin_then_read", p, 1, 32, 0);
            l.programmatic = programmatic;
            gpus.launch(0, l);
            CHECK(finished(gpus));
            CHECK(word_at(gpus, b) == 8);
            early[programmatic] += word_at(gpus, b + 1);
        }
    }
    CHECK(early[0] == 0 && early[1] > 0);
}

/* With the checks of order off, so that the stale word is read, not reported. */
void stores_to_peers_are_late(uint64_t seeds) {
    unsigned stale = 0;
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        for (uint32_t system : {0u, 1u}) {
            sim::options o = options_of(seed, 2);
            o.check_order = false;
            sim::machine gpus(o);
            uint32_t *word = zeros(gpus, 1, 1), *flag = zeros(gpus, 1, 1), *got = zeros(gpus, 1, 1);
            run(gpus, gpus.default_stream(0), store_to_peer, {word, nullptr, flag, system});
            run(gpus, gpus.default_stream(1), read_from_peer, {got, word, flag, 0});
            CHECK(finished(gpus));
            CHECK(word_at(gpus, word) == 5);
            CHECK(system == 0 || word_at(gpus, got) == 5);
            stale += word_at(gpus, got) == 0;
        }
    }
    CHECK(stale > 0);
}

void done_work_orders_arrivals(uint64_t seed) {
    for (const refill_way way : {STORED_AND_WAITED, STORED, ONLY_FENCED}) {
        sim::machine gpus(options_of(seed));
        uint32_t *from = (uint32_t *)gpus.allocate(0, 1024);
        gpus.fill(from, 0x11, 1024);
        tensor_map_desc desc = {};
        desc.base = from;
        desc.dims = 2;
        desc.size[0] = desc.box[0] = 64;
        desc.size[1] = desc.box[1] = 8;
        desc.stride[0] = 128;
        refill_parameters p = {};
        CHECK(sim::encode_tensor_map(desc, &p.from, nullptr));
        p.to = (uint32_t *)gpus.allocate(0, 1024 + 128);
        p.way = way;
        gpus.launch(0, sim::launch_of(refill, "refill", p, 2, 32, 2048, 2));
        if (way == STORED_AND_WAITED) {
            CHECK(finished(gpus));
            CHECK(word_at(gpus, p.to + 128) == 0 && word_at(gpus, p.to + 129) == 512 &&
                  word_at(gpus, p.to + 256) == 0x11111111);
        } else {
            CHECK(!gpus.finish() && gpus.reports().front().kind == sim::fault::race);
        }
    }
}

void machines_are_apart(uint64_t seed) {
    sim::machine a(options_of(seed)), b(options_of(seed + 1));
    uint32_t *in_a = zeros(a, 0, 64), *in_b = zeros(b, 0, 64);
    for (int i = 0; i < 4; i++) {
        run(a, 0, add_one, {in_a, in_a, nullptr, 64}, 2, 64);
        run(b, 0, add_one, {in_b, in_b, nullptr, 64}, 2, 64);
    }
    while (a.run(7) == sim::state::running || b.run(5) == sim::state::running) {
    }
    CHECK(finished(a) && finished(b));
    CHECK(word_at(a, in_a) == 4 && word_at(b, in_b) == 4);
}

void bad_launches_are_refused() {
    const struct {
        unsigned grid, threads, cluster;
        size_t shared_bytes;
    } bad[] = {{0, 32, 1, 0}, {1, 33, 1, 0}, {1, 2048, 1, 0}, {3, 32, 2, 0}, {16, 32, 16, 0}, {1, 32, 1, 240 * 1024}};
    for (const auto &l : bad) {
        sim::machine gpus(options_of(1));
        const words p = {};
        gpus.launch(0, sim::launch_of(add_one, "add_one", p, l.grid, l.threads, l.shared_bytes, l.cluster));
        CHECK(gpus.run() == sim::state::faulted && gpus.reports().front().kind == sim::fault::launch);
    }
}

void memory_is_found() {
    sim::machine gpus(options_of(1, 2));
    char *a = (char *)gpus.allocate(1, 100), *b = (char *)gpus.allocate(-1, 100);
    int device = 7;
    CHECK(gpus.find(a, 100, &device) && device == 1);
    CHECK(gpus.find(b + 99, 1, &device) && device == -1);
    CHECK(!gpus.find(a, 101, &device) && !gpus.find(a - 1, 2, &device));
    CHECK(!gpus.fill(a, 0, 101) && !gpus.read(&device, a + 98, 4));
    CHECK((uintptr_t)a % 256 == 0);
    gpus.free(a);
    CHECK(!gpus.find(a, 1, &device));
}

void say_how_fast() {
    sim::machine gpus(options_of(6));
    const uint32_t rounds = 1000;
    uint32_t *out = zeros(gpus, 0, 4 * 256);
    run(gpus, 0, shuffle_on, {out, nullptr, nullptr, rounds}, 4, 256);
    const auto start = std::chrono::steady_clock::now();
    CHECK(finished(gpus));
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::printf("shuffles: %.1f million switches a second\n", (double)gpus.counters().switches / seconds * 1e-6);
}

} // namespace

/* Atomics of one device at its scope, by CTAs that know nothing of each other, while many come and go on another one.
 */
uint64_t atomics_stay_their_devices(uint64_t steps) {
    sim::machine gpus(options_of(1, 2));
    const words here = {zeros(gpus, 0, 3), nullptr, nullptr, 0}, there = {zeros(gpus, 1, 3), nullptr, nullptr, 0};
    const sim::stream other = gpus.create_stream(0);
    run(gpus, gpus.default_stream(0), count_residents, here);
    run(gpus, gpus.default_stream(1), count_residents, there, 4000);
    CHECK(gpus.run(steps) == sim::state::running);
    run(gpus, other, count_residents, here);
    CHECK(finished(gpus));
    return gpus.counters().steps;
}

int main(int count, char **arguments) {
    const uint64_t seeds = argument_or(count, arguments, 1, 24);
    same_seed_same_run(seeds);
    runs_in_slices(seeds);
    eight_devices(seeds / 4 + 1);
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        streams_keep_order(seed);
        streams_without_order_race(seed);
        host_must_wait_before_it_reads(seed);
        residents_are_bounded(seed);
        deadlines_pass(seed);
        deadlines_pass_in_order(seed);
        done_work_orders_arrivals(seed);
        machines_are_apart(seed);
    }
    a_stall_is_a_deadlock(1);
    atomics_stay_their_devices(atomics_stay_their_devices(0) / 2);
    dependents_start_early(seeds);
    stores_to_peers_are_late(seeds);
    bad_launches_are_refused();
    memory_is_found();
    say_how_fast();
    return checks_result();
}
