/* Tensor maps and the boxes that copies take from them. */
#ifndef SIM_TENSOR_H
#define SIM_TENSOR_H

#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/tensor_map_desc.h"

namespace sim {

/* What encode_tensor_map put into the map; false if that is not what is there. */
bool decode_tensor_map(const tensor_map *map, tensor_map_desc *desc);

/* A box of a tensor, as rows: runs along the innermost dimension. */
class tensor_box {
  public:
    tensor_box(const tensor_map_desc &desc, const int32_t *coordinates);

    struct row {
        char *data = nullptr;           /* its part inside the tensor */
        uint32_t offset = 0, bytes = 0; /* of that part in the row; bytes 0: all of it is outside */
    };
    row at(uint32_t number) const;

    uint32_t rows() const { return row_count; }
    uint32_t row_bytes() const { return row_size; }
    uint32_t bytes() const { return row_count * row_size; }
    const tensor_map_desc &desc() const { return from; }

  private:
    const tensor_map_desc from;
    int32_t first[TENSOR_MAP_MAX_DIMS];
    uint32_t row_count, row_size;
};

} // namespace sim

#endif
