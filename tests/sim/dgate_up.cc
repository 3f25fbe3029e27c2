/* The product with the longest epilogue, dA with the gradient of SwiGLU, on a simulated GPU under many schedules:
 * against float64, with and without a limit, with tails of columns, odd numbers of row blocks and more clusters than
 * tiles; the same bits each time.
 *
 *     sim_dgate_up [SEEDS] */
#include <cmath>
#include <cstdio>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "fused/layer.h"
#include "fused/maps.h"
#include "kernels/gemm_params.h"
#include "kernels/isa.cuh"
#include "kernels/tile.cuh"
#include "seeds.h"
#include "sim/sim.h"

extern "C" void mm_dgate_up(const dgate_up_params &p);

namespace {

const double BOUND = 5.5e-3, BOUND_DW = 1e-4; /* relative errors: results in bf16; sums over them in fp32 */

struct shape {
    uint32_t hidden, intermediate;
    std::vector<int32_t> blocks; /* of each expert */
    float limit;                 /* 0: none */
    unsigned ctas;
};

const shape SHAPES[] = {
    {64, 64, {1}, 0, 2},
    {320, 256, {2, 0, 3}, 0, 4},
    {384, 576, {1, 3}, 0.5f, 2},
    {128, 832, {4, 1, 1}, 0, 8},
};

struct tensors {
    uint32_t rows;
    std::vector<uint16_t> dy, gate, up, down;
    std::vector<float> row_weight;
    std::vector<int32_t> first_row, used_rows;
};

std::vector<uint16_t> draw(size_t count, double scale, rig_random *random) {
    std::vector<uint16_t> values;
    for (size_t i = 0; i < count; i++)
        values.push_back(to_bf16(scale * (2 * rig_uniform(random) - 1)));
    return values;
}

tensors make_tensors(const shape &s) {
    tensors t = {};
    rig_random random = rig_seed(s.hidden + s.intermediate);
    for (int32_t blocks : s.blocks) {
        t.first_row.push_back((int32_t)t.rows);
        t.used_rows.push_back(blocks * TILE_ROWS);
        t.rows += (uint32_t)blocks * TILE_ROWS;
    }
    t.first_row.push_back((int32_t)t.rows);
    t.dy = draw((size_t)t.rows * s.hidden, 1, &random);
    t.gate = draw((size_t)t.rows * s.intermediate, 2, &random);
    t.up = draw((size_t)t.rows * s.intermediate, 1, &random);
    t.down = draw(s.blocks.size() * s.hidden * s.intermediate, 1 / std::sqrt(s.hidden), &random);
    for (uint32_t r = 0; r < t.rows; r++)
        t.row_weight.push_back((float)rig_uniform(&random));
    return t;
}

/* Of a call: [rows, I] each, and [tiles, rows]. */
struct results {
    std::vector<double> dgate, dup, weighted, dw;
};

double clipped(double value, double low, double high) {
    return value < low ? low : value > high ? high : value;
}

/* Adds one element's. */
void differentiate(const shape &s, const tensors &t, size_t row, size_t column, double da, results *out) {
    const size_t at = row * s.intermediate + column;
    const double limit = s.limit > 0 ? s.limit : INFINITY, w = t.row_weight[row];
    const double g_kept = from_bf16(t.gate[at]), u_kept = from_bf16(t.up[at]);
    const double g = clipped(g_kept, -INFINITY, limit), u = clipped(u_kept, -limit, limit);
    const double sigmoid = 1 / (1 + std::exp(-g)), h = from_bf16(to_bf16(g * sigmoid * u));
    out->dgate[at] = g_kept > limit ? 0 : w * da * u * sigmoid * (1 + g * (1 - sigmoid));
    out->dup[at] = std::fabs(u_kept) > limit ? 0 : w * da * g * sigmoid;
    out->weighted[at] = w * h;
    out->dw[column / TILE_COLUMNS * t.rows + row] += da * h;
}

results expect(const shape &s, const tensors &t) {
    const size_t elements = (size_t)t.rows * s.intermediate;
    results all = {std::vector<double>(elements), std::vector<double>(elements), std::vector<double>(elements),
                   std::vector<double>((size_t)t.rows * TILES_OF(s.intermediate))};
    for (size_t expert = 0; expert < s.blocks.size(); expert++)
        for (size_t row = (size_t)t.first_row[expert]; row < (size_t)t.first_row[expert + 1]; row++)
            for (size_t column = 0; column < s.intermediate; column++) {
                double da = 0;
                for (size_t k = 0; k < s.hidden; k++)
                    da += from_bf16(t.dy[row * s.hidden + k]) *
                          from_bf16(t.down[(expert * s.hidden + k) * s.intermediate + column]);
                differentiate(s, t, row, column, da, &all);
            }
    return all;
}

template <typename type> type *put(sim::machine &gpu, const std::vector<type> &from) {
    type *to = (type *)gpu.allocate(0, from.size() * sizeof(type));
    gpu.write(to, from.data(), from.size() * sizeof(type));
    return to;
}

tensor_map rows_map(const void *pool, uint64_t rows, uint64_t columns, uint64_t pitch, uint32_t box_rows) {
    return map_of(pool, TENSOR_BF16, {columns, rows}, {pitch}, {64, box_rows});
}

/* What the kernel writes. */
struct outputs {
    uint16_t *dgrad, *weighted; /* dg beside du, [rows, 2I]; [rows, I] */
    float *dw;
};

dgate_up_params params_of(sim::machine &gpu, const shape &s, const tensors &t, const outputs &out) {
    const uint64_t hidden = s.hidden, inner = s.intermediate, experts = s.blocks.size();
    dgate_up_params p = {};
    p.dy = rows_map(put(gpu, t.dy), t.rows, hidden, hidden, 64);
    p.down.whole = map_of(put(gpu, t.down), TENSOR_BF16, {64, hidden, inner / 64, experts}, {inner, 64, hidden * inner},
                          {64, 64, 2, 1});
    p.gate = rows_map(put(gpu, t.gate), t.rows, inner, inner, TILE_ROWS);
    p.up = rows_map(put(gpu, t.up), t.rows, inner, inner, TILE_ROWS);
    p.dgate = rows_map(out.dgrad, t.rows, inner, 2 * inner, TILE_ROWS);
    p.dup = rows_map(out.dgrad + inner, t.rows, inner, 2 * inner, TILE_ROWS);
    p.h_weighted = rows_map(out.weighted, t.rows, inner, inner, TILE_ROWS);
    p.weighted = out.weighted;
    p.row_weight = put(gpu, t.row_weight);
    p.dw_parts = out.dw;
    p.padded_rows = t.rows;
    p.segments.first_row = put(gpu, t.first_row);
    p.segments.used_rows = put(gpu, t.used_rows);
    p.segments.experts = (uint32_t)experts;
    p.hidden = s.hidden;
    p.intermediate = s.intermediate;
    p.clamp = s.limit > 0;
    p.limit = s.limit;
    return p;
}

/* "": ran without a fault. */
std::string run(const shape &s, const tensors &t, uint64_t seed, results *found, uint64_t *trace) {
    sim::options options;
    options.seed = seed;
    options.multiprocessors = 4;
    sim::machine gpu(options);
    const size_t elements = (size_t)t.rows * s.intermediate, sums = (size_t)t.rows * TILES_OF(s.intermediate);
    const outputs out = {(uint16_t *)gpu.allocate(0, 4 * elements), (uint16_t *)gpu.allocate(0, 2 * elements),
                         (float *)gpu.allocate(0, 4 * sums)};
    gpu.fill(out.dgrad, 0xff, 4 * elements);
    gpu.fill(out.weighted, 0xff, 2 * elements);
    gpu.fill(out.dw, 0xff, 4 * sums);
    gpu.launch(gpu.default_stream(0), sim::launch_of(mm_dgate_up, "mm_dgate_up", params_of(gpu, s, t, out), s.ctas,
                                                     CTA_THREADS, GEMM_SMEM_BYTES, CLUSTER_CTAS));
    if (!gpu.finish())
        return sim::describe(gpu.reports().front());
    std::vector<uint16_t> dgrad(2 * elements), weighted(elements);
    std::vector<float> dw(sums);
    gpu.read(dgrad.data(), out.dgrad, 4 * elements);
    gpu.read(weighted.data(), out.weighted, 2 * elements);
    gpu.read(dw.data(), out.dw, 4 * sums);
    *found = {{}, {}, wide(weighted), {dw.begin(), dw.end()}};
    for (size_t i = 0; i < 2 * elements; i++)
        (i / s.intermediate % 2 == 0 ? found->dgate : found->dup).push_back(from_bf16(dgrad[i]));
    *trace = gpu.counters().trace;
    return "";
}

std::string check(const results &found, const results &expected) {
    const struct {
        const char *name;
        double error, bound;
    } all[] = {{"dgate", relative_error(found.dgate, expected.dgate), BOUND},
               {"dup", relative_error(found.dup, expected.dup), BOUND},
               {"w*h", relative_error(found.weighted, expected.weighted), BOUND},
               {"dw", relative_error(found.dw, expected.dw), BOUND_DW}};
    for (const auto &one : all)
        if (!(one.error <= one.bound))
            return std::string(one.name) + " has a relative error of " + std::to_string(one.error);
    return "";
}

} // namespace

int main(int count, char **arguments) {
    const uint64_t seeds = argument_or(count, arguments, 1, rig_small() ? 2 : 4);
    std::set<uint64_t> schedules;
    unsigned failed = 0;
    for (const shape &s : SHAPES) {
        const tensors t = make_tensors(s);
        const results expected = expect(s, t);
        results first;
        for (uint64_t seed = 1; seed <= seeds; seed++) {
            results found;
            uint64_t trace = 0;
            std::string wrong = run(s, t, seed, &found, &trace);
            schedules.insert(trace);
            if (wrong.empty())
                wrong = check(found, expected);
            if (seed == 1)
                first = found;
            else if (wrong.empty() && (found.dgate != first.dgate || found.dup != first.dup ||
                                       found.weighted != first.weighted || found.dw != first.dw))
                wrong = "other bits than with seed 1";
            if (!wrong.empty())
                std::printf("H %u, I %u, seed %llu: %s\n", s.hidden, s.intermediate, (unsigned long long)seed,
                            wrong.c_str());
            failed += !wrong.empty();
        }
    }
    std::printf("%zu schedules tried: %u failed\n", schedules.size(), failed);
    return failed > 0;
}
