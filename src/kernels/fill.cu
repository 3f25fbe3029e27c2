/* NaN in every element of an output: what a failed call leaves. */
#include "kernels/strided.cuh"

MM_KERNEL(mm_fill_nan, fill_nan_params, ROW_THREADS) {
    const uint64_t elements = (uint64_t)p.rows * p.cols, step = (uint64_t)cta_count() * ROW_THREADS;
    for (uint64_t i = (uint64_t)cta_index() * ROW_THREADS + thread_index(); i < elements; i += step) {
        const int64_t offset = (int64_t)(i / p.cols) * p.to.stride[0] + (int64_t)(i % p.cols) * p.to.stride[1];
        if (p.wide)
            store_u32((float *)p.to.data + offset, 0x7fc00000);
        else
            store_u16((bf16_t *)p.to.data + offset, 0x7fc0);
    }
}
