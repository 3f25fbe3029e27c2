/* Eight neighbouring bf16 of a caller's matrix, whatever its strides. */
#ifndef MM_KERNELS_STRIDED_CUH
#define MM_KERNELS_STRIDED_CUH

#include "kernels/isa.cuh"
#include "kernels/row_params.h"

/* Whether eight neighbours are one aligned 16-byte word. */
MM_DEVICE bool is_whole(const strided_matrix &matrix) {
    return matrix.stride[1] == 1 && matrix.stride[0] % 8 == 0 && (uint64_t)matrix.data % 16 == 0;
}

MM_DEVICE bf16_t *element_at(const strided_matrix &matrix, uint32_t row, uint32_t col) {
    return (bf16_t *)matrix.data + (row * matrix.stride[0] + col * matrix.stride[1]);
}

MM_DEVICE uint32_t load_pair(const strided_matrix &matrix, uint32_t row, uint32_t col) {
    return load_u16(element_at(matrix, row, col)) | load_u16(element_at(matrix, row, col + 1)) << 16;
}

MM_DEVICE u32x4 load_eight(const strided_matrix &matrix, bool whole, uint32_t row, uint32_t col) {
    if (whole)
        return load_u32x4(element_at(matrix, row, col));
    return {load_pair(matrix, row, col), load_pair(matrix, row, col + 2), load_pair(matrix, row, col + 4),
            load_pair(matrix, row, col + 6)};
}

MM_DEVICE void store_pair(const strided_matrix &matrix, uint32_t row, uint32_t col, uint32_t pair) {
    store_u16(element_at(matrix, row, col), pair);
    store_u16(element_at(matrix, row, col + 1), pair >> 16);
}

MM_DEVICE void store_eight(const strided_matrix &matrix, bool whole, uint32_t row, uint32_t col, u32x4 eight) {
    if (whole) {
        store_u32x4(element_at(matrix, row, col), eight);
        return;
    }
    store_pair(matrix, row, col, eight.x);
    store_pair(matrix, row, col + 2, eight.y);
    store_pair(matrix, row, col + 4, eight.z);
    store_pair(matrix, row, col + 6, eight.w);
}

#endif
