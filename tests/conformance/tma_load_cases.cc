/* Cases of tma_load.cu. */
#include "case.h"
#include "random.h"
#include "tensor.h"

namespace conformance {
namespace {

/* What the box leaves at `base` of the output. */
void land(test_case &c, const tensor_map_desc &map, const int32_t *coordinates, size_t base) {
    const uint32_t width = element_bytes(map);
    each_element(map, coordinates, [&](int64_t offset, uint32_t place) {
        for (uint32_t b = 0; b < width; b++)
            c.after.put(base + place + b, offset < 0 ? (uint8_t)0 : c.in[(size_t)offset + b]);
    });
}

/* One CTA a box: in the middle, over the low edge and over the high edge of each dimension, and outside. */
void add_boxes(case_list &cases, const std::string &what, const tensor_map_desc &map) {
    std::vector<std::vector<int32_t>> boxes;
    std::vector<int32_t> inside;
    for (uint32_t d = 0; d < map.dims; d++)
        inside.push_back((int32_t)(map.size[d] - map.box[d]) / 2);
    inside[0] = innermost(map, inside[0]);
    boxes.push_back(inside);
    boxes.push_back(std::vector<int32_t>(map.dims, 0));
    for (uint32_t d = 0; d < map.dims; d++)
        for (int32_t at : {-1, (int32_t)map.size[d] - 3, -(int32_t)map.box[d], (int32_t)map.size[d]}) {
            std::vector<int32_t> box = inside;
            box[d] = d == 0 ? innermost(map, at) : at;
            boxes.push_back(box);
        }
    boxes.push_back(std::vector<int32_t>(map.dims, -2));
    boxes.back()[0] = innermost(map, -2);
    boxes.push_back(std::vector<int32_t>(map.dims, 1 << 20));

    test_case c;
    c.name = "tma_load: " + std::to_string(map.dims) + "-D " + what;
    c.kernel = "tma_load_" + std::to_string(map.dims) + "d";
    c.ctas = (uint32_t)boxes.size();
    c.shared_bytes = 1024 + box_bytes(map);
    c.number[0] = box_bytes(map);
    c.in = random_source(map.dims).bytes(tensor_bytes(map));
    c.maps = {{IN, 0, map}};
    c.after = image((size_t)c.ctas * box_bytes(map));
    for (size_t i = 0; i < boxes.size(); i++) {
        boxes[i].resize(5);
        land(c, map, boxes[i].data(), i * box_bytes(map));
        c.table.insert(c.table.end(), boxes[i].begin(), boxes[i].end());
    }
    cases.push_back(c);
}

/* Rows of a matrix in the order that lets a thread of an epilogue own 8 neighbouring columns: row a + 2*b + 8*c + 32*d
 * of the box is row a + 8*b + 2*c + 32*d of the matrix, for a < 2 and b, c < 4. */
tensor_map_desc permuted_rows(uint64_t k, uint64_t rows) {
    tensor_map_desc map = make_map(TENSOR_BF16, TENSOR_SWIZZLE_128B, {k, 2, 4, 4, rows / 32}, {64, 2, 4, 4, 4});
    const uint64_t row = k * 2;
    map.stride[0] = row;
    map.stride[1] = 8 * row;
    map.stride[2] = 2 * row;
    map.stride[3] = 32 * row;
    return map;
}

void add_permuted(case_list &cases) {
    const uint64_t k = 192, rows = 256;
    const tensor_map_desc map = permuted_rows(k, rows);
    const int32_t boxes[][5] = {{0, 0, 0, 0, 0}, {64, 0, 0, 0, 4}, {160, 0, 0, 0, 6}};
    test_case c;
    c.name = "tma_load: 5-D, rows of a matrix permuted";
    c.kernel = "tma_load_5d";
    c.ctas = 3;
    c.shared_bytes = 1024 + box_bytes(map);
    c.number[0] = box_bytes(map);
    c.in = random_source(50).bytes(k * rows * 2);
    c.maps = {{IN, 0, map}};
    c.after = image((size_t)c.ctas * box_bytes(map));
    for (uint32_t i = 0; i < c.ctas; i++) {
        land(c, map, boxes[i], (size_t)i * box_bytes(map));
        c.table.insert(c.table.end(), boxes[i], boxes[i] + 5);
    }
    cases.push_back(c);
}

/* masks: of the two CTAs of each cluster. */
void add_multicast(case_list &cases, const std::string &what, const tensor_map_desc &map, size_t matrix_bytes,
                   const std::vector<std::vector<uint32_t>> &masks, const std::vector<std::vector<int32_t>> &boxes) {
    const uint32_t bytes = box_bytes(map);
    test_case c;
    c.name = "tma_load: multicast, " + what;
    c.kernel = "tma_multicast_" + std::to_string(map.dims) + "d";
    c.ctas = (uint32_t)masks.size() * 2;
    c.cluster = 2;
    c.shared_bytes = 1024 + 2 * bytes;
    c.number[0] = bytes;
    c.in = random_source(60 + map.dims).bytes(matrix_bytes);
    c.maps = {{IN, 0, map}};
    c.after = image((size_t)c.ctas * 2 * bytes);
    for (size_t i = 0; i < c.after.bytes.size(); i++)
        c.after.put(i, (uint8_t)0xee);
    for (uint32_t cta = 0; cta < c.ctas; cta++) {
        const uint32_t mask = masks[cta / 2][cta % 2];
        std::vector<int32_t> box = boxes[cta % boxes.size()];
        box.resize(5);
        for (uint32_t rank = 0; rank < 2; rank++)
            if (mask >> rank & 1)
                land(c, map, box.data(), (size_t)(cta / 2 * 2 + rank) * 2 * bytes + (cta % 2) * bytes);
        c.table.push_back(mask);
        c.table.insert(c.table.end(), box.begin(), box.end());
    }
    cases.push_back(c);
}

} // namespace

void add_tma_load_cases(case_list &cases) {
    const tensor_swizzle none = TENSOR_SWIZZLE_NONE, by128 = TENSOR_SWIZZLE_128B;
    add_boxes(cases, "bf16", make_map(TENSOR_BF16, none, {96, 50}, {40, 12}));
    add_boxes(cases, "bf16, pitched", make_map(TENSOR_BF16, none, {67, 50}, {24, 12}, 48));
    add_boxes(cases, "bf16, swizzled", make_map(TENSOR_BF16, by128, {200, 90}, {64, 64}));
    add_boxes(cases, "bf16, swizzled, pitched, narrow rows", make_map(TENSOR_BF16, by128, {75, 40}, {64, 20}, 32));
    add_boxes(cases, "bf16, largest box", make_map(TENSOR_BF16, by128, {128, 300}, {64, 256}));
    add_boxes(cases, "fp32", make_map(TENSOR_F32, none, {50, 33}, {20, 9}, 16));
    add_boxes(cases, "fp32, swizzled", make_map(TENSOR_F32, by128, {70, 60}, {32, 24}));
    add_boxes(cases, "bf16", make_map(TENSOR_BF16, none, {32, 9, 10}, {16, 4, 5}, 32));
    add_boxes(cases, "bf16, swizzled", make_map(TENSOR_BF16, by128, {80, 20, 9}, {64, 8, 4}));
    add_boxes(cases, "fp32, swizzled", make_map(TENSOR_F32, by128, {40, 12, 9}, {32, 6, 4}, 64));
    add_boxes(cases, "bf16", make_map(TENSOR_BF16, none, {24, 7, 6, 5}, {8, 4, 4, 3}));
    add_boxes(cases, "bf16, swizzled", make_map(TENSOR_BF16, by128, {72, 7, 6, 5}, {64, 4, 4, 3}, 16));
    add_boxes(cases, "fp32", make_map(TENSOR_F32, none, {12, 5, 6, 5, 4}, {4, 3, 4, 3, 3}, 16));
    add_boxes(cases, "bf16, swizzled", make_map(TENSOR_BF16, by128, {72, 5, 4, 5, 4}, {64, 3, 3, 3, 3}));

    /* Columns of a matrix as 64 wide boxes one after another: strides that do not nest. */
    tensor_map_desc columns = make_map(TENSOR_BF16, by128, {64, 100, 4}, {64, 64, 3});
    columns.stride[0] = 256 * 2;
    columns.stride[1] = 128;
    add_boxes(cases, "bf16, 64 columns at a time", columns);
    add_permuted(cases);

    add_multicast(cases, "both CTAs and one", make_map(TENSOR_BF16, by128, {128, 128}, {64, 64}), 128 * 128 * 2,
                  {{3, 0}, {0, 3}, {3, 3}, {1, 2}, {2, 1}, {2, 0}, {0, 1}, {3, 1}},
                  {{0, 0}, {64, 64}, {64, 96}, {-8, 100}});
    add_multicast(cases, "rows permuted", permuted_rows(128, 256), 128 * 256 * 2, {{3, 3}, {3, 0}, {2, 3}},
                  {{0, 0, 0, 0, 0}, {64, 0, 0, 0, 4}, {64, 0, 0, 0, 0}});
}

} // namespace conformance
