/* Layers, batches and the oracle. */
#include "layer.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" {
#include "oracle/oracle.h"
}

namespace {

/* A gate whose sigmoid is 1 in fp32: silu(32) = 32. */
const double OPEN_GATE = 32;

std::vector<uint16_t> random_values(size_t count, double deviation, rig_random *random) {
    std::vector<uint16_t> values(count);
    for (uint16_t &value : values)
        value = to_bf16(deviation * rig_normal(random));
    return values;
}

/* Rows with two elements that are +-`value`, not the first of the row, which is kept for the gate. */
std::vector<uint16_t> sparse_rows(size_t rows, int64_t columns, double value, rig_random *random) {
    std::vector<uint16_t> values(rows * (size_t)columns);
    for (size_t row = 0; row < rows; row++)
        for (int i = 0; i < 2; i++)
            values[row * (size_t)columns + 1 + (size_t)rig_below(random, columns - 1)] =
                to_bf16(rig_below(random, 2) == 0 ? value : -value);
    return values;
}

} // namespace

std::vector<double> wide(const std::vector<uint16_t> &values) {
    std::vector<double> all;
    for (const uint16_t value : values)
        all.push_back(from_bf16(value));
    return all;
}

double from_bf16(uint16_t value) {
    const uint32_t bits = (uint32_t)value << 16;
    float wide_value;
    memcpy(&wide_value, &bits, sizeof bits);
    return wide_value;
}

uint16_t to_bf16(double value) {
    const float narrow = (float)value;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

fused_layer make_layer(int64_t hidden, int64_t intermediate, int64_t experts, int64_t top_k, bool exact, uint64_t seed,
                       double limit) {
    fused_layer layer = {hidden, intermediate, experts, top_k, limit, exact, {}, {}, {}};
    rig_random random = rig_seed(seed);
    const size_t rows = (size_t)(experts * intermediate), stack = rows * (size_t)hidden;
    if (exact) {
        /* gate = 32, up = the sum of two tokens' elements, a result = the sum of two ups. */
        layer.gate.assign(stack, 0);
        for (size_t row = 0; row < rows; row++)
            layer.gate[row * (size_t)hidden] = to_bf16(OPEN_GATE);
        layer.up = sparse_rows(rows, hidden, 1, &random);
        layer.down = sparse_rows((size_t)(experts * hidden), intermediate, 1 / OPEN_GATE, &random);
    } else {
        layer.gate = random_values(stack, 1 / std::sqrt((double)hidden), &random);
        layer.up = random_values(stack, 1 / std::sqrt((double)hidden), &random);
        layer.down = random_values(stack, 1 / std::sqrt((double)intermediate), &random);
    }
    return layer;
}

int64_t fused_batch::first(unsigned rank) const {
    int64_t sum = 0;
    for (unsigned r = 0; r < rank; r++)
        sum += tokens[r];
    return sum;
}

fused_batch make_batch(const fused_layer &layer, const std::vector<int64_t> &tokens, rig_routing routing,
                       uint64_t seed) {
    fused_batch batch = {tokens, {}, {}, {}, {}};
    rig_random random = rig_seed(seed);
    const int64_t total = batch.total(), slots = total * layer.top_k;
    batch.x = random_values((size_t)(total * layer.hidden), 1, &random);
    if (layer.exact)
        for (size_t i = 0; i < batch.x.size(); i++)
            batch.x[i] = to_bf16(i % (size_t)layer.hidden == 0 ? 1 : (double)rig_below(&random, 3) - 1);
    batch.ids.resize((size_t)slots);
    rig_route(routing, &random, total, layer.top_k, layer.experts, batch.ids.data());
    /* Positive, so that the slots of an expert that a token names twice don't cancel. */
    for (int64_t slot = 0; slot < slots; slot++)
        batch.weights.push_back(layer.exact ? (float)(1 + rig_below(&random, 3)) : (float)(0.1 + rig_uniform(&random)));
    batch.dy = random_values((size_t)(total * layer.hidden), 1, &random);
    for (size_t i = 0; layer.exact && i < batch.dy.size(); i++)
        batch.dy[i] = to_bf16((double)rig_below(&random, 3) - 1);
    return batch;
}

std::vector<double> oracle_of(const fused_layer &layer, const fused_batch &batch) {
    const oracle_layer shape = {batch.total(), layer.hidden, layer.intermediate, layer.experts, layer.top_k, 0,
                                layer.limit};
    std::vector<double> y((size_t)(batch.total() * layer.hidden));
    const std::vector<double> weights(batch.weights.begin(), batch.weights.end());
    if (oracle_forward(&shape, wide(batch.x).data(), batch.ids.data(), weights.data(), wide(layer.gate).data(),
                       wide(layer.up).data(), wide(layer.down).data(), y.data()) != 0) {
        std::puts("no memory for the oracle");
        std::exit(1);
    }
    if (layer.exact)
        for (double &value : y)
            value = std::nearbyint(value) + 0.0; /* the oracle's sigmoid(32) is not quite 1; and no -0 */
    return y;
}

fused_gradients oracle_gradients(const fused_layer &layer, const fused_batch &batch) {
    const oracle_layer shape = {batch.total(), layer.hidden, layer.intermediate, layer.experts, layer.top_k, 0,
                                layer.limit};
    const std::vector<double> weights(batch.weights.begin(), batch.weights.end());
    fused_gradients made;
    made.of[DX].resize(batch.x.size());
    made.of[DWEIGHTS].resize(batch.weights.size());
    for (const gradient which : {DGATE, DUP, DDOWN})
        made.of[which].resize(layer.gate.size());
    if (oracle_backward(&shape, wide(batch.x).data(), batch.ids.data(), weights.data(), wide(layer.gate).data(),
                        wide(layer.up).data(), wide(layer.down).data(), wide(batch.dy).data(), made.of[DX].data(),
                        made.of[DWEIGHTS].data(), made.of[DGATE].data(), made.of[DUP].data(),
                        made.of[DDOWN].data()) != 0) {
        std::puts("no memory for the oracle");
        std::exit(1);
    }
    for (std::vector<double> &values : made.of)
        for (double &value : values)
            if (layer.exact)
                value = std::nearbyint(value * OPEN_GATE) / OPEN_GATE + 0.0; /* as for y */
    return made;
}

double relative_error(const std::vector<double> &values, const std::vector<double> &reference) {
    return oracle_relative_error(values.data(), reference.data(), (int64_t)reference.size());
}
