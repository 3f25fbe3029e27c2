/* A small product the way the real kernels make one: a producer warp and two consumer warpgroups that trade registers,
 * a ring of stages with full and empty barriers, in one CTA or with B shared by the two CTAs of a cluster. */
#include "tools.cuh"

enum { ROWS = 128, COLUMNS = 256, TILE_K = 64, STAGES = 3, WARPGROUP = 128, CONSUMERS = 2 };
enum { A_BYTES = ROWS * TILE_K * 2, B_BYTES = COLUMNS * TILE_K * 2, STAGE_BYTES = A_BYTES + B_BYTES };

struct ring {
    smem_t full, empty, data;
};

MM_DEVICE smem_t stage_at(const ring &r, uint32_t i) {
    return r.data + i % STAGES * STAGE_BYTES;
}

/* number[0] tiles of k; number[1] products, one after another, of different rows of a. In a cluster each CTA has its
 * own rows and loads half of B for both. */
template <int ctas> MM_DEVICE void produce(const parameters &p, const ring &r) {
    const uint32_t tiles = p.number[0], products = p.number[1], rank = cluster_rank();
    for (uint32_t i = 0; i < tiles * products; i++) {
        const smem_t full = r.full + i % STAGES * 8, stage = stage_at(r, i);
        const int32_t k = (int32_t)(i % tiles * TILE_K),
                      row = (int32_t)((i / tiles * cta_count() + cta_index()) * ROWS);
        if (i >= STAGES)
            wait_phase(r.empty + i % STAGES * 8, (i / STAGES - 1) & 1, p.late);
        mbarrier_arrive_expect(full, STAGE_BYTES);
        tma_load<2>(stage, &p.map[0], full, {k, row});
        const uint32_t part = COLUMNS / ctas * rank;
        tma_load<2>(stage + A_BYTES + part * 128, &p.map[1], full, {k, (int32_t)part}, ctas == 1 ? 0 : 3);
    }
}

template <int ctas> MM_DEVICE void consume(const parameters &p, const ring &r) {
    const uint32_t tiles = p.number[0], products = p.number[1], t = thread_index() % WARPGROUP,
                   warpgroup = thread_index() / WARPGROUP - 1;
    float d[COLUMNS / 2];
    for (uint32_t product = 0; product < products; product++) {
        for (uint32_t tile = 0; tile < tiles; tile++) {
            const uint32_t i = product * tiles + tile;
            wait_phase(r.full + i % STAGES * 8, i / STAGES & 1, p.late);
            const wgmma_operand a = wgmma_operand_at<K_MAJOR>(stage_at(r, i) + warpgroup * (A_BYTES / 2)),
                                b = wgmma_operand_at<K_MAJOR>(stage_at(r, i) + A_BYTES);
            wgmma_fence();
#pragma unroll
            for (int step = 0; step < TILE_K / 16; step++)
                wgmma_bf16<K_MAJOR, K_MAJOR>(d, wgmma_operand_add(a, step * 32), wgmma_operand_add(b, step * 32),
                                             tile > 0 || step > 0);
            wgmma_commit();
            /* The tile before has been read: its stage is free in every CTA that writes it. */
            wgmma_wait<1>();
            if (tile > 0 && t < ctas) {
                const smem_t empty = r.empty + (i - 1) % STAGES * 8;
                if (ctas == 1)
                    mbarrier_arrive(empty);
                else
                    mbarrier_arrive_cluster(empty, t);
            }
        }
        wgmma_wait<0>();
        wgmma_settle(d);
        if (t < ctas) {
            const smem_t empty = r.empty + (product * tiles + tiles - 1) % STAGES * 8;
            if (ctas == 1)
                mbarrier_arrive(empty);
            else
                mbarrier_arrive_cluster(empty, t);
        }
        const uint32_t row = (product * cta_count() + cta_index()) * ROWS + warpgroup * 64 + t / 32 * 16 + t % 32 / 4;
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++)
            put(p, (row + i % 4 / 2 * 8) * COLUMNS + i / 4 * 8 + t % 4 * 2 + i % 2, float_bits(d[i]));
    }
}

template <int ctas> MM_DEVICE void pipeline(const parameters &p) {
    const ring r = {smem_base(), smem_base() + 64, smem_base() + DATA_OFFSET};
    if (thread_index() == 0) {
        for (uint32_t stage = 0; stage < STAGES; stage++) {
            mbarrier_init(r.full + stage * 8, 1);
            mbarrier_init(r.empty + stage * 8, CONSUMERS * ctas);
        }
        mbarrier_init_fence();
    }
    if (ctas == 1)
        cta_sync();
    else
        cluster_sync();
    if (thread_index() < WARPGROUP) {
        registers_give<40>();
        if (thread_index() == 0)
            produce<ctas>(p, r);
    } else {
        registers_take<232>();
        consume<ctas>(p, r);
    }
    if (ctas > 1)
        cluster_sync();
}

MM_KERNEL(pipeline_cta, parameters, 384) {
    pipeline<1>(p);
}
MM_KERNEL(pipeline_cluster, parameters, 384) {
    pipeline<2>(p);
}
