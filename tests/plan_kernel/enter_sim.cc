/* What a rank brings to a call, in the simulator: ids and weights in the slots of all ranks, tokens in its own, the
 * header with the fault that was found, and ready. */
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "kernels/enter_params.h"
#include "rig/random.h"
#include "sim/seeds.h"
#include "sim/sim.h"

extern "C" void mm_call_copy(const copy_params &p);
extern "C" void mm_call_enter(const enter_params &p);

namespace {

const unsigned char POISON = 0x4b;
const size_t GUARD = 64; /* bytes on both sides of an output */

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

const int64_t MOST_TOKENS = 400, MOST_SLOTS = 8, MOST_HIDDEN = 8 * 40;

struct input {
    int64_t tokens, top_k, experts, hidden;
    bool wide, check_weights, copy_x;
    matrix<int64_t> ids;
    matrix<float> weights;
    matrix<uint16_t> x;
    call_header header = {};

    explicit input(rig_random *random)
        : tokens(rig_below(random, 5) == 0 ? 0 : rig_below(random, MOST_TOKENS)),
          top_k(1 + rig_below(random, MOST_SLOTS)), experts(1 + rig_below(random, 64)),
          hidden(8 * (1 + rig_below(random, MOST_HIDDEN / 8))), wide(rig_below(random, 2) == 0),
          check_weights(rig_below(random, 3) > 0), copy_x(rig_below(random, 3) > 0), ids(random, tokens, top_k),
          weights(random, tokens, top_k), x(random, tokens, hidden) {
        for (uint16_t &element : x.memory)
            element = (uint16_t)rig_next(random);
        for (uint32_t &word : header.agreed)
            word = (uint32_t)rig_next(random);
        header.tokens = (int32_t)tokens;
        header.status = (int32_t)rig_below(random, 2);
        std::snprintf(header.reason, sizeof header.reason, "reason %d", header.tokens);
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

/* Of its elements, perhaps narrowed, in other memory. */
template <class type, class from> strided_matrix view_of(const matrix<from> &m, void *memory) {
    return {(type *)memory + m.first, {m.stride[0], m.stride[1]}};
}

/* Elements row by row. */
template <class type, class from> std::vector<type> contiguous(matrix<from> &m, int64_t rows, int64_t cols) {
    std::vector<type> all;
    for (int64_t row = 0; row < rows; row++)
        for (int64_t col = 0; col < cols; col++)
            all.push_back((type)m.at(row, col));
    return all;
}

/* Three calls with other inputs and no host between them that would reset a counter. */
class ranks {
  public:
    ranks(uint64_t seed, unsigned count, unsigned own) : gpus(options_of(seed, count)), world(count), rank(own) {
        for (unsigned r = 0; r < world; r++) {
            segment[r] = (unsigned char *)gpus.allocate((int)r, SEGMENT_BYTES);
            gpus.fill(segment[r], 0, sizeof(call_control));
        }
        state = (call_state *)gpus.allocate((int)rank, sizeof *state);
        ctas_done = (uint32_t *)gpus.allocate((int)rank, sizeof *ctas_done);
        first_faults = (uint32_t *)gpus.allocate((int)rank, MOST_CTAS * sizeof *first_faults);
        gpus.fill(ctas_done, 0, sizeof *ctas_done);
        ctas_copied = (uint32_t *)gpus.allocate((int)rank, sizeof *ctas_copied);
        gpus.fill(ctas_copied, 0, sizeof *ctas_copied);
    }

    std::string call(input &in, unsigned ctas, uint32_t number) {
        enter_params p = {};
        const std::vector<int32_t> narrow(in.ids.memory.begin(), in.ids.memory.end());
        const call_state now = state_of(number);
        gpus.write(state, &now, sizeof now);
        p.group.world = world;
        p.group.rank = rank;
        p.group.state = state;
        std::copy(segment, segment + world, p.group.segment);
        p.header = in.header;
        p.ids = in.wide ? view_of<int64_t>(in.ids, upload(in.ids.memory)) : view_of<int32_t>(in.ids, upload(narrow));
        p.weights = view_of<float>(in.weights, upload(in.weights.memory));
        p.wide = in.wide;
        p.tokens = (uint32_t)in.tokens;
        p.top_k = (uint32_t)in.top_k;
        p.experts = (uint32_t)in.experts;
        p.check_weights = in.check_weights;
        p.ids_slot = IDS;
        p.weights_slot = WEIGHTS;
        p.first_faults = first_faults;
        p.ctas_done = ctas_done;
        for (unsigned r = 0; r < world; r++)
            gpus.fill(segment[r] + sizeof(call_control), POISON, SEGMENT_BYTES - sizeof(call_control));
        gpus.launch(gpus.default_stream(rank),
                    sim::launch_of(mm_call_enter, "mm_call_enter", p, ctas, ENTER_THREADS, ENTER_SHARED_BYTES));
        if (in.copy_x)
            copy(in, ctas, p.group);
        if (!gpus.finish())
            return sim::describe(gpus.reports().front());
        const std::string wrong = compare(in, number);
        copied_before = in.copy_x ? number : copied_before;
        return wrong;
    }

    void copy(input &in, unsigned ctas, const call_group &group) {
        copy_params p = {};
        p.group = group;
        p.copies[0] = {view_of<uint16_t>(in.x, upload(in.x.memory)), X};
        p.count = 1;
        p.tokens = (uint32_t)in.tokens;
        p.hidden = (uint32_t)in.hidden;
        p.ctas_done = ctas_copied;
        gpus.launch(gpus.default_stream(rank), sim::launch_of(mm_call_copy, "mm_call_copy", p, ctas, ENTER_THREADS, 0));
    }

    static constexpr unsigned FEW_CTAS = 6, MOST_CTAS = 40; /* more than a warp has lanes */

  private:
    static constexpr size_t IDS = sizeof(call_control) + GUARD;
    static constexpr size_t WEIGHTS = IDS + MOST_TOKENS * MOST_SLOTS * sizeof(int32_t) + GUARD;
    static constexpr size_t X = WEIGHTS + MOST_TOKENS * MOST_SLOTS * sizeof(float) + GUARD;
    static constexpr size_t SEGMENT_BYTES = X + MOST_TOKENS * MOST_HIDDEN * sizeof(uint16_t) + GUARD;

    static sim::options options_of(uint64_t seed, unsigned devices) {
        sim::options options;
        options.seed = seed;
        options.devices = devices;
        return options;
    }

    static call_state state_of(uint32_t number) {
        call_state now = {};
        now.call = now.result.call = number;
        now.opened = 1;
        return now;
    }

    template <class type> void *upload(const std::vector<type> &from) {
        void *to = gpus.allocate((int)rank, from.size() * sizeof(type) + 1);
        gpus.write(to, from.data(), from.size() * sizeof(type));
        return to;
    }

    /* Whether a rank's segment holds these, and poison everywhere else behind the control. */
    std::string compare_slots(input &in, unsigned r) {
        std::vector<unsigned char> got(SEGMENT_BYTES), expected(SEGMENT_BYTES, POISON);
        const auto put = [&](size_t at, const auto &values) {
            if (!values.empty())
                std::memcpy(&expected[at], values.data(), values.size() * sizeof values[0]);
        };
        put(IDS, contiguous<int32_t>(in.ids, in.tokens, in.top_k));
        put(WEIGHTS, contiguous<float>(in.weights, in.tokens, in.top_k));
        if (in.copy_x && r == rank)
            put(X, contiguous<uint16_t>(in.x, in.tokens, in.hidden));
        gpus.read(got.data(), segment[r], SEGMENT_BYTES);
        for (size_t i = sizeof(call_control); i < SEGMENT_BYTES; i++)
            if (got[i] != expected[i])
                return "byte " + std::to_string(i - IDS) + " behind the ids of rank " + std::to_string(r) + " differs";
        return "";
    }

    std::string compare_control(input &in, unsigned r, uint32_t number) {
        std::vector<unsigned char> bytes(sizeof(call_control));
        gpus.read(bytes.data(), segment[r], bytes.size());
        const call_control &control = *reinterpret_cast<const call_control *>(bytes.data());
        call_header header = control.header[rank];
        const ids_fault expected = in.first_fault(), found = header.fault;
        if (found.kind != expected.kind ||
            (found.kind != IDS_GOOD && std::memcmp(&found, &expected, sizeof found) != 0))
            return "found fault " + text(found) + ", expected " + text(expected);
        header.fault = in.header.fault;
        if (std::memcmp(&header, &in.header, sizeof header) != 0)
            return "the header for rank " + std::to_string(r) + " differs";
        for (unsigned from = 0; from < CALL_MAX_WORLD; from++)
            if (control.ready[from].value != (from == rank ? number : 0))
                return "ready of rank " + std::to_string(from) + " on rank " + std::to_string(r) + " is " +
                       std::to_string(control.ready[from].value);
        const uint32_t there = in.copy_x ? number : copied_before;
        if (control.tokens_there[rank].value != there)
            return "tokens of rank " + std::to_string(rank) + " are there in call " +
                   std::to_string(control.tokens_there[rank].value) + ", expected " + std::to_string(there);
        return "";
    }

    std::string compare(input &in, uint32_t number) {
        std::string wrong;
        for (unsigned r = 0; r < world && wrong.empty(); r++) {
            wrong = compare_slots(in, r);
            if (wrong.empty())
                wrong = compare_control(in, r, number);
        }
        return wrong;
    }

    static std::string text(const ids_fault &fault) {
        return std::to_string(fault.kind) + " at token " + std::to_string(fault.token) + ", slot " +
               std::to_string(fault.slot) + ", id " + std::to_string(fault.id);
    }

    sim::machine gpus;
    unsigned world, rank;
    unsigned char *segment[CALL_MAX_WORLD];
    call_state *state;
    uint32_t *ctas_done, *ctas_copied, *first_faults;
    uint32_t copied_before = 0; /* number of the last call that copied tokens */
};

std::string three_calls(uint64_t seed) {
    rig_random random = rig_seed(seed);
    const unsigned world = 1 + (unsigned)rig_below(&random, 4);
    ranks all(seed, world, (unsigned)rig_below(&random, world));
    std::string fault;
    for (uint32_t call = 1; call <= 3 && fault.empty(); call++) {
        input in(&random);
        const bool few = rig_below(&random, 8) > 0;
        fault = all.call(in, few ? 1 + (unsigned)rig_below(&random, ranks::FEW_CTAS) : ranks::MOST_CTAS, call);
    }
    return fault;
}

} // namespace

int main() {
    const uint64_t seeds = rig_small() ? 20 : 300;
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
