/* What the backwards of a group leave; see group.h. */
#include <cmath>
#include <cstring>

#include "group.h"

namespace {

const char *const NAMES[GRADIENTS] = {"dx", "dweights", "dgate", "dup", "ddown"};

bool has_rows(const fused_batch &batch, int64_t expert) {
    for (const int64_t id : batch.ids)
        if (id == expert)
            return true;
    return false;
}

} // namespace

/* ---- Elements ---- */

/* Of a rank. */
size_t fused_group::gradient_size(size_t call, unsigned r, gradient which) const {
    const size_t tokens = calls[call].ranks[r].tokens;
    return which == DX         ? tokens * (size_t)layer.hidden
           : which == DWEIGHTS ? tokens * (size_t)layer.top_k
                               : local_experts() * matrix_elements();
}

std::vector<uint32_t> fused_group::bits_of(size_t call, unsigned r, gradient which) {
    const rank_call &c = calls[call].ranks[r];
    const void *const all[GRADIENTS] = {c.dx, c.dweights, c.dweight[0], c.dweight[1], c.dweight[2]};
    const bool narrow = which == DX || (which >= DGATE && how.narrow);
    const size_t count = gradient_size(call, r, which);
    std::vector<uint16_t> halves(narrow ? count : 0);
    std::vector<uint32_t> words(narrow ? 0 : count);
    if (count > 0)
        gpus.read(narrow ? (void *)halves.data() : words.data(), all[which], count * (narrow ? 2 : 4));
    words.insert(words.end(), halves.begin(), halves.end());
    return words;
}

/* As it was before the call. */
uint32_t fused_group::untouched_bits(size_t call, gradient which, size_t element) const {
    const uint32_t poison = calls[call].poison * 0x01010101u;
    const bool narrow = which == DX || (which >= DGATE && how.narrow);
    if (which < DGATE || !how.accumulate)
        return narrow ? poison >> 16 : poison;
    const float start = gradient_start(element);
    uint32_t bits;
    std::memcpy(&bits, &start, sizeof bits);
    return narrow ? bits >> 16 : bits;
}

double fused_group::value_of(uint32_t bits, gradient which) const {
    float value;
    if (which == DX || (which >= DGATE && how.narrow))
        return from_bf16((uint16_t)bits);
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

/* Rounded once, to the width of the gradient. */
double fused_group::expected_value(const fused_gradients &all, const fused_batch &batch, unsigned r, gradient which,
                                   size_t element) const {
    const size_t first = which == DX         ? (size_t)(batch.first(r) * layer.hidden)
                         : which == DWEIGHTS ? (size_t)(batch.first(r) * layer.top_k)
                                             : r * local_experts() * matrix_elements();
    double value = all.of[which][first + element];
    if (which >= DGATE && how.accumulate)
        value += gradient_start(element);
    return which == DX || (which >= DGATE && how.narrow) ? from_bf16(to_bf16(value)) : (double)(float)value;
}

/* ---- Comparisons ---- */

std::string fused_group::check_gradient(size_t call, gradient which, const fused_batch &batch,
                                        const fused_gradients &all, double bound) {
    std::vector<double> values, expected;
    for (unsigned r = 0; r < how.world; r++) {
        const std::vector<uint32_t> bits = bits_of(call, r, which);
        for (size_t i = 0; i < bits.size(); i++) {
            const std::string where = std::string(NAMES[which]) + " of call " + std::to_string(call + 1) + " on rank " +
                                      std::to_string(r) + ", element " + std::to_string(i);
            const int64_t expert = (int64_t)(r * local_experts() + i / matrix_elements());
            if (!wants(r, which) || (which >= DGATE && how.accumulate && !has_rows(batch, expert))) {
                if (bits[i] != untouched_bits(call, which, i))
                    return where + " was written";
                continue;
            }
            const double value = value_of(bits[i], which), wanted = expected_value(all, batch, r, which, i);
            const bool exact = layer.exact && !(which == DX && layer.top_k > 1 && i % (size_t)layer.hidden == 0);
            if (exact && value != wanted)
                return where + " is " + std::to_string(value) + ", expected " + std::to_string(wanted);
            values.push_back(value);
            expected.push_back(wanted);
        }
    }
    const double error = relative_error(values, expected);
    if (which == DWEIGHTS)
        bound *= 4; /* there are few of them, each a sum that may cancel */
    return error <= bound ? "" : "the relative error of " + std::string(NAMES[which]) + " is " + std::to_string(error);
}

std::string fused_group::check_backward(size_t call, const fused_batch &batch, double bound) {
    const fused_gradients all = oracle_gradients(layer, batch);
    for (unsigned r = 0; r < how.world; r++) {
        const call_result was = result(call, r);
        if (was.outcome != CALL_GOOD || was.call != number_of(call))
            return "told outcome " + std::to_string(was.outcome) + " of call number " + std::to_string(was.call) +
                   ", expected a good end of call " + std::to_string(call + 1) + " on rank " + std::to_string(r);
    }
    std::string wrong;
    for (int which = DX; which < GRADIENTS && wrong.empty(); which++)
        wrong = check_gradient(call, (gradient)which, batch, all, bound);
    return wrong;
}

gradient_bits fused_group::all_gradients(size_t call) {
    gradient_bits all(GRADIENTS);
    for (int which = DX; which < GRADIENTS; which++)
        for (unsigned r = 0; r < how.world; r++) {
            const std::vector<uint32_t> bits = bits_of(call, r, (gradient)which);
            all[(size_t)which].insert(all[(size_t)which].end(), bits.begin(), bits.end());
        }
    return all;
}

std::string fused_group::check_spoilt(size_t call, unsigned r, bool added) {
    for (int g = DX; g < GRADIENTS; g++) {
        const gradient which = (gradient)g;
        const bool stays = !wants(r, which) || (which >= DGATE && how.accumulate);
        const std::vector<uint32_t> bits = bits_of(call, r, which);
        for (size_t i = 0; i < bits.size() && !(stays && added && wants(r, which)); i++)
            if (stays ? bits[i] != untouched_bits(call, which, i) : !std::isnan(value_of(bits[i], which)))
                return std::string(NAMES[which]) + " of the failed call " + std::to_string(call + 1) + " on rank " +
                       std::to_string(r) + (stays ? " was written" : " is not NaN");
    }
    return "";
}

std::string fused_group::check_unsent(const fused_batch &batch, unsigned char poison_with) {
    const size_t hidden = (size_t)layer.hidden, top_k = (size_t)layer.top_k;
    const size_t slots = (size_t)how.max_tokens * top_k;
    for (unsigned r = 0; r < how.world; r++) {
        const size_t used = (size_t)batch.tokens[r] * top_k;
        std::vector<int32_t> row(slots, -1);
        std::vector<uint16_t> results(slots * hidden);
        std::vector<uint32_t> weights(slots);
        if (used > 0)
            gpus.read(row.data(), ranks[r].slots.row, used * sizeof row[0]);
        gpus.read(results.data(), segments[r] + combine, results.size() * sizeof results[0]);
        gpus.read(weights.data(), segments[r] + dw, weights.size() * sizeof weights[0]);
        for (size_t slot = 0; slot < slots; slot++) {
            const std::string where = " of slot " + std::to_string(slot) + " of rank " + std::to_string(r);
            if ((row[slot] < 0 || !wants(r, DWEIGHTS)) && weights[slot] != poison_with * 0x01010101u)
                return "dw" + where + " was sent";
            for (size_t i = 0; i < hidden && (row[slot] < 0 || !wants(r, DX)); i++)
                if (results[slot * hidden + i] != poison_with * 0x101)
                    return "a row of dx" + where + " was sent";
        }
    }
    return "";
}
