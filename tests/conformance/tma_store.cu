/* Tensor stores and adds from shared memory that the CTA's threads wrote. */
#include "tools.cuh"

/* number[0]: bytes of the box, read from the input one CTA after another; number[1]: add instead of store; table: 5
 * coordinates a CTA. */
template <int dims> MM_DEVICE void store_box(const parameters &p) {
    const smem_t data = smem_base() + DATA_OFFSET;
    const uint32_t bytes = p.number[0];
    shared_from_global(p, data, p.in + (uint64_t)cta_index() * bytes, bytes);
    fence_async_shared();
    cta_sync();
    if (thread_index() == 0) {
        int32_t coordinates[dims];
        for (int d = 0; d < dims; d++)
            coordinates[d] = (int32_t)load_u32(p.table + cta_index() * 5 + d);
        if (p.number[1] != 0)
            tma_reduce_add<dims>(&p.map[0], data, coordinates);
        else
            tma_store<dims>(&p.map[0], data, coordinates);
        bulk_commit();
        bulk_wait<0>();
    }
}

MM_KERNEL(tma_store_2d, parameters, 128) {
    store_box<2>(p);
}
MM_KERNEL(tma_store_3d, parameters, 128) {
    store_box<3>(p);
}
