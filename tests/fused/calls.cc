/* Whole forwards and their backwards on 1, 2, 4 and 8 simulated GPUs: results against the float64 oracle, exactly where
 * the data are small integers, and bit for bit against the tokens of all ranks on one GPU; what is kept, what is sent,
 * and that nothing else is written.
 *
 *     fused_calls [SCHEDULES [FIRST_SEED]] */
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <set>
#include <string>

#include "group.h"
#include "kernels/tile_shape.h"
#include "sim/seeds.h"

namespace {

/* What is special in a call, besides its routing. */
enum class quirk { NONE, RECEIVES_NOTHING, SENDS_NOTHING, NO_TOKENS };

struct call_case {
    rig_routing routing;
    quirk special;
};

struct scenario {
    int64_t hidden, intermediate, local_experts, top_k;
    double limit;
    bool exact;
    bool queued;   /* all calls at once: ranks may be a call apart */
    bool growing;  /* room for the rows of a plan is made when they are known */
    bool backward; /* each forward has one, the next call */
    std::vector<call_case> calls;
    group_options group;
    unsigned multiprocessors, resident;
    bool check_order;
};

const double BOUND = 5.5e-3; /* of the relative error of a bf16 result */
/* Of gradients that jump where g or u is at the limit, on which side bf16 and float64 may find it. */
const double BOUND_AT_LIMIT = 0.3;

const int64_t SIZES[] = {64, 128, 192, 256, 320}, TOP_K[] = {1, 2, 8};

/* ---- Cases ---- */

call_case random_call(rig_random *random) {
    call_case c = {(rig_routing)rig_below(random, RIG_HOLES + 1), quirk::NONE};
    if (rig_below(random, 3) == 0)
        c.special = (quirk)(1 + rig_below(random, 3));
    return c;
}

group_options random_group(unsigned world, rig_random *random) {
    group_options g;
    g.world = world;
    g.max_tokens = 1 + rig_below(random, world == 8 ? 12 : 40);
    g.keep = rig_below(random, 2) == 0;
    g.map_an_expert = rig_below(random, 2) == 0;
    g.callers_x = rig_below(random, 2) == 0;
    g.programmatic = rig_below(random, 2) == 0;
    g.layout = (y_layout)rig_below(random, 4);
    g.enter_ctas = 1 + (unsigned)rig_below(random, 3);
    g.chunks = 1 + (unsigned)rig_below(random, 2);
    g.warps = 1 + (unsigned)rig_below(random, 2);
    g.counted = rig_below(random, 2) == 0 ? 0 : 0u - (uint32_t)rig_below(random, 600); /* about to wrap */
    g.ctas.clear();
    for (unsigned r = 0; r < 2; r++)
        g.ctas.push_back(1 + (unsigned)rig_below(random, 5));
    /* Who is slow in the forward is fast in the backward. */
    g.backward_ctas = {g.ctas[1], g.ctas[0]};
    g.narrow = rig_below(random, 2) == 0;
    g.accumulate = rig_below(random, 2) == 0;
    for (unsigned r = 0; r < world && rig_below(random, 2) == 0; r++)
        g.omit.push_back((unsigned)rig_below(random, 1 << GRADIENTS));
    return g;
}

scenario random_scenario(uint64_t seed) {
    static const unsigned worlds[] = {1, 2, 2, 2, 4, 1, 2, 8}, multiprocessors[] = {1, 2, 4};
    rig_random random = rig_seed(seed);
    const unsigned world = worlds[seed % 8];
    scenario s = {};
    s.hidden = SIZES[rig_below(&random, 5)];
    s.intermediate = SIZES[rig_below(&random, 5)];
    s.local_experts = 1 + rig_below(&random, 8);
    s.top_k = TOP_K[rig_below(&random, 3)];
    s.exact = rig_below(&random, 2) == 0;
    s.limit = !s.exact && rig_below(&random, 2) == 0 ? 0.5 : 0;
    s.queued = rig_below(&random, 2) == 0;
    s.growing = !s.queued && rig_below(&random, 2) == 0;
    s.backward = seed % 3 > 0;
    s.group = random_group(world, &random);
    s.group.row_room = s.growing ? PLAN_ROW_BLOCK : 0;
    for (int i = 0; i < (s.backward ? 2 : 3); i++)
        s.calls.push_back(random_call(&random));
    s.multiprocessors = multiprocessors[rig_below(&random, 3)];
    if (s.backward && s.multiprocessors < CLUSTER_CTAS)
        s.multiprocessors = CLUSTER_CTAS; /* the least that gradients of weights are made on */
    s.resident = (unsigned)rig_below(&random, 3);
    s.check_order = rig_below(&random, 2) == 0;
    return s;
}

scenario plain_scenario(unsigned world, int64_t most_tokens, int64_t hidden, int64_t intermediate,
                        int64_t local_experts, int64_t top_k, rig_routing routing) {
    scenario s = {hidden, intermediate, local_experts, top_k, 0, true, true, false, true, {}, {}, 4, 0, true};
    s.group.world = world;
    s.group.max_tokens = most_tokens;
    s.group.ctas = {3};
    s.calls.push_back({routing, quirk::NONE});
    return s;
}

/* ---- Batches ---- */

std::vector<int64_t> draw_tokens(const scenario &s, const call_case &c, rig_random *random) {
    std::vector<int64_t> tokens;
    for (unsigned r = 0; r < s.group.world; r++)
        tokens.push_back(rig_below(random, 5) == 0 ? 0 : rig_below(random, s.group.max_tokens + 1));
    if (c.special == quirk::NO_TOKENS)
        tokens[(size_t)rig_below(random, s.group.world)] = 0;
    return tokens;
}

fused_batch draw_batch(const fused_layer &layer, const scenario &s, const call_case &c, rig_random *random) {
    fused_batch batch = make_batch(layer, draw_tokens(s, c, random), c.routing, rig_next(random));
    const unsigned rank = (unsigned)rig_below(random, s.group.world);
    for (size_t slot = 0; slot < batch.ids.size(); slot++) {
        const int64_t token = (int64_t)slot / layer.top_k;
        const bool own = token >= batch.first(rank) && token < batch.first(rank + 1);
        const bool to_rank = batch.ids[slot] / s.local_experts == rank;
        if ((c.special == quirk::SENDS_NOTHING && own) || (c.special == quirk::RECEIVES_NOTHING && to_rank))
            batch.ids[slot] = -1;
    }
    return batch;
}

/* ---- Running ---- */

/* What a call gives. */
struct results {
    std::vector<uint16_t> y;
    gradient_bits gradients;
};

results results_of(fused_group &group, const scenario &s, size_t forward) {
    return {group.all_y(forward), s.backward ? group.all_gradients(forward + 1) : gradient_bits()};
}

/* What one GPU gives for the tokens of all ranks. */
std::string on_one_gpu(const fused_layer &layer, const scenario &s, const fused_batch &batch, uint64_t seed,
                       results *found) {
    fused_batch joined = batch;
    joined.tokens = {batch.total()};
    group_options group;
    group.max_tokens = std::max<int64_t>(batch.total(), 1);
    group.chunks = 1;
    group.callers_x = true;
    group.narrow = s.group.narrow;
    sim::options machine;
    machine.seed = seed;
    machine.check_order = false;
    fused_group gpu(layer, group, machine);
    const size_t call = gpu.prepare(joined, 0xff);
    gpu.launch_all(call);
    if (s.backward)
        gpu.launch_all(gpu.prepare_backward(call, joined, 0xff));
    const std::string fault = gpu.finish();
    *found = results_of(gpu, s, call);
    return fault.empty() ? "" : "on one GPU: " + fault;
}

std::string compare_gradients(const gradient_bits &a, const gradient_bits &b) {
    for (size_t which = 0; which < a.size(); which++)
        if (a[which] != b[which])
            return "gradient " + std::to_string(which) + " has other bits than on one GPU";
    return "";
}

/* Bits of gradients that are added to, or that a rank leaves out, are not those of one GPU. */
std::string check_call(fused_group &group, const fused_layer &layer, const scenario &s, const fused_batch &batch,
                       size_t forward, uint64_t seed) {
    std::string wrong = group.check_good(forward, batch);
    if (wrong.empty() && s.backward)
        wrong = group.check_backward(forward + 1, batch, s.limit > 0 ? BOUND_AT_LIMIT : BOUND);
    if (!wrong.empty())
        return wrong;
    const results found = results_of(group, s, forward);
    const double error = relative_error(wide(found.y), oracle_of(layer, batch));
    if (!(error <= BOUND))
        return "the relative error of y is " + std::to_string(error);
    results of_one;
    const std::string fault = on_one_gpu(layer, s, batch, seed, &of_one);
    if (!fault.empty() || of_one.y != found.y)
        return fault.empty() ? "y has other bits than on one GPU" : fault;
    return s.group.accumulate || s.group.omit.size() > 1 ? "" : compare_gradients(found.gradients, of_one.gradients);
}

std::string check_pools(fused_group &group, const scenario &s, const fused_batch &batch, unsigned char poison) {
    if (s.backward)
        return group.check_unsent(batch, poison);
    const std::string kept = group.check_kept(batch);
    return kept.empty() ? group.check_combine(batch, poison) : kept;
}

std::string start(fused_group &group, const scenario &s, const fused_batch &batch, unsigned char poison) {
    const size_t forward = group.prepare(batch, poison);
    for (unsigned r = 0; r < s.group.world; r++)
        group.poison(r, poison);
    if (s.growing) {
        const std::string fault = group.launch_growing(forward);
        if (!fault.empty())
            return fault;
    } else {
        group.launch_all(forward);
    }
    if (!s.backward)
        return "";
    const size_t backward = group.prepare_backward(forward, batch, poison);
    for (unsigned r = 0; r < s.group.world; r++)
        group.poison_for_backward(r, poison);
    group.launch_all(backward);
    return "";
}

std::string run(const scenario &s, uint64_t seed, std::set<uint64_t> *schedules) {
    rig_random random = rig_seed(seed);
    const fused_layer layer = make_layer(s.hidden, s.intermediate, s.local_experts * s.group.world, s.top_k, s.exact,
                                         rig_next(&random), s.limit);
    sim::options machine;
    machine.seed = seed;
    machine.devices = s.group.world;
    machine.multiprocessors = s.multiprocessors;
    machine.resident = s.resident;
    machine.check_order = s.check_order;
    fused_group group(layer, s.group, machine);
    std::vector<fused_batch> batches;
    std::string fault;
    for (size_t call = 0; call < s.calls.size() && fault.empty(); call++) {
        const unsigned char poison = call % 2 == 0 ? 0xff : 0x7f;
        batches.push_back(draw_batch(layer, s, s.calls[call], &random));
        fault = start(group, s, batches[call], poison);
        const bool ends = !s.queued || call + 1 == s.calls.size();
        if (fault.empty() && ends)
            fault = group.finish();
        if (fault.empty() && ends)
            fault = check_pools(group, s, batches[call], poison);
    }
    for (size_t i = 0; i < batches.size() && fault.empty(); i++)
        fault = check_call(group, layer, s, batches[i], s.backward ? 2 * i : i, seed + 1);
    schedules->insert(group.machine().counters().trace);
    return fault;
}

std::string text_of(const scenario &s) {
    char text[200];
    std::snprintf(text, sizeof text, "W %u, H %lld, I %lld, El %lld, K %lld, %s data, %u multiprocessors, %s",
                  s.group.world, (long long)s.hidden, (long long)s.intermediate, (long long)s.local_experts,
                  (long long)s.top_k, s.exact ? "exact" : "random", s.multiprocessors,
                  !s.backward    ? "forwards"
                  : s.group.keep ? "backwards with rows kept"
                                 : "backwards with the plan kept");
    return text;
}

bool passes(const scenario &s, uint64_t seed, std::set<uint64_t> *schedules) {
    const std::string fault = run(s, seed, schedules);
    if (!fault.empty())
        std::printf("seed %llu, %s: %s\n", (unsigned long long)seed, text_of(s).c_str(), fault.c_str());
    return fault.empty();
}

} // namespace

int main(int count, char **arguments) {
    const uint64_t seeds = argument_or(count, arguments, 1, rig_small() ? 2 : 8);
    const uint64_t first = argument_or(count, arguments, 2, 1);
    std::set<uint64_t> schedules;
    unsigned failed = 0;
    /* A row in two pieces, the second one short; K of more than a warp's lanes; more blocks than the lag of the tasks.
     */
    failed += !passes(plain_scenario(2, 6, 2112, 64, 2, 2, RIG_DUPLICATES), 1, &schedules);
    failed += !passes(plain_scenario(2, 6, 64, 192, 2, 64, RIG_ONE_EXPERT), 2, &schedules);
    failed += !passes(plain_scenario(2, 24, 64, 64, 40, 8, RIG_UNIFORM), 3, &schedules);
    for (uint64_t seed = first; seed < first + seeds; seed++)
        failed += !passes(random_scenario(seed), seed, &schedules);
    std::printf("%zu schedules tried, two to four calls each: %u failed\n", schedules.size(), failed);
    return failed > 0;
}
