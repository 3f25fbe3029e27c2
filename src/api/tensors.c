/* Makers of tensor views. They can't fail: what is wrong with a view is told by the call that gets it. */
#include "api/check.h"

mmoe_tensor mmoe_matrix(void *data, mmoe_dtype dtype, int64_t rows, int64_t cols) {
    return (mmoe_tensor){.data = data, .dtype = dtype, .dims = 2, .shape = {rows, cols}, .stride = {cols, 1}};
}

/* The product in unsigned arithmetic: sizes too large to be legal are refused later by their shape. */
mmoe_tensor mmoe_stack(void *data, mmoe_dtype dtype, int64_t count, int64_t rows, int64_t cols) {
    int64_t matrix = (int64_t)((uint64_t)rows * (uint64_t)cols);
    return (mmoe_tensor){
        .data = data, .dtype = dtype, .dims = 3, .shape = {count, rows, cols}, .stride = {matrix, cols, 1}};
}

mmoe_tensor mmoe_stack_of(void *const *experts, mmoe_dtype dtype, int64_t count, int64_t rows, int64_t cols) {
    return (mmoe_tensor){
        .experts = experts, .dtype = dtype, .dims = 3, .shape = {count, rows, cols}, .stride = {0, cols, 1}};
}

mmoe_tensor mmoe_stack_rows(mmoe_tensor stack, int64_t first, int64_t count) {
    int64_t bytes;
    if (stack.dims != 3 || stack.data == NULL || first < 0 || count < 0 || count > stack.shape[1] ||
        first > stack.shape[1] - count || __builtin_mul_overflow(first, stack.stride[1], &bytes) ||
        __builtin_mul_overflow(bytes, mm_dtype_bytes(stack.dtype), &bytes)) {
        return (mmoe_tensor){0};
    }
    stack.data = (void *)((uintptr_t)stack.data + (uintptr_t)bytes);
    stack.shape[1] = count;
    return stack;
}
