/* Cases of pipeline.cu. */
#include "case.h"
#include "numbers.h"
#include "random.h"
#include "tensor.h"

namespace conformance {
namespace {

void add_pipeline(case_list &cases, uint32_t cluster, uint32_t ctas, uint32_t tiles, uint32_t products) {
    const uint32_t rows = 128 * ctas * products, columns = 256, k = 64 * tiles;
    test_case c;
    c.name = "pipeline: " + std::to_string(ctas) + " CTAs" + (cluster > 1 ? " in clusters of 2, " : ", ") +
             std::to_string(products) + " products of " + std::to_string(tiles) + " tiles of k";
    c.kernel = cluster > 1 ? "pipeline_cluster" : "pipeline_cta";
    c.ctas = ctas;
    c.cluster = cluster;
    c.threads = 384;
    c.shared_bytes = 1024 + 3 * (128 + 256) * 64 * 2;
    c.number[0] = tiles;
    c.number[1] = products;
    random_source random(tiles);
    std::vector<float> value((size_t)(rows + columns) * k);
    for (float &v : value) {
        v = (float)random.between(-8, 8);
        append(c.in, bf16_nearest(v));
    }
    c.maps = {
        {IN, 0, make_map(TENSOR_BF16, TENSOR_SWIZZLE_128B, {k, rows}, {64, 128})},
        {IN, (size_t)rows * k * 2, make_map(TENSOR_BF16, TENSOR_SWIZZLE_128B, {k, columns}, {64, 256 / cluster})}};
    c.after = image((size_t)rows * columns * 4);
    for (uint32_t row = 0; row < rows; row++)
        for (uint32_t column = 0; column < columns; column++) {
            float sum = 0; /* of integers: exact */
            for (uint32_t at = 0; at < k; at++)
                sum += value[(size_t)row * k + at] * value[(size_t)(rows + column) * k + at];
            c.after.put(4 * ((size_t)row * columns + column), sum);
        }
    cases.push_back(c);
}

} // namespace

void add_pipeline_cases(case_list &cases) {
    add_pipeline(cases, 1, 1, 2, 1);
    add_pipeline(cases, 1, 2, 5, 2);
    add_pipeline(cases, 2, 2, 4, 2);
}

} // namespace conformance
