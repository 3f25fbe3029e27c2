/* Tensor maps for simulated GPUs; see maps.h. */
#include "maps.h"

#include <cstdio>
#include <cstdlib>
#include <string>

#include "sim/sim.h"

tensor_map map_of(const void *base, tensor_element element, const std::vector<uint64_t> &size,
                  const std::vector<uint64_t> &stride, const std::vector<uint32_t> &box) {
    const uint64_t bytes = element == TENSOR_F32 ? sizeof(float) : sizeof(uint16_t);
    tensor_map_desc desc = {};
    desc.base = const_cast<void *>(base);
    desc.dims = (uint32_t)size.size();
    desc.element = element;
    desc.swizzle = TENSOR_SWIZZLE_128B;
    for (size_t i = 0; i < size.size(); i++) {
        desc.size[i] = size[i];
        desc.box[i] = box[i];
        if (i > 0)
            desc.stride[i - 1] = stride[i - 1] * bytes;
    }
    tensor_map map;
    std::string why;
    if (!sim::encode_tensor_map(desc, &map, &why)) {
        std::printf("a map is refused: %s\n", why.c_str());
        std::exit(1);
    }
    return map;
}
