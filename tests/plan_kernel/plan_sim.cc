/* The routing plan kernels in the simulator, against the host's plan. */
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "device_plan.h"
#include "kernels/enter_params.h"
#include "sim/seeds.h"
#include "sim/sim.h"

extern "C" void mm_call_enter(const enter_params &p);
extern "C" void mm_count_slots(const plan_params &p);
extern "C" void mm_place_slots(const plan_params &p);

namespace {

/* Few, so that a CTA has more than one task of each kind and a case takes little time. */
const uint32_t MOST_WARPS = 3, MULTIPROCESSORS = 12;

template <class type>
void launch(sim::machine &gpu, void (*kernel)(const type &), const char *name, const type &p, unsigned ctas,
            unsigned threads, size_t shared_bytes) {
    struct sim::launch l = sim::launch_of(kernel, name, p, ctas, threads, shared_bytes);
    l.programmatic = true;
    gpu.launch(gpu.default_stream(0), l);
}

void *zeros(sim::machine &gpu, size_t bytes, size_t room) {
    void *memory = gpu.allocate(0, room);
    gpu.fill(memory, 0, bytes);
    return memory;
}

/* One rank alone needs no other rank's ids: it brings its own into its segment, just before the plan. */
void launch_enter(sim::machine &gpu, const plan_case &c, plan_params &plan) {
    const size_t slots = (size_t)(c.tokens[0] * c.shape.top_k);
    const size_t segment_bytes = sizeof(call_control) + slots * (sizeof(int32_t) + sizeof(float));
    enter_params p = {};
    p.group.world = 1;
    p.group.state = (call_state *)zeros(gpu, sizeof(call_state), sizeof(call_state));
    p.group.segment[0] = (unsigned char *)zeros(gpu, sizeof(call_control), segment_bytes);
    p.ids = {gpu.allocate(0, slots * sizeof *c.ids + 1), {c.shape.top_k, 1}};
    p.weights = {gpu.allocate(0, slots * sizeof *c.weights + 1), {c.shape.top_k, 1}};
    gpu.write(p.ids.data, c.ids, slots * sizeof *c.ids);
    gpu.write(p.weights.data, c.weights, slots * sizeof *c.weights);
    p.tokens = (uint32_t)c.tokens[0];
    p.top_k = plan.top_k;
    p.experts = plan.experts;
    p.ids_slot = sizeof(call_control);
    p.weights_slot = p.ids_slot + slots * sizeof(int32_t);
    p.ctas_done = (uint32_t *)zeros(gpu, sizeof(uint32_t), sizeof(uint32_t));
    p.first_faults = (uint32_t *)gpu.allocate(0, MULTIPROCESSORS * sizeof(uint32_t));
    launch(gpu, mm_call_enter, "mm_call_enter", p, MULTIPROCESSORS / 2, ENTER_THREADS, ENTER_SHARED_BYTES);
    plan.ids = (const int32_t *)(p.group.segment[0] + p.ids_slot);
    plan.weights = (const float *)(p.group.segment[0] + p.weights_slot);
}

std::string run(const plan_case &c, uint64_t seed, unsigned char poison) {
    sim::options options;
    options.seed = seed;
    options.multiprocessors = MULTIPROCESSORS;
    sim::machine gpu(options);
    plan_params p;
    std::vector<char> block(plan_case_place(&c, nullptr, &p), (char)poison);
    plan_case_write_inputs(&c, block.data());
    void *device_block = gpu.allocate(0, block.size());
    plan_case_place(&c, device_block, &p);
    if (device_block == nullptr || !gpu.write(device_block, block.data(), block.size()))
        return "no memory";
    if (c.shape.world == 1)
        launch_enter(gpu, c, p);
    const unsigned ctas = p.world * p.chunks, threads = 32 * p.warps;
    launch(gpu, mm_count_slots, "mm_count_slots", p, ctas, threads, plan_count_shared_bytes(p.experts));
    launch(gpu, mm_place_slots, "mm_place_slots", p, ctas, threads, plan_place_shared_bytes(p.experts, p.warps));
    if (!gpu.finish())
        return sim::describe(gpu.reports().front());
    gpu.read(block.data(), device_block, block.size());
    return plan_case_compare(&c, block.data(), poison) ? "" : "the plan differs";
}

bool passes(plan_case *c, uint64_t seed, const char *what) {
    c->warps = c->warps < MOST_WARPS ? c->warps : MOST_WARPS;
    for (const unsigned char poison : {0xff, 0x4b}) {
        const std::string fault = run(*c, 2 * seed + (poison == 0xff), poison);
        if (!fault.empty()) {
            std::printf("%s %llu, W %d, E %d, K %d, rank %d: %s\n", what, (unsigned long long)seed, c->shape.world,
                        c->shape.experts, c->shape.top_k, c->shape.rank, fault.c_str());
            return false;
        }
    }
    return true;
}

/* All kinds of routings and shapes. */
bool any_plan_equals_the_hosts(uint64_t seed) {
    plan_case c;
    plan_case_random(&c, seed, MULTIPROCESSORS, 60);
    const bool same = passes(&c, seed, "random routing");
    plan_case_free(&c);
    return same;
}

/* T * K slots of one rank on both sides of 2^16. */
bool many_slots(int32_t tokens, int top_k, rig_routing kind) {
    rig_random random = rig_seed((uint64_t)tokens);
    plan_case c = {};
    c.shape.world = 2;
    c.shape.rank = 1;
    c.shape.experts = 4;
    c.shape.top_k = top_k;
    c.shape.capacity = MM_NO_CAPACITY;
    c.max_tokens = tokens;
    c.tokens[0] = tokens;
    c.tokens[1] = 1;
    plan_case_draw(&c, kind, &random, MULTIPROCESSORS);
    const bool same = passes(&c, (uint64_t)tokens, "tokens");
    plan_case_free(&c);
    return same;
}

/* The largest E, and the largest K with two experts. */
bool largest_shapes(int experts, int top_k) {
    rig_random random = rig_seed((uint64_t)experts);
    plan_case c = {};
    c.shape.world = 2;
    c.shape.experts = experts;
    c.shape.top_k = top_k;
    c.shape.capacity = MM_NO_CAPACITY;
    c.max_tokens = c.tokens[0] = c.tokens[1] = 5;
    plan_case_draw(&c, RIG_DUPLICATES, &random, 4);
    const bool same = passes(&c, (uint64_t)experts, "experts");
    plan_case_free(&c);
    return same;
}

} // namespace

int main() {
    const bool small = rig_small();
    const uint64_t seeds = small ? 40 : 600;
    unsigned failed = 0;
    for (uint64_t seed = 0; seed < seeds; seed++)
        failed += !any_plan_equals_the_hosts(seed);
    failed += !largest_shapes(MMOE_MAX_EXPERTS, 2);
    failed += !largest_shapes(2, MMOE_MAX_TOP_K);
    if (!small) {
        failed += !many_slots(65535, 1, RIG_UNIFORM);
        failed += !many_slots(8192, 8, RIG_ONE_EXPERT);
    }
    std::printf("%llu random routings, each under 2 schedules%s: %u failed\n", (unsigned long long)seeds,
                small ? "; MMOE_TEST_SCALE=small: not run: 65535 and 65536 slots" : "", failed);
    return failed > 0;
}
