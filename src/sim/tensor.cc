/* The simulator's tensor map: the plain description and a mark. What the driver would refuse is refused here. */
#include "sim/tensor.h"

#include <algorithm>
#include <cstring>

#include "sim/report.h"

namespace sim {

namespace {

const uint64_t MAGIC = 0x70616d726f736e65;

uint32_t element_bytes(const tensor_map_desc &d) {
    return d.element == TENSOR_F32 ? 4 : 2;
}

std::string refusal(const tensor_map_desc &d) {
    if (d.base == nullptr || (uintptr_t)d.base % 16 != 0)
        return format_text("base = %p, expected a multiple of 16", d.base);
    if (d.dims < 1 || d.dims > TENSOR_MAP_MAX_DIMS)
        return format_text("dims = %u, expected 1 to %d", d.dims, TENSOR_MAP_MAX_DIMS);
    if (d.element != TENSOR_BF16 && d.element != TENSOR_F32)
        return format_text("element = %d, expected TENSOR_BF16 or TENSOR_F32", (int)d.element);
    if (d.swizzle != TENSOR_SWIZZLE_NONE && d.swizzle != TENSOR_SWIZZLE_128B)
        return format_text("swizzle = %d, expected none or 128 bytes", (int)d.swizzle);
    for (uint32_t i = 0; i < d.dims; i++) {
        if (d.size[i] == 0 || d.size[i] > 1ull << 32)
            return format_text("size[%u] = %llu, expected 1 to 2^32", i, (unsigned long long)d.size[i]);
        if (d.box[i] == 0 || d.box[i] > 256)
            return format_text("box[%u] = %u, expected 1 to 256", i, d.box[i]);
        if (i > 0 && (d.stride[i - 1] % 16 != 0 || d.stride[i - 1] >= 1ull << 40))
            return format_text("stride[%u] = %llu, expected a multiple of 16 below 2^40", i - 1,
                               (unsigned long long)d.stride[i - 1]);
    }
    const uint32_t row = d.box[0] * element_bytes(d);
    if (row % 16 != 0)
        return format_text("box[0] = %u elements are %u bytes, expected a multiple of 16", d.box[0], row);
    if (d.swizzle == TENSOR_SWIZZLE_128B && row != 128)
        return format_text("box[0] = %u elements are %u bytes, expected 128 with the 128-byte swizzle", d.box[0], row);
    return "";
}

struct encoded {
    tensor_map_desc desc;
    uint64_t magic;
};
static_assert(sizeof(encoded) <= sizeof(tensor_map), "a description fits into a map");

} // namespace

bool encode_tensor_map(const tensor_map_desc &desc, tensor_map *map, std::string *why) {
    const std::string wrong = refusal(desc);
    if (!wrong.empty()) {
        if (why != nullptr)
            *why = wrong;
        return false;
    }
    const encoded e = {desc, MAGIC};
    memset(map, 0, sizeof *map);
    memcpy(map, &e, sizeof e);
    return true;
}

bool decode_tensor_map(const tensor_map *map, tensor_map_desc *desc) {
    encoded e;
    memcpy(&e, map, sizeof e);
    *desc = e.desc;
    return e.magic == MAGIC;
}

tensor_box::tensor_box(const tensor_map_desc &desc, const int32_t *coordinates) : from(desc), row_count(1) {
    row_size = desc.box[0] * element_bytes(desc);
    std::copy(coordinates, coordinates + desc.dims, first);
    for (uint32_t i = 1; i < desc.dims; i++)
        row_count *= desc.box[i];
}

tensor_box::row tensor_box::at(uint32_t number) const {
    row r;
    char *data = (char *)from.base;
    for (uint32_t i = 1; i < from.dims; i++) {
        const int64_t at = first[i] + (int64_t)(number % from.box[i]);
        number /= from.box[i];
        if (at < 0 || at >= (int64_t)from.size[i])
            return r;
        data += at * (int64_t)from.stride[i - 1];
    }
    const int64_t begin = std::max<int64_t>(first[0], 0);
    const int64_t end = std::min<int64_t>((int64_t)first[0] + from.box[0], (int64_t)from.size[0]);
    if (begin >= end)
        return r;
    const uint32_t size = element_bytes(from);
    r.data = data + begin * size;
    r.offset = (uint32_t)(begin - first[0]) * size;
    r.bytes = (uint32_t)(end - begin) * size;
    return r;
}

} // namespace sim
