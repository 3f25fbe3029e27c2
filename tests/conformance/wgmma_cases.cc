/* Cases of wgmma.cu. */
#include <cstdio>

#include "case.h"
#include "numbers.h"
#include "random.h"
#include "tensor.h"

namespace conformance {
namespace {

const uint32_t ROWS = 128, TILE_K = 64;

/* a[m][k] or a[k][m], b[n][k] or b[k][n], as the case's input holds them: a first. */
struct operands {
    uint32_t columns, k;
    bool a_mn, b_mn;
    std::vector<uint8_t> bytes;

    double a(uint32_t row, uint32_t at) const {
        return bf16_value(read<uint16_t>(bytes, 2 * (a_mn ? at * ROWS + row : row * k + at)));
    }
    double b(uint32_t column, uint32_t at) const {
        const size_t start = (size_t)ROWS * k;
        return bf16_value(read<uint16_t>(bytes, 2 * (start + (b_mn ? at * columns + column : column * k + at))));
    }
};

operands make_operands(uint32_t columns, uint32_t k, bool a_mn, bool b_mn, bool integers) {
    operands o = {columns, k, a_mn, b_mn, {}};
    random_source random(columns + 2 * a_mn + b_mn + k);
    for (uint32_t i = 0; i < (ROWS + columns) * k; i++) {
        const double value =
            integers ? (double)random.between(-8, 8) : std::ldexp((double)random.between(-1000000, 1000000), -18);
        append(o.bytes, bf16_nearest(value));
    }
    return o;
}

/* MN-major rows of k are taken 64 columns at a time, one box of columns after another. */
tensor_map_desc operand_map(bool mn, uint32_t width, uint32_t k) {
    if (!mn)
        return make_map(TENSOR_BF16, TENSOR_SWIZZLE_128B, {k, width}, {TILE_K, width});
    tensor_map_desc map = make_map(TENSOR_BF16, TENSOR_SWIZZLE_128B, {64, k, width / 64}, {64, TILE_K, width / 64});
    map.stride[0] = width * 2;
    map.stride[1] = 128;
    return map;
}

/* Each of the k/16 steps adds 17 terms, each cut at 2^-23 of the largest magnitude that can occur in the sum. */
std::string within_bound(const std::vector<uint8_t> &out, const operands &o) {
    for (uint32_t row = 0; row < ROWS; row++)
        for (uint32_t column = 0; column < o.columns; column++) {
            double sum = 0, magnitude = 0;
            for (uint32_t at = 0; at < o.k; at++) {
                const double product = o.a(row, at) * o.b(column, at);
                sum += product;
                magnitude += std::fabs(product);
            }
            const float got = read<float>(out, 4 * (size_t)(row * o.columns + column));
            if (!(std::fabs(got - sum) <= std::ldexp(magnitude, -23) * 17 * (o.k / 16))) {
                char text[120];
                std::snprintf(text, sizeof text, "row %u column %u: %.9g, expected %.9g (sum of magnitudes %.3g)", row,
                              column, (double)got, sum, magnitude);
                return text;
            }
        }
    return "";
}

test_case product_case(const operands &o, const std::string &kernel) {
    test_case c;
    c.kernel = kernel;
    c.threads = 256;
    c.shared_bytes = 1024 + o.k / TILE_K * (ROWS + o.columns) * TILE_K * 2;
    c.number[0] = o.k / TILE_K;
    c.in = o.bytes;
    c.maps = {{IN, 0, operand_map(o.a_mn, ROWS, o.k)},
              {IN, (size_t)ROWS * o.k * 2, operand_map(o.b_mn, o.columns, o.k)}};
    c.after = image((size_t)ROWS * o.columns * 4);
    return c;
}

void expect_exact(test_case &c, const operands &o, uint32_t rows) {
    for (uint32_t row = 0; row < rows; row++)
        for (uint32_t column = 0; column < o.columns; column++) {
            const size_t offset = 4 * (size_t)(row * o.columns + column);
            double sum = c.before.empty() ? 0 : read<float>(c.before, offset);
            for (uint32_t at = 0; at < o.k; at++)
                sum += o.a(row, at) * o.b(column, at);
            c.after.put(offset, (float)sum);
        }
}

const char *major_name(bool mn) {
    return mn ? "MN" : "K";
}

void add_product(case_list &cases, uint32_t columns, bool a_mn, bool b_mn, const std::string &groups) {
    const std::string kernel =
        "wgmma_" + groups + std::to_string(columns) + (a_mn ? "_mn" : "_k") + (b_mn ? "_mn" : "_k");
    const std::string name = "wgmma: " + std::to_string(columns) + " columns, A " + major_name(a_mn) + "-major, B " +
                             major_name(b_mn) + "-major" + (groups.empty() ? "" : ", a group a step");
    const operands exact = make_operands(columns, 128, a_mn, b_mn, true);
    test_case c = product_case(exact, kernel);
    c.name = name;
    expect_exact(c, exact, ROWS);
    cases.push_back(c);

    c.name = name + ", accumulated";
    c.number[1] = 1;
    random_source random(columns);
    for (uint32_t i = 0; i < ROWS * columns; i++)
        append(c.before, (float)random.between(-1000, 1000));
    expect_exact(c, exact, ROWS);
    cases.push_back(c);

    const operands real = make_operands(columns, 192, a_mn, b_mn, false);
    c = product_case(real, kernel);
    c.name = name + ", real numbers";
    c.judge = [real](const std::vector<uint8_t> &out) { return within_bound(out, real); };
    cases.push_back(c);
}

void add_two_results(case_list &cases) {
    const operands o = make_operands(256, TILE_K, false, false, true);
    test_case c = product_case(o, "wgmma_two_results");
    c.name = "wgmma: two results in flight";
    c.threads = 128;
    c.after = image(64 * 256 * 4);
    expect_exact(c, o, 64);
    cases.push_back(c);
}

/* The kernel's a has 64 rows; b follows it. */
void add_written_operands(case_list &cases) {
    operands o = make_operands(128, TILE_K, false, false, true);
    test_case c = product_case(o, "wgmma_written_operands");
    c.name = "wgmma: operands written by threads";
    c.threads = 128;
    c.shared_bytes = (64 + 128) * TILE_K * 2;
    c.maps.clear();
    c.in.erase(c.in.begin() + 64 * TILE_K * 2, c.in.begin() + ROWS * TILE_K * 2);
    c.after = image(64 * 128 * 4);
    expect_exact(c, o, 64);
    cases.push_back(c);
}

} // namespace

void add_wgmma_cases(case_list &cases) {
    for (uint32_t columns : {128, 192, 256})
        for (bool a_mn : {false, true})
            for (bool b_mn : {false, true})
                add_product(cases, columns, a_mn, b_mn, "");
    add_product(cases, 256, false, false, "groups_");
    add_product(cases, 128, true, true, "groups_");
    add_two_results(cases);
    add_written_operands(cases);
}

} // namespace conformance
