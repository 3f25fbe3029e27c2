/* A real kernel, the down product, on simulated GPUs under many schedules: right bits, the same ones each time, and how
 * long it takes.
 *
 *     sim_gemm [SEEDS] */
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "kernels/gemm_params.h"
#include "kernels/isa.cuh"
#include "kernels/tile.cuh"
#include "seeds.h"
#include "sim/sim.h"

extern "C" void mm_down(const down_params &p);

namespace {

const uint32_t HIDDEN = 320, INTERMEDIATE = 192, EXPERTS = 3, BLOCKS[EXPERTS] = {2, 0, 3}, ROWS = 5 * 128;

uint16_t to_bf16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Small integers, so that fp32 sums are exact. */
float element(uint32_t a, uint32_t b) {
    return (float)(int)((a * 7919 + b * 104729 + a * b) % 7) - 3;
}

struct tensors {
    std::vector<uint16_t> h, weights, y;
    std::vector<float> row_weight;
};

tensors make_tensors() {
    tensors t;
    for (uint32_t r = 0; r < ROWS; r++)
        for (uint32_t i = 0; i < INTERMEDIATE; i++)
            t.h.push_back(to_bf16(element(r, i)));
    for (uint32_t e = 0; e < EXPERTS; e++)
        for (uint32_t o = 0; o < HIDDEN; o++)
            for (uint32_t i = 0; i < INTERMEDIATE; i++)
                t.weights.push_back(to_bf16(element(1000 * e + o, 77 + i)));
    for (uint32_t r = 0; r < ROWS; r++)
        t.row_weight.push_back(0.25f * (float)(r % 9));
    uint32_t row = 0;
    for (uint32_t e = 0; e < EXPERTS; e++) {
        for (uint32_t r = 0; r < BLOCKS[e] * 128; r++, row++) {
            for (uint32_t o = 0; o < HIDDEN; o++) {
                float sum = 0;
                for (uint32_t i = 0; i < INTERMEDIATE; i++)
                    sum += element(row, i) * element(1000 * e + o, 77 + i);
                t.y.push_back(to_bf16(sum * t.row_weight[row]));
            }
        }
    }
    return t;
}

template <typename type> type *put(sim::machine &gpus, int device, const std::vector<type> &from) {
    type *to = (type *)gpus.allocate(device, from.size() * sizeof(type));
    gpus.write(to, from.data(), from.size() * sizeof(type));
    return to;
}

tensor_map map_of(void *base, std::vector<uint64_t> size, std::vector<uint32_t> box) {
    tensor_map_desc desc = {};
    desc.base = base;
    desc.dims = (uint32_t)size.size();
    desc.element = TENSOR_BF16;
    desc.swizzle = TENSOR_SWIZZLE_128B;
    uint64_t stride = 2;
    for (size_t i = 0; i < size.size(); i++) {
        desc.size[i] = size[i];
        desc.box[i] = box[i];
        if (i > 0)
            desc.stride[i - 1] = stride;
        stride *= size[i];
    }
    tensor_map map;
    std::string why;
    if (!sim::encode_tensor_map(desc, &map, &why)) {
        std::printf("a map is refused: %s\n", why.c_str());
        std::exit(1);
    }
    return map;
}

/* On every device, all at once. */
std::string run(const tensors &t, uint64_t seed, unsigned devices, unsigned grid, struct sim::counters *counters) {
    sim::options options;
    options.seed = seed;
    options.devices = devices;
    options.multiprocessors = 4;
    sim::machine gpus(options);
    std::vector<uint16_t *> y;
    for (unsigned d = 0; d < devices; d++) {
        y.push_back((uint16_t *)gpus.allocate((int)d, t.y.size() * 2));
        down_params p = {};
        p.h = map_of(put(gpus, (int)d, t.h), {INTERMEDIATE, ROWS}, {64, 64});
        p.down.whole = map_of(put(gpus, (int)d, t.weights), {INTERMEDIATE, HIDDEN, EXPERTS}, {64, 128, 1});
        p.y = map_of(y[d], {HIDDEN, ROWS}, {64, 16});
        p.row_weight = put(gpus, (int)d, t.row_weight);
        p.segments.first_row = put(gpus, (int)d, std::vector<int32_t>{0, 256, 256, 640});
        p.segments.used_rows = put(gpus, (int)d, std::vector<int32_t>{256, 0, 384});
        p.segments.experts = EXPERTS;
        p.hidden = HIDDEN;
        p.intermediate = INTERMEDIATE;
        gpus.launch(gpus.default_stream(d),
                    sim::launch_of(mm_down, "mm_down", p, grid, CTA_THREADS, GEMM_SMEM_BYTES, 2));
    }
    if (!gpus.finish())
        return sim::describe(gpus.reports().front());
    for (unsigned d = 0; d < devices; d++) {
        std::vector<uint16_t> got(t.y.size());
        gpus.read(got.data(), y[d], got.size() * 2);
        for (size_t i = 0; i < got.size(); i++)
            if (got[i] != t.y[i])
                return "device " + std::to_string(d) + ": element " + std::to_string(i) + " is " +
                       std::to_string(got[i]) + ", expected " + std::to_string(t.y[i]);
    }
    *counters = gpus.counters();
    return "";
}

} // namespace

/* The size of machine that a layer's tests simulate. */
bool on_eight_devices(const tensors &t) {
    struct sim::counters c;
    const auto start = std::chrono::steady_clock::now();
    const std::string wrong = run(t, 8, 8, 4, &c);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::printf("8 devices: %.2f s%s%s\n", seconds, wrong.empty() ? "" : ": ", wrong.c_str());
    return wrong.empty();
}

int main(int count, char **arguments) {
    const uint64_t seeds = argument_or(count, arguments, 1, 12);
    const tensors t = make_tensors();
    std::set<uint64_t> schedules;
    unsigned failed = 0;
    const auto start = std::chrono::steady_clock::now();
    struct sim::counters all, c;
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        const std::string wrong = run(t, seed, 1 + seed % 2, 2 + 2 * (seed % 3), &c);
        if (!wrong.empty()) {
            std::printf("seed %llu: %s\n", (unsigned long long)seed, wrong.c_str());
            failed++;
        }
        schedules.insert(c.trace);
        all.switches += c.switches;
        all.products += c.products;
        all.accesses += c.accesses;
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::printf("%zu schedules tried in %.2f s: %.1f million switches, %.1f million checked granules, %llu products a "
                "second\n",
                schedules.size(), seconds, (double)all.switches / seconds * 1e-6, (double)all.accesses / seconds * 1e-6,
                (unsigned long long)((double)all.products / seconds));
    failed += !on_eight_devices(t);
    return failed > 0;
}
