/* Ids and weights on their way to the slots of all ranks, in the simulator: what arrives, and which fault is found. */
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "kernels/plan_params.h"
#include "rig/random.h"
#include "sim/sim.h"

extern "C" void mm_ids_in(const ids_in_params &p);

namespace {

const unsigned char POISON = 0x4b;
const size_t GUARD = 16; /* elements on both sides of an output */

/* A matrix as a caller may hold it: any strides, in a block of memory that has bytes before and after it. */
template <class type> struct matrix {
    std::vector<type> memory;
    int64_t first = 0, stride[2] = {};

    /* Each of the ways that strides can be. */
    matrix(rig_random *random, int64_t rows, int64_t cols) {
        const int64_t gap = 1 + rig_below(random, 3);
        switch (rig_below(random, 4)) {
        case 0: /* contiguous */
            stride[0] = cols, stride[1] = 1;
            break;
        case 1: /* with gaps */
            stride[0] = cols * gap + 2, stride[1] = gap;
            break;
        case 2: /* transposed */
            stride[0] = 1, stride[1] = rows;
            break;
        default: /* backwards */
            stride[0] = -cols, stride[1] = 1;
        }
        const int64_t reach = std::abs(stride[0]) * rows + stride[1] * cols + 1;
        memory.assign((size_t)reach, type());
        first = stride[0] < 0 ? -stride[0] * (rows - (rows > 0)) : 0;
    }
    type &at(int64_t row, int64_t col) { return memory[(size_t)(first + row * stride[0] + col * stride[1])]; }
};

struct input {
    int64_t tokens, top_k, experts;
    bool wide, check_weights;
    matrix<int64_t> ids;
    matrix<float> weights;

    explicit input(rig_random *random)
        : tokens(rig_below(random, 5) == 0 ? 0 : rig_below(random, 400)), top_k(1 + rig_below(random, 8)),
          experts(1 + rig_below(random, 64)), wide(rig_below(random, 2) == 0), check_weights(rig_below(random, 3) > 0),
          ids(random, tokens, top_k), weights(random, tokens, top_k) {
        for (int64_t t = 0; t < tokens; t++)
            for (int64_t k = 0; k < top_k; k++) {
                ids.at(t, k) = rig_below(random, experts + 1) - 1;
                weights.at(t, k) = (float)rig_normal(random);
            }
        for (int64_t faults = rig_below(random, 4); tokens > 0 && faults > 0; faults--)
            plant(random);
    }

    /* A bad id, also one that is good when it is cut to 32 bits; or a bad weight, perhaps of a slot not used. */
    void plant(rig_random *random) {
        const int64_t narrow[] = {-2, experts, std::numeric_limits<int32_t>::min(),
                                  std::numeric_limits<int32_t>::max()};
        const int64_t more[] = {(1ll << 32) + experts - 1, -(1ll << 32), std::numeric_limits<int64_t>::min(),
                                std::numeric_limits<int64_t>::max()};
        const float weight[] = {INFINITY, -INFINITY, NAN, -NAN};
        const int64_t t = rig_below(random, tokens), k = rig_below(random, top_k), which = rig_below(random, 4);
        if (rig_below(random, 2) == 0)
            weights.at(t, k) = weight[which];
        else
            ids.at(t, k) = wide && rig_below(random, 2) == 0 ? more[which] : narrow[which];
    }

    ids_fault first_fault() {
        for (int64_t t = 0; t < tokens; t++)
            for (int64_t k = 0; k < top_k; k++) {
                const bool bad_id = ids.at(t, k) < -1 || ids.at(t, k) >= experts;
                const bool bad_weight = check_weights && ids.at(t, k) >= 0 && !std::isfinite(weights.at(t, k));
                if (!bad_id && !bad_weight)
                    continue;
                ids_fault fault = {bad_id ? (uint32_t)IDS_BAD_ID : (uint32_t)IDS_BAD_WEIGHT, (uint32_t)t, (uint32_t)k,
                                   0, ids.at(t, k)};
                std::memcpy(&fault.weight, &weights.at(t, k), sizeof fault.weight);
                return fault;
            }
        return {};
    }
};

template <class type> type *upload(sim::machine &gpus, const std::vector<type> &from) {
    type *to = (type *)gpus.allocate(0, from.size() * sizeof(type) + 1);
    gpus.write(to, from.data(), from.size() * sizeof(type));
    return to;
}

/* Whether `out` on a rank holds these elements, and poison around them. */
template <class type>
bool arrived(sim::machine &gpus, const type *out, size_t room, const std::vector<type> &expected) {
    std::vector<type> slots(room + 2 * GUARD), wanted(room + 2 * GUARD);
    gpus.read(slots.data(), out, slots.size() * sizeof(type));
    std::memset(wanted.data(), POISON, wanted.size() * sizeof(type));
    for (size_t i = 0; i < expected.size(); i++)
        wanted[GUARD + i] = expected[i];
    return std::memcmp(slots.data(), wanted.data(), wanted.size() * sizeof(type)) == 0;
}

/* Three calls with other inputs and no host between them that would reset a counter. */
class ranks {
  public:
    ranks(uint64_t seed, unsigned count) : gpus(options_of(seed, count)), world(count) {
        for (unsigned r = 0; r < world; r++) {
            ids_out[r] = (int32_t *)gpus.allocate((int)r, (ROOM + 2 * GUARD) * sizeof(int32_t));
            weights_out[r] = (float *)gpus.allocate((int)r, (ROOM + 2 * GUARD) * sizeof(float));
        }
        ctas_done = (uint32_t *)gpus.allocate(0, sizeof *ctas_done);
        first_faults = (uint32_t *)gpus.allocate(0, MOST_CTAS * sizeof *first_faults);
        fault = (ids_fault *)gpus.allocate(0, sizeof *fault);
        gpus.fill(ctas_done, 0, sizeof *ctas_done);
    }

    std::string call(input &in, unsigned ctas) {
        ids_in_params p = {};
        const std::vector<int32_t> narrow(in.ids.memory.begin(), in.ids.memory.end());
        p.ids.data = in.wide ? (void *)(upload(gpus, in.ids.memory) + in.ids.first)
                             : (void *)(upload(gpus, narrow) + in.ids.first);
        p.weights.data = upload(gpus, in.weights.memory) + in.weights.first;
        std::memcpy(p.ids.stride, in.ids.stride, sizeof p.ids.stride);
        std::memcpy(p.weights.stride, in.weights.stride, sizeof p.weights.stride);
        p.wide = in.wide;
        p.tokens = (uint32_t)in.tokens;
        p.top_k = (uint32_t)in.top_k;
        p.experts = (uint32_t)in.experts;
        p.check_weights = in.check_weights;
        p.world = world;
        p.first_faults = first_faults;
        p.ctas_done = ctas_done;
        p.fault = fault;
        for (unsigned r = 0; r < world; r++) {
            p.ids_out[r] = ids_out[r] + GUARD;
            p.weights_out[r] = weights_out[r] + GUARD;
            gpus.fill(ids_out[r], POISON, (ROOM + 2 * GUARD) * sizeof(int32_t));
            gpus.fill(weights_out[r], POISON, (ROOM + 2 * GUARD) * sizeof(float));
        }
        gpus.fill(fault, POISON, sizeof *fault);
        gpus.launch(gpus.default_stream(0),
                    sim::launch_of(mm_ids_in, "mm_ids_in", p, ctas, IDS_IN_THREADS, IDS_IN_SHARED_BYTES));
        if (!gpus.finish())
            return sim::describe(gpus.reports().front());
        return compare(in);
    }

    static constexpr unsigned FEW_CTAS = 6, MOST_CTAS = 40; /* more than a warp has lanes */

  private:
    static constexpr size_t ROOM = 400 * 8;

    static sim::options options_of(uint64_t seed, unsigned devices) {
        sim::options options;
        options.seed = seed;
        options.devices = devices;
        return options;
    }

    std::string compare(input &in) {
        std::vector<int32_t> ids;
        std::vector<float> weights;
        for (int64_t t = 0; t < in.tokens; t++)
            for (int64_t k = 0; k < in.top_k; k++) {
                ids.push_back((int32_t)in.ids.at(t, k));
                weights.push_back(in.weights.at(t, k));
            }
        for (unsigned r = 0; r < world; r++)
            if (!arrived(gpus, ids_out[r], ROOM, ids) || !arrived(gpus, weights_out[r], ROOM, weights))
                return "the slot of rank " + std::to_string(r) + " differs";
        const ids_fault expected = in.first_fault();
        ids_fault found;
        gpus.read(&found, fault, sizeof found);
        if (found.kind != expected.kind ||
            (found.kind != IDS_GOOD && std::memcmp(&found, &expected, sizeof found) != 0))
            return "found fault " + text(found) + ", expected " + text(expected);
        return "";
    }

    static std::string text(const ids_fault &fault) {
        return std::to_string(fault.kind) + " at token " + std::to_string(fault.token) + ", slot " +
               std::to_string(fault.slot) + ", id " + std::to_string(fault.id);
    }

    sim::machine gpus;
    unsigned world;
    int32_t *ids_out[PLAN_MAX_WORLD];
    float *weights_out[PLAN_MAX_WORLD];
    uint32_t *ctas_done, *first_faults;
    ids_fault *fault;
};

std::string three_calls(uint64_t seed) {
    rig_random random = rig_seed(seed);
    ranks all(seed, 1 + (unsigned)rig_below(&random, 4));
    std::string fault;
    for (int i = 0; i < 3 && fault.empty(); i++) {
        input in(&random);
        const bool few = rig_below(&random, 8) > 0;
        fault = all.call(in, few ? 1 + (unsigned)rig_below(&random, ranks::FEW_CTAS) : ranks::MOST_CTAS);
    }
    return fault;
}

} // namespace

int main() {
    const char *scale = std::getenv("MMOE_TEST_SCALE");
    const uint64_t seeds = scale != nullptr && std::strcmp(scale, "small") == 0 ? 20 : 300;
    unsigned failed = 0;
    for (uint64_t seed = 0; seed < seeds; seed++) {
        const std::string fault = three_calls(seed);
        if (!fault.empty())
            std::printf("seed %llu: %s\n", (unsigned long long)seed, fault.c_str());
        failed += !fault.empty();
    }
    std::printf("%llu seeds, three calls each: %u failed\n", (unsigned long long)seeds, failed);
    return failed > 0;
}
