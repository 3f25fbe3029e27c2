/* Tensor loads: what lands where, in one CTA and in both CTAs of a cluster. */
#include "tools.cuh"

/* number[0]: bytes of the box. table: 5 coordinates a CTA. The output gets the shared memory as it lies. */
template <int dims> MM_DEVICE void load_box(const parameters &p) {
    const smem_t bar = smem_base(), data = bar + DATA_OFFSET;
    const uint32_t bytes = p.number[0];
    if (thread_index() == 0) {
        tma_prefetch_map(&p.map[0]);
        mbarrier_init(bar, 1);
        mbarrier_init_fence();
    }
    shared_fill(p, data, bytes, 0xeeeeeeee);
    fence_async_shared();
    cta_sync();
    if (thread_index() == 0) {
        int32_t coordinates[dims];
        for (int d = 0; d < dims; d++)
            coordinates[d] = (int32_t)load_u32(p.table + cta_index() * 5 + d);
        mbarrier_arrive_expect(bar, bytes);
        tma_load<dims>(data, &p.map[0], bar, coordinates);
    }
    wait_phase(bar, 0, p.late);
    shared_to_global(p, p.out + (uint64_t)cta_index() * bytes, data, bytes);
}

MM_KERNEL(tma_load_2d, parameters, 128) {
    load_box<2>(p);
}
MM_KERNEL(tma_load_3d, parameters, 128) {
    load_box<3>(p);
}
MM_KERNEL(tma_load_4d, parameters, 128) {
    load_box<4>(p);
}
MM_KERNEL(tma_load_5d, parameters, 128) {
    load_box<5>(p);
}

/* Clusters of 2. table, 6 words a CTA: the mask of the CTAs that its box goes to (0: it loads none), 5 coordinates. The
 * box of the CTA of rank r lands at r boxes into the data. */
template <int dims> MM_DEVICE void multicast_box(const parameters &p) {
    const smem_t bar = smem_base(), data = bar + DATA_OFFSET;
    const uint32_t bytes = p.number[0], rank = cluster_rank();
    if (thread_index() == 0) {
        mbarrier_init(bar, 1);
        mbarrier_init_fence();
    }
    shared_fill(p, data, 2 * bytes, 0xeeeeeeee);
    fence_async_shared();
    cluster_sync();
    uint32_t expected = 0;
    for (uint32_t r = 0; r < 2; r++)
        if (load_u32(p.table + (cta_index() - rank + r) * 6) >> rank & 1)
            expected += bytes;
    if (thread_index() == 0) {
        int32_t coordinates[dims];
        const uint32_t mask = load_u32(p.table + cta_index() * 6);
        for (int d = 0; d < dims; d++)
            coordinates[d] = (int32_t)load_u32(p.table + cta_index() * 6 + 1 + d);
        if (expected > 0)
            mbarrier_arrive_expect(bar, expected);
        if (mask != 0)
            tma_load<dims>(data + rank * bytes, &p.map[0], bar, coordinates, (uint16_t)mask);
    }
    if (expected > 0)
        wait_phase(bar, 0, p.late);
    /* A CTA that expects nothing must still not be written: it looks once its peer has all. */
    cluster_sync();
    shared_to_global(p, p.out + (uint64_t)cta_index() * 2 * bytes, data, 2 * bytes);
}

MM_KERNEL(tma_multicast_2d, parameters, 128) {
    multicast_box<2>(p);
}
MM_KERNEL(tma_multicast_5d, parameters, 128) {
    multicast_box<5>(p);
}
