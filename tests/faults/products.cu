/* Faults around wgmma: operands and accumulators. */
#include "tools.cuh"

enum { A_BYTES = BOX_BYTES, B_BYTES = 2 * BOX_BYTES };

struct tiles {
    smem_t bar, a, b;
};

MM_DEVICE tiles tiles_at(smem_t base) {
    return {base, base + DATA, base + DATA + A_BYTES};
}

MM_DEVICE void load_tiles(const tiles &t, const tensor_map *map) {
    start_barriers(1, 1);
    if (thread_index() == 0) {
        mbarrier_arrive_expect(t.bar, A_BYTES + B_BYTES);
        tma_load<2>(t.a, map, t.bar, {0, 0});
        tma_load<2>(t.b, map, t.bar, {0, 64});
        tma_load<2>(t.b + BOX_BYTES, map, t.bar, {0, 128});
    }
}

MM_DEVICE void store_first(const plant &p, float value) {
    store_u32(p.out + thread_index() * 4, float_bits(value));
}

MM_KERNEL(operands_without_fence, plant, 128) {
    const tiles t = tiles_at(smem_base());
    write_box(t.a);
    write_box(t.b);
    write_box(t.b + BOX_BYTES);
    if (!p.planted)
        fence_async_shared();
    cta_sync();
    float d[64];
    wgmma_fence();
    wgmma_bf16<K_MAJOR, K_MAJOR>(d, wgmma_operand_at<K_MAJOR>(t.a), /* here: operands_without_fence */
                                 wgmma_operand_at<K_MAJOR>(t.b), 0);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_settle(d);
    store_first(p, d[0]);
}

MM_KERNEL(operands_not_waited, plant, 128) {
    const tiles t = tiles_at(smem_base());
    load_tiles(t, &p.swizzled);
    if (!p.planted)
        wait_phase(t.bar, 0);
    float d[64];
    wgmma_fence();
    wgmma_bf16<K_MAJOR, K_MAJOR>(d, wgmma_operand_at<K_MAJOR>(t.a), /* here: operands_not_waited */
                                 wgmma_operand_at<K_MAJOR>(t.b), 0);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_settle(d);
    store_first(p, d[0]);
    wait_phase(t.bar, 0);
}

/* The stage is given back while a wgmma still reads it, and loaded again. */
MM_KERNEL(operands_overwritten, plant, 128) {
    const tiles t = tiles_at(smem_base());
    load_tiles(t, &p.swizzled);
    wait_phase(t.bar, 0);
    float d[64];
    wgmma_fence();
    wgmma_bf16<K_MAJOR, K_MAJOR>(d, wgmma_operand_at<K_MAJOR>(t.a), /* here: operands_overwritten */
                                 wgmma_operand_at<K_MAJOR>(t.b), 0);
    wgmma_commit();
    if (!p.planted)
        wgmma_wait<0>();
    cta_sync();
    if (thread_index() == 0) {
        mbarrier_arrive_expect(t.bar, BOX_BYTES);
        tma_load<2>(t.a, &p.swizzled, t.bar, {0, 192}); /* here: operands_overwritten */
    }
    wgmma_wait<0>();
    wgmma_settle(d);
    store_first(p, d[0]);
    wait_phase(t.bar, 1);
}

MM_KERNEL(wrong_swizzle, plant, 128) {
    const tiles t = tiles_at(smem_base());
    load_tiles(t, p.planted ? &p.plain : &p.swizzled);
    wait_phase(t.bar, 0);
    float d[64];
    wgmma_fence();
    wgmma_bf16<K_MAJOR, K_MAJOR>(d, wgmma_operand_at<K_MAJOR>(t.a), /* here: wrong_swizzle */
                                 wgmma_operand_at<K_MAJOR>(t.b), 0);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_settle(d);
    store_first(p, d[0]);
}

MM_KERNEL(misaligned_operand, plant, 128) {
    const tiles t = tiles_at(smem_base());
    load_tiles(t, &p.swizzled);
    wait_phase(t.bar, 0);
    float d[64];
    wgmma_fence();
    wgmma_bf16<K_MAJOR, K_MAJOR>(d, /* here: misaligned_operand */
                                 wgmma_operand_at<K_MAJOR>(t.a + (p.planted ? 512 : 0)), wgmma_operand_at<K_MAJOR>(t.b),
                                 0);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_settle(d);
    store_first(p, d[0]);
}

MM_KERNEL(operand_out_of_bounds, plant, 128) {
    const tiles t = tiles_at(smem_base());
    load_tiles(t, &p.swizzled);
    wait_phase(t.bar, 0);
    float d[64];
    wgmma_fence();
    wgmma_bf16<K_MAJOR, K_MAJOR>(d, wgmma_operand_at<K_MAJOR>(t.a), /* here: operand_out_of_bounds */
                                 wgmma_operand_at<K_MAJOR>(t.b + (p.planted ? BOX_BYTES : 0)), 0);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_settle(d);
    store_first(p, d[0]);
}

/* Two warps come to one product, two to another with the same operands. */
MM_KERNEL(products_at_two_places, plant, 128) {
    const tiles t = tiles_at(smem_base());
    load_tiles(t, &p.swizzled);
    wait_phase(t.bar, 0);
    float d[64];
    const wgmma_operand a = wgmma_operand_at<K_MAJOR>(t.a), b = wgmma_operand_at<K_MAJOR>(t.b);
    wgmma_fence();
    if (p.planted && warp_index() < 2)
        wgmma_bf16<K_MAJOR, K_MAJOR>(d, a, b, 0); /* here: products_at_two_places */
    else
        wgmma_bf16<K_MAJOR, K_MAJOR>(d, a, b, 0); /* here: products_at_two_places */
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_settle(d);
    store_first(p, d[0]);
}

/* The accumulators are changed while the product is under way. */
MM_KERNEL(accumulators_written, plant, 128) {
    const tiles t = tiles_at(smem_base());
    load_tiles(t, &p.swizzled);
    wait_phase(t.bar, 0);
    float d[64];
    wgmma_fence();
    wgmma_bf16<K_MAJOR, K_MAJOR>(d, wgmma_operand_at<K_MAJOR>(t.a), wgmma_operand_at<K_MAJOR>(t.b), 0);
    wgmma_commit();
    if (p.planted)
        d[5] = 0;
    wgmma_wait<0>(); /* here: accumulators_written */
    wgmma_settle(d);
    store_first(p, d[5]);
}

/* The accumulators are used before the wait that covers them. */
MM_KERNEL(accumulators_read, plant, 128) {
    const tiles t = tiles_at(smem_base());
    load_tiles(t, &p.swizzled);
    wait_phase(t.bar, 0);
    float d[64];
    wgmma_fence();
    wgmma_bf16<K_MAJOR, K_MAJOR>(d, wgmma_operand_at<K_MAJOR>(t.a), wgmma_operand_at<K_MAJOR>(t.b), 0);
    wgmma_commit();
    if (!p.planted)
        wgmma_wait<0>();
    wgmma_settle(d);      /* here: accumulators_read */
    store_first(p, d[0]); /* here: accumulators_read */
    wgmma_wait<0>();
}

/* Two groups, and a wait that leaves the second one pending while its result is used. */
MM_KERNEL(wait_too_weak, plant, 128) {
    const tiles t = tiles_at(smem_base());
    load_tiles(t, &p.swizzled);
    wait_phase(t.bar, 0);
    float first[64], second[64];
    wgmma_fence();
    wgmma_bf16<K_MAJOR, K_MAJOR>(first, wgmma_operand_at<K_MAJOR>(t.a), wgmma_operand_at<K_MAJOR>(t.b), 0);
    wgmma_commit();
    wgmma_bf16<K_MAJOR, K_MAJOR>(second, wgmma_operand_at<K_MAJOR>(t.a), wgmma_operand_at<K_MAJOR>(t.b), 0);
    wgmma_commit();
    wgmma_wait<1>();
    wgmma_settle(first);
    if (!p.planted)
        wgmma_wait<0>();
    wgmma_settle(second);                 /* here: wait_too_weak */
    store_first(p, first[0] + second[0]); /* here: wait_too_weak */
    wgmma_wait<0>();
}

MM_KERNEL(accumulators_without_fence, plant, 128) {
    const tiles t = tiles_at(smem_base());
    load_tiles(t, &p.swizzled);
    wait_phase(t.bar, 0);
    float d[64];
    for (int i = 0; i < 64; i++)
        d[i] = 1;
    if (!p.planted)
        wgmma_fence();
    wgmma_bf16<K_MAJOR, K_MAJOR>(d, wgmma_operand_at<K_MAJOR>(t.a), /* here: accumulators_without_fence */
                                 wgmma_operand_at<K_MAJOR>(t.b), 1);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_settle(d);
    store_first(p, d[0]);
}
