/* Tensors in plain C: where the elements of a box lie in memory, and where in the box's shared memory. */
#ifndef TESTS_CONFORMANCE_TENSOR_H
#define TESTS_CONFORMANCE_TENSOR_H

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>

#include "kernels/tensor_map_desc.h"

namespace conformance {

inline uint32_t element_bytes(const tensor_map_desc &map) {
    return map.element == TENSOR_F32 ? 4 : 2;
}

/* Sizes and box innermost first. The pitches are as tight as they may be, and `gap` bytes more in each dimension. */
inline tensor_map_desc make_map(tensor_element element, tensor_swizzle swizzle, std::initializer_list<uint64_t> size,
                                std::initializer_list<uint32_t> box, uint64_t gap = 0) {
    tensor_map_desc map = {};
    map.dims = (uint32_t)size.size();
    map.element = element;
    map.swizzle = swizzle;
    uint32_t d = 0;
    for (uint64_t s : size)
        map.size[d++] = s;
    d = 0;
    for (uint32_t b : box)
        map.box[d++] = b;
    uint64_t pitch = map.size[0] * element_bytes(map);
    for (d = 1; d < map.dims; d++) {
        map.stride[d - 1] = pitch = (pitch + 15) / 16 * 16 + gap;
        pitch *= map.size[d];
    }
    return map;
}

/* Bytes from the tensor's first element to the end of its last, when its strides nest. */
inline size_t tensor_bytes(const tensor_map_desc &map) {
    size_t last = (map.size[0] - 1) * element_bytes(map);
    for (uint32_t d = 1; d < map.dims; d++)
        last += (map.size[d] - 1) * map.stride[d - 1];
    return last + element_bytes(map);
}

inline uint32_t box_bytes(const tensor_map_desc &map) {
    uint32_t bytes = element_bytes(map);
    for (uint32_t d = 0; d < map.dims; d++)
        bytes *= map.box[d];
    return bytes;
}

/* `at`, or what lies next below it and may be the innermost coordinate of a box: a multiple of 16 bytes. */
inline int32_t innermost(const tensor_map_desc &map, int32_t at) {
    const int32_t step = (int32_t)(16 / element_bytes(map));
    return at - (at % step + step) % step;
}

/* With the 128-byte swizzle, the 16-byte pieces of a 128-byte row change places with the row's number modulo 8. */
inline uint32_t swizzled(const tensor_map_desc &map, uint32_t at) {
    return map.swizzle == TENSOR_SWIZZLE_128B ? at ^ (at >> 7 & 7) << 4 : at;
}

/* For each element of the box: its offset in the tensor or -1 when it is out of bounds, and its place in shared memory
 * (from a 1024-byte aligned start). */
inline void each_element(const tensor_map_desc &map, const int32_t *coordinates,
                         const std::function<void(int64_t offset, uint32_t place)> &visit) {
    const uint32_t width = element_bytes(map), elements = box_bytes(map) / width;
    for (uint32_t i = 0; i < elements; i++) {
        int64_t offset = 0;
        uint32_t rest = i;
        for (uint32_t d = 0; d < map.dims; d++) {
            const int64_t at = (int64_t)coordinates[d] + rest % map.box[d];
            rest /= map.box[d];
            if (at < 0 || at >= (int64_t)map.size[d])
                offset = -1;
            if (offset >= 0)
                offset += at * (d == 0 ? width : (int64_t)map.stride[d - 1]);
        }
        visit(offset, swizzled(map, i * width));
    }
}

} // namespace conformance

#endif
