/* mbarriers: counts, phases, bytes that land, arrivals from the other CTA of a cluster. */
#include "tools.cuh"

/* number[0] threads arrive in each of number[1] phases, all but the last of them first. Before and after each batch
 * thread 0 writes down what the test says for the running parity and for the other one. */
MM_KERNEL(mbarrier_phases, parameters, 128) {
    const smem_t bar = smem_base();
    const uint32_t arrivals = p.number[0], phases = p.number[1], t = thread_index();
    if (t == 0) {
        mbarrier_init(bar, arrivals);
        mbarrier_init_fence();
    }
    cta_sync();
    for (uint32_t phase = 0; phase < phases; phase++) {
        for (uint32_t step = 0; step < 3; step++) {
            if (step == 1 && t + 1 < arrivals)
                mbarrier_arrive(bar);
            if (step == 2 && t + 1 == arrivals)
                mbarrier_arrive(bar);
            cta_sync();
            if (t == 0) {
                put(p, phase * 6 + step * 2, mbarrier_test(bar, phase & 1));
                put(p, phase * 6 + step * 2 + 1, mbarrier_test(bar, (phase & 1) ^ 1));
            }
            cta_sync();
        }
    }
}

/* table: number[0] copies of {source, destination, bytes}; number[1] says how their bytes are expected. Each of
 * number[2] phases makes all copies again, from the next part of the input, and writes down what landed. */
enum { EXPECT_AT_ARRIVAL, EXPECT_WITHOUT_ARRIVAL, EXPECT_EACH, EXPECT_AFTER_COPIES };
enum { COPIES_BYTES = 8192 };

MM_KERNEL(mbarrier_bytes, parameters, 64) {
    const smem_t bar = smem_base(), data = bar + DATA_OFFSET;
    const uint32_t copies = p.number[0], how = p.number[1], phases = p.number[2];
    if (thread_index() == 0) {
        mbarrier_init(bar, 2);
        mbarrier_init_fence();
    }
    cta_sync();
    for (uint32_t phase = 0; phase < phases; phase++) {
        shared_fill(p, data, COPIES_BYTES, 0xeeeeeeee);
        fence_async_shared();
        cta_sync();
        if (thread_index() == 0) {
            uint32_t all = 0;
            for (uint32_t i = 0; i < copies; i++)
                all += load_u32(p.table + 3 * i + 2);
            if (how == EXPECT_WITHOUT_ARRIVAL)
                mbarrier_expect(bar, all);
            if (how == EXPECT_AT_ARRIVAL)
                mbarrier_arrive_expect(bar, all);
            for (uint32_t i = 0; i < copies; i++) {
                const uint32_t from = load_u32(p.table + 3 * i), to = load_u32(p.table + 3 * i + 1),
                               bytes = load_u32(p.table + 3 * i + 2);
                if (how == EXPECT_EACH)
                    mbarrier_expect(bar, bytes);
                bulk_load(data + to, p.in + phase * COPIES_BYTES + from, bytes, bar);
            }
            if (how == EXPECT_AFTER_COPIES)
                mbarrier_arrive_expect(bar, all);
            if (how == EXPECT_WITHOUT_ARRIVAL || how == EXPECT_EACH)
                mbarrier_arrive(bar);
        }
        if (thread_index() == 33)
            mbarrier_arrive(bar);
        wait_phase(bar, phase & 1, p.late);
        shared_to_global(p, p.out + phase * COPIES_BYTES, data, COPIES_BYTES);
        cta_sync();
    }
}

/* Clusters of 2. In each of number[0] phases both CTAs count 32 arrivals from each CTA, their own among them. In the
 * first, the other CTA's last arrival is held back until the test has been seen to fail. */
MM_KERNEL(mbarrier_cluster, parameters, 32) {
    const smem_t bar = smem_base();
    const uint32_t rank = cluster_rank(), other = rank ^ 1, t = thread_index();
    if (t == 0) {
        mbarrier_init(bar, 64);
        mbarrier_init_fence();
    }
    cluster_sync();
    for (uint32_t phase = 0; phase < p.number[0]; phase++) {
        mbarrier_arrive_cluster(bar, rank);
        warp_sync();
        if (phase > 0 || t != 31)
            mbarrier_arrive_cluster(bar, other);
        if (phase == 0) {
            cluster_sync();
            if (t == 0)
                put(p, cta_index() * 2, mbarrier_test(bar, 0));
            cluster_sync();
            if (t == 31)
                mbarrier_arrive_cluster(bar, other);
        }
        wait_phase(bar, phase & 1, p.late);
    }
    warp_sync();
    if (t == 0)
        put(p, cta_index() * 2 + 1, p.number[0]);
    cluster_sync();
}
