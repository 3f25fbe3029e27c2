/* Tensor maps for simulated GPUs. */
#ifndef TESTS_FUSED_MAPS_H
#define TESTS_FUSED_MAPS_H

#include <cstdint>
#include <vector>

#include "kernels/tensor_map_desc.h"

/* In the 128-byte swizzle. Strides, from the second dimension on, are of elements. Ends the program when it is refused.
 */
tensor_map map_of(const void *base, tensor_element element, const std::vector<uint64_t> &size,
                  const std::vector<uint64_t> &stride, const std::vector<uint32_t> &box);

#endif
