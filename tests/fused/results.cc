/* What the calls of a group leave; see group.h. */
#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "group.h"
#include "kernels/fused_shape.h"

namespace {

const int64_t GAP = 64, ODD_GAP = 3; /* elements between two rows of y */

} // namespace

/* ---- y ---- */

size_t fused_group::y_elements(const rank_call &call) const {
    return call.tokens * (size_t)(layer.hidden + GAP) + 1;
}

strided_matrix fused_group::y_matrix(const rank_call &call) const {
    switch (how.layout) {
    case y_layout::GAPS:
        return {call.y, {layer.hidden + GAP, 1}};
    case y_layout::ODD_GAPS:
        return {call.y + 1, {layer.hidden + ODD_GAP, 1}};
    case y_layout::COLUMNS:
        return {call.y, {1, call.tokens}};
    default:
        return {call.y, {layer.hidden, 1}};
    }
}

std::string fused_group::finish() {
    return gpus.finish() ? "" : sim::describe(gpus.reports().front());
}

call_told *fused_group::make_told(unsigned rank) {
    if (how.one_told && !calls.empty())
        return calls[0].ranks[rank].told;
    call_told *told = (call_told *)gpus.allocate(-1, sizeof *told);
    gpus.fill(told, 0, sizeof *told);
    return told;
}

void fused_group::see(unsigned rank, uint32_t number) {
    gpus.write_flag(&calls[0].ranks[rank].told->seen, number);
}

call_told fused_group::told(size_t call, unsigned rank) {
    call_told told = {};
    gpus.read(&told, calls[call].ranks[rank].told, sizeof told);
    return told;
}

call_result fused_group::result(size_t call, unsigned rank) {
    const call_told all = told(call, rank);
    if (all.stopped.outcome == CALL_STOPPED)
        return all.stopped;
    return all.failures > 0 ? all.first.result : call_result{CALL_GOOD, 0, 0, all.ended};
}

std::vector<uint16_t> fused_group::y(size_t call, unsigned rank, bool *untouched) {
    const rank_call &c = calls[call].ranks[rank];
    const strided_matrix matrix = y_matrix(c);
    std::vector<uint16_t> memory(y_elements(c)), values;
    std::vector<bool> inside(memory.size());
    gpus.read(memory.data(), c.y, memory.size() * sizeof memory[0]);
    for (int64_t t = 0; t < c.tokens; t++)
        for (int64_t i = 0; i < layer.hidden; i++) {
            const size_t at = (size_t)((uint16_t *)matrix.data - c.y + t * matrix.stride[0] + i * matrix.stride[1]);
            values.push_back(memory[at]);
            inside[at] = true;
        }
    const uint16_t poison_value = (uint16_t)(calls[call].poison * 0x101);
    *untouched = true;
    for (size_t i = 0; i < memory.size(); i++)
        *untouched = *untouched && (inside[i] || memory[i] == poison_value);
    return values;
}

std::vector<uint16_t> fused_group::all_y(size_t call) {
    std::vector<uint16_t> all;
    for (unsigned r = 0; r < how.world; r++) {
        bool untouched;
        const std::vector<uint16_t> values = y(call, r, &untouched);
        all.insert(all.end(), values.begin(), values.end());
    }
    return all;
}

std::string fused_group::check_good(size_t call, unsigned rank, const fused_batch &batch,
                                    const std::vector<double> &expected) {
    const call_result was = result(call, rank);
    const std::string where = " of call " + std::to_string(call + 1) + " on rank " + std::to_string(rank);
    if (was.outcome != CALL_GOOD || was.call != number_of(call))
        return "told outcome " + std::to_string(was.outcome) + " of call number " + std::to_string(was.call) +
               ", expected a good end" + where;
    bool untouched;
    const std::vector<uint16_t> values = y(call, rank, &untouched);
    if (!untouched)
        return "memory between elements of y" + where + " was written";
    const double *own = expected.data() + batch.first(rank) * layer.hidden;
    for (size_t i = 0; layer.exact && i < values.size(); i++)
        if (values[i] != to_bf16(own[i]))
            return "y" + where + ", element " + std::to_string(i) + " is " + std::to_string(from_bf16(values[i])) +
                   ", expected " + std::to_string(own[i]);
    return "";
}

std::string fused_group::check_good(size_t call, const fused_batch &batch) {
    const std::vector<double> expected = oracle_of(layer, batch);
    std::string wrong;
    for (unsigned r = 0; r < how.world && wrong.empty(); r++)
        wrong = check_good(call, r, batch, expected);
    return wrong;
}

plan_summary fused_group::summary(unsigned rank) {
    plan_summary summary = {};
    gpus.read(&summary, ranks[rank].tables.all, sizeof summary);
    return summary;
}

namespace {

template <class type> std::vector<type> read_back(sim::machine &gpus, const void *from, size_t count) {
    std::vector<type> values(count);
    if (count > 0)
        gpus.read(values.data(), from, count * sizeof(type));
    return values;
}

bool all_zero(const uint16_t *values, int64_t count) {
    return std::all_of(values, values + count, [](uint16_t value) { return value == 0; });
}

double product(const uint16_t *a, const uint16_t *b, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += from_bf16(a[i]) * from_bf16(b[i]);
    return sum;
}

/* Whether a value is the sum rounded to bf16, fp32 sums in any order. */
bool rounds_to(double sum, uint16_t value) {
    return std::fabs(from_bf16(value) - sum) <= std::fabs(sum) / 256 * 1.01 + 1e-5;
}

} // namespace

std::string fused_group::check_kept(const fused_batch &batch) {
    const int64_t h = layer.hidden, i = layer.intermediate, local_experts = layer.experts / how.world;
    for (unsigned r = 0; r < how.world; r++) {
        const rank_memory &m = ranks[r];
        const size_t rows = summary(r).padded_rows;
        const auto x = read_back<uint16_t>(gpus, m.x_rows, rows * (size_t)h);
        const auto gate_up = read_back<uint16_t>(gpus, m.gate_up, 2 * rows * (size_t)i * how.keep);
        const auto source = read_back<int32_t>(gpus, m.rows.source, rows);
        const auto token = read_back<int32_t>(gpus, m.rows.token, rows);
        const auto block_expert = read_back<int32_t>(gpus, m.rows.block_expert, rows / TILE_ROWS);
        for (size_t row = 0; row < rows; row++) {
            const std::string where = " of row " + std::to_string(row) + " of rank " + std::to_string(r);
            const uint16_t *own_x = &x[row * (size_t)h];
            if (source[row] < 0) {
                if (!all_zero(own_x, h) || (how.keep && !all_zero(&gate_up[2 * row * (size_t)i], 2 * i)))
                    return "the pad" + where + " is not zero";
                continue;
            }
            const uint16_t *from = &batch.x[(size_t)((batch.first((unsigned)source[row]) + token[row]) * h)];
            if (memcmp(own_x, from, (size_t)h * sizeof *own_x) != 0)
                return "x" + where + " is not that of its token";
            const int64_t expert = r * local_experts + block_expert[row / TILE_ROWS];
            for (int64_t col = 0; how.keep && col < i; col++) {
                const size_t at = (size_t)((expert * i + col) * h);
                if (!rounds_to(product(from, &layer.gate[at], h), gate_up[2 * row * (size_t)i + (size_t)col]))
                    return "gate " + std::to_string(col) + where + " is wrong";
                if (!rounds_to(product(from, &layer.up[at], h), gate_up[(2 * row + 1) * (size_t)i + (size_t)col]))
                    return "up " + std::to_string(col) + where + " is wrong";
            }
        }
    }
    return "";
}

std::string fused_group::check_combine(const fused_batch &batch, unsigned char poison_with) {
    const size_t hidden = (size_t)layer.hidden, top_k = (size_t)layer.top_k;
    for (unsigned r = 0; r < how.world; r++) {
        const size_t slots = (size_t)how.max_tokens * top_k, used = (size_t)batch.tokens[r] * top_k;
        const auto values = read_back<uint16_t>(gpus, segments[r] + combine, slots * hidden);
        const auto row = read_back<int32_t>(gpus, ranks[r].slots.row, used);
        const auto expert = read_back<int32_t>(gpus, ranks[r].slots.expert, used);
        std::set<std::pair<size_t, size_t>> sums; /* of a token and a rank, with the first slot */
        for (size_t slot = 0; slot < slots; slot++)
            if (slot >= used || row[slot] < 0 ||
                (sums_on_ranks() && !sums.insert({slot / top_k, (size_t)expert[slot] / local_experts()}).second))
                for (size_t col = 0; col < hidden; col++)
                    if (values[slot * hidden + col] != poison_with * 0x101)
                        return "combine slot " + std::to_string(slot) + " of rank " + std::to_string(r) +
                               " has no result and was written";
    }
    return "";
}
