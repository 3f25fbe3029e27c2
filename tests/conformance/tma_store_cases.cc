/* Cases of tma_store.cu. */
#include "case.h"
#include "numbers.h"
#include "random.h"
#include "tensor.h"

namespace conformance {
namespace {

using boxes = std::vector<std::vector<int32_t>>;

test_case store_case(const tensor_map_desc &map, const boxes &at) {
    test_case c;
    c.kernel = "tma_store_" + std::to_string(map.dims) + "d";
    c.ctas = (uint32_t)at.size();
    c.shared_bytes = 1024 + box_bytes(map);
    c.number[0] = box_bytes(map);
    c.maps = {{OUT, 0, map}};
    c.after = image(tensor_bytes(map));
    for (std::vector<int32_t> box : at) {
        box.resize(5);
        c.table.insert(c.table.end(), box.begin(), box.end());
    }
    return c;
}

/* Boxes that tile the tensor from the given start, so that those at the upper edges stick out and none overlap; and one
 * that is outside. */
boxes tiling(const tensor_map_desc &map, int32_t start) {
    boxes all = {std::vector<int32_t>(map.dims, 1 << 15)};
    std::vector<int32_t> first(map.dims, start);
    first[0] = innermost(map, start);
    std::vector<int32_t> at = first;
    for (;;) {
        all.push_back(at);
        uint32_t d = 0;
        while (d < map.dims && (at[d] += (int32_t)map.box[d]) >= (int32_t)map.size[d])
            at[d] = first[d], d++;
        if (d == map.dims)
            return all;
    }
}

void add_stores(case_list &cases, const std::string &what, const tensor_map_desc &map) {
    const uint32_t width = element_bytes(map), bytes = box_bytes(map);
    for (int32_t start : {0, 5}) {
        const boxes at = tiling(map, start);
        test_case c = store_case(map, at);
        c.name = "tma_store: " + std::to_string(map.dims) + "-D " + what + (start > 0 ? ", part of it" : "");
        c.in = random_source(bytes).bytes(at.size() * bytes);
        for (size_t i = 0; i < at.size(); i++)
            each_element(map, at[i].data(), [&](int64_t offset, uint32_t place) {
                for (uint32_t b = 0; offset >= 0 && b < width; b++)
                    c.after.put((size_t)offset + b, c.in[i * bytes + place + b]);
            });
        cases.push_back(c);
    }
}

/* One add an element, of any numbers; or several, of integers whose sums are exact in any order. */
void add_sums(case_list &cases, const std::string &what, const tensor_map_desc &map, bool overlapping) {
    const bool f32 = map.element == TENSOR_F32;
    const uint32_t width = element_bytes(map), bytes = box_bytes(map);
    random_source random(bytes + overlapping);
    const auto number = [&]() -> float {
        if (overlapping)
            return (float)random.between(-20, 20);
        const float value = std::ldexp((float)random.between(-0xffffff, 0xffffff), (int)random.between(-30, 0));
        return f32 ? value : (float)bf16_value(bf16_nearest(value));
    };
    const auto write = [&](std::vector<uint8_t> &to, size_t offset, float value) {
        const uint32_t bits = bits_of(value) >> (f32 ? 0 : 16);
        std::memcpy(&to[offset], &bits, width);
    };
    const auto value = [&](const std::vector<uint8_t> &from, size_t offset) -> double {
        return f32 ? read<float>(from, offset) : bf16_value(read<uint16_t>(from, offset));
    };

    boxes at = tiling(map, 3);
    if (overlapping)
        for (int32_t start : {0, 1, 2}) {
            const boxes more = tiling(map, start);
            at.insert(at.end(), more.begin(), more.end());
        }
    test_case c = store_case(map, at);
    c.name = "tma_reduce_add: " + std::to_string(map.dims) + "-D " + what + (overlapping ? ", boxes overlap" : "");
    c.number[1] = 1;
    c.in.resize(at.size() * bytes);
    for (size_t offset = 0; offset < c.in.size(); offset += width)
        write(c.in, offset, number());
    c.before.assign(tensor_bytes(map), 0xee); /* between the rows; the elements follow */
    const std::vector<int32_t> origin(map.dims, 0);
    tensor_map_desc whole = map;
    whole.swizzle = TENSOR_SWIZZLE_NONE;
    for (uint32_t d = 0; d < map.dims; d++)
        whole.box[d] = (uint32_t)map.size[d];
    each_element(whole, origin.data(), [&](int64_t offset, uint32_t) { write(c.before, (size_t)offset, number()); });

    std::vector<uint8_t> sum = c.before;
    for (size_t i = 0; i < at.size(); i++)
        each_element(map, at[i].data(), [&](int64_t offset, uint32_t place) {
            if (offset < 0)
                return;
            const double exact = value(sum, (size_t)offset) + value(c.in, i * bytes + place);
            write(sum, (size_t)offset, f32 ? (float)exact : (float)bf16_value(bf16_nearest(exact)));
        });
    each_element(whole, origin.data(), [&](int64_t offset, uint32_t) {
        for (uint32_t b = 0; b < width; b++)
            c.after.put((size_t)offset + b, sum[(size_t)offset + b]);
    });
    cases.push_back(c);
}

} // namespace

void add_tma_store_cases(case_list &cases) {
    const tensor_swizzle none = TENSOR_SWIZZLE_NONE, by128 = TENSOR_SWIZZLE_128B;
    const tensor_map_desc maps[] = {
        make_map(TENSOR_BF16, none, {72, 40}, {40, 16}, 16),   make_map(TENSOR_BF16, by128, {152, 70}, {64, 32}),
        make_map(TENSOR_F32, none, {52, 30}, {24, 8}),         make_map(TENSOR_F32, by128, {76, 45}, {32, 16}, 48),
        make_map(TENSOR_BF16, by128, {80, 12, 5}, {64, 8, 2}), make_map(TENSOR_F32, none, {20, 9, 7}, {12, 4, 3}, 16),
        make_map(TENSOR_F32, by128, {40, 10, 6}, {32, 8, 2}),
    };
    for (const tensor_map_desc &map : maps) {
        const std::string what =
            std::string(map.element == TENSOR_F32 ? "fp32" : "bf16") + (map.swizzle == by128 ? ", swizzled" : "");
        add_stores(cases, what, map);
        add_sums(cases, what, map, false);
        add_sums(cases, what, map, true);
    }
}

} // namespace conformance
