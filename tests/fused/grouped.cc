/* Forwards with a grouped combine, some with their backwards, on 1 to 8 simulated GPUs: y against the float64 oracle,
 * exactly where the data are small integers, and bit for bit against the definition: one GPU sums the slots on each
 * rank's experts by themselves, and the host sums these in rank order. Gradients are those of an exact combine.
 *
 *     fused_grouped [SCHEDULES [FIRST_SEED]] */
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "group.h"
#include "kernels/tile_shape.h"
#include "sim/seeds.h"

namespace {

const double BOUND = 6e-3; /* of the relative error: besides a row and y, the sums of ranks are rounded */

struct scenario {
    unsigned world, multiprocessors;
    int64_t hidden, intermediate, local_experts, top_k;
    rig_routing routing;
    bool exact, backward, growing;
    bool cancels; /* results that are large and cancel show in which order they are added */
};

scenario random_scenario(uint64_t seed, rig_random *random) {
    static const unsigned worlds[] = {2, 4, 2, 8}, multiprocessors[] = {1, 2, 4};
    static const int64_t sizes[] = {64, 192, 320, 576}, top_k[] = {2, 4, 8};
    scenario s = {};
    s.world = worlds[seed % 4];
    s.backward = seed % 2 == 0;
    s.growing = rig_below(random, 2) == 0;
    s.multiprocessors = s.backward ? CLUSTER_CTAS : multiprocessors[rig_below(random, 3)];
    s.hidden = sizes[rig_below(random, 4)];
    s.intermediate = sizes[rig_below(random, 2)];
    s.local_experts = 1 + rig_below(random, 4);
    s.top_k = top_k[rig_below(random, 3)];
    s.routing = (rig_routing)rig_below(random, RIG_HOLES + 1);
    s.exact = rig_below(random, 2) == 0;
    return s;
}

group_options options_of(const scenario &s, rig_random *random) {
    group_options g;
    g.grouped = true;
    g.world = s.world;
    g.max_tokens = 1 + rig_below(random, s.world == 8 ? 8 : 24);
    g.row_room = s.growing ? PLAN_ROW_BLOCK : 0;
    g.keep = rig_below(random, 2) == 0;
    g.callers_x = rig_below(random, 2) == 0;
    g.programmatic = rig_below(random, 2) == 0;
    g.layout = (y_layout)rig_below(random, 4);
    g.counted = rig_below(random, 2) == 0 ? 0 : 0u - (uint32_t)rig_below(random, 600); /* about to wrap */
    g.ctas = {1 + (unsigned)rig_below(random, 5), 1 + (unsigned)rig_below(random, 5)};
    return g;
}

/* ---- The definition ---- */

struct results {
    std::vector<uint16_t> y;
    gradient_bits gradients;
};

/* What one GPU gives for the tokens of all ranks and the slots on the experts `first` .. `first` + `count` - 1. */
results on_one_gpu(const fused_layer &layer, const fused_batch &batch, int64_t first, int64_t count, bool backward) {
    fused_batch joined = batch;
    joined.tokens = {batch.total()};
    for (int64_t &id : joined.ids)
        id = id >= first && id < first + count ? id : -1;
    group_options group;
    group.max_tokens = std::max<int64_t>(batch.total(), 1);
    group.callers_x = true;
    sim::options machine;
    machine.check_order = false;
    fused_group gpu(layer, group, machine);
    const size_t call = gpu.prepare(joined);
    gpu.launch_all(call);
    if (backward)
        gpu.launch_all(gpu.prepare_backward(call, joined));
    const std::string fault = gpu.finish();
    if (!fault.empty())
        return {{}, {}};
    return {gpu.all_y(call), backward ? gpu.all_gradients(call + 1) : gradient_bits()};
}

std::vector<uint16_t> defined_y(const fused_layer &layer, const fused_batch &batch, unsigned world) {
    const int64_t local_experts = layer.experts / world;
    std::vector<float> sums((size_t)(batch.total() * layer.hidden));
    for (unsigned r = 0; r < world; r++) {
        const results part = on_one_gpu(layer, batch, r * local_experts, local_experts, false);
        for (size_t i = 0; i < sums.size(); i++)
            sums[i] += (float)from_bf16(part.y.at(i));
    }
    std::vector<uint16_t> y;
    for (const float sum : sums)
        y.push_back(to_bf16(sum));
    return y;
}

/* ---- Running ---- */

/* A slot's result is then its token's one result times the weight. */
void make_experts_alike(fused_layer &layer) {
    for (std::vector<uint16_t> *weight : {&layer.gate, &layer.up, &layer.down}) {
        const size_t expert = weight->size() / (size_t)layer.experts;
        for (size_t i = expert; i < weight->size(); i++)
            (*weight)[i] = (*weight)[i - expert];
    }
}

void make_weights_cancel(fused_batch &batch, rig_random *random) {
    for (float &weight : batch.weights) {
        const int64_t kind = rig_below(random, 4);
        weight = kind == 0 ? 0x1p30f : kind == 1 ? -0x1p30f : (float)(1 + rig_below(random, 5));
    }
}

std::string check_call(fused_group &group, const fused_layer &layer, const scenario &s, const fused_batch &batch,
                       size_t forward) {
    std::string wrong = group.check_good(forward, batch);
    if (wrong.empty() && s.backward)
        wrong = group.check_backward(forward + 1, batch, BOUND);
    if (!wrong.empty())
        return wrong;
    const std::vector<uint16_t> y = group.all_y(forward);
    const double error = s.cancels ? 0 : relative_error(wide(y), oracle_of(layer, batch));
    if (!(error <= BOUND))
        return "the relative error of y is " + std::to_string(error);
    if (y != defined_y(layer, batch, s.world))
        return "y has other bits than the definition";
    if (s.backward && group.all_gradients(forward + 1) != on_one_gpu(layer, batch, 0, layer.experts, true).gradients)
        return "gradients have other bits than on one GPU";
    return "";
}

std::string start(fused_group &group, const scenario &s, const fused_batch &batch, unsigned char poison) {
    const size_t forward = group.prepare(batch, poison);
    for (unsigned r = 0; r < s.world; r++)
        group.poison(r, poison);
    std::string fault;
    if (s.growing)
        fault = group.launch_growing(forward);
    else
        group.launch_all(forward);
    if (fault.empty())
        fault = group.finish();
    if (fault.empty())
        fault = group.check_combine(batch, poison);
    if (!fault.empty() || !s.backward)
        return fault;
    group.launch_all(group.prepare_backward(forward, batch, poison));
    return group.finish();
}

/* Two calls, each with its backward if there is one. */
std::string run(const scenario &s, const group_options &options, uint64_t seed, rig_random *random) {
    fused_layer layer =
        make_layer(s.hidden, s.intermediate, s.local_experts * s.world, s.top_k, s.exact, rig_next(random));
    if (s.cancels)
        make_experts_alike(layer);
    sim::options machine;
    machine.seed = seed;
    machine.devices = s.world;
    machine.multiprocessors = s.multiprocessors;
    machine.check_order = seed % 2 == 0;
    fused_group group(layer, options, machine);
    std::vector<fused_batch> batches;
    std::string fault;
    for (int call = 0; call < 2 && fault.empty(); call++) {
        std::vector<int64_t> tokens;
        for (unsigned r = 0; r < s.world; r++)
            tokens.push_back(rig_below(random, 5) == 0 ? 0 : rig_below(random, options.max_tokens + 1));
        batches.push_back(make_batch(layer, tokens, s.routing, rig_next(random)));
        if (s.cancels)
            make_weights_cancel(batches.back(), random);
        fault = start(group, s, batches.back(), call == 0 ? 0xff : 0x7f);
    }
    for (size_t i = 0; i < batches.size() && fault.empty(); i++)
        fault = check_call(group, layer, s, batches[i], s.backward ? 2 * i : i);
    return fault;
}

bool passes(const scenario &s, const group_options &options, uint64_t seed, rig_random *random) {
    const std::string fault = run(s, options, seed, random);
    if (!fault.empty())
        std::printf("seed %llu, W %u, H %lld, I %lld, El %lld, K %lld, %s data: %s\n", (unsigned long long)seed,
                    s.world, (long long)s.hidden, (long long)s.intermediate, (long long)s.local_experts,
                    (long long)s.top_k, s.exact ? "exact" : "random", fault.c_str());
    return fault.empty();
}

/* More slots than lanes; rows of many columns; the orders of slots and of ranks; a rank by itself; more ranks than
 * lanes, which takes long. */
bool extremes_pass(bool small) {
    const scenario slots = {2, 2, 64, 64, 1, 64, RIG_DUPLICATES, false, false, false, false};
    const scenario columns = {2, 4, 2112, 64, 2, 3, RIG_DUPLICATES, false, false, false, false};
    const scenario order = {2, 2, 64, 64, 1, 6, RIG_DUPLICATES, false, false, false, true};
    const scenario ranks = {4, 2, 64, 64, 2, 8, RIG_UNIFORM, false, false, false, true};
    const scenario alone = {1, 1, 64, 64, 2, 2, RIG_UNIFORM, false, false, false, false};
    bool good = true;
    std::vector<scenario> all = {slots, columns, order, ranks, alone};
    if (!small)
        all.push_back({34, 1, 64, 64, 1, 6, RIG_UNIFORM, false, false, false, true});
    for (const scenario &s : all) {
        rig_random random = rig_seed((uint64_t)s.hidden);
        group_options options;
        options.grouped = true;
        options.world = s.world;
        options.max_tokens = s.world > 32 ? 2 : s.cancels ? 20 : 6;
        options.ctas = {3};
        good = passes(s, options, (uint64_t)s.hidden + (s.world > 32), &random) && good;
    }
    return good;
}

} // namespace

int main(int count, char **arguments) {
    const bool small = rig_small();
    const uint64_t seeds = argument_or(count, arguments, 1, small ? 4 : 8);
    const uint64_t first = argument_or(count, arguments, 2, 1);
    unsigned failed = !extremes_pass(small);
    for (uint64_t seed = first; seed < first + seeds; seed++) {
        rig_random random = rig_seed(seed);
        const scenario s = random_scenario(seed, &random);
        const group_options options = options_of(s, &random);
        failed += !passes(s, options, seed, &random);
    }
    std::printf("%llu random layers, two calls each: %u failed\n", (unsigned long long)seeds, failed);
    return failed > 0;
}
