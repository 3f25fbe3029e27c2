/* Faults around asynchronous copies: fences, waits, byte counts, places. */
#include "tools.cuh"

MM_KERNEL(store_without_fence, plant, 128) {
    write_box(smem_base());
    if (!p.planted)
        fence_async_shared();
    cta_sync();
    if (thread_index() == 0) {
        tma_store<2>(&p.out_swizzled, smem_base(), {0, 0}); /* here: store_without_fence */
        bulk_commit();
        bulk_wait<0>();
    }
}

MM_KERNEL(bulk_load_without_fence, plant, 32) {
    const smem_t bar = smem_base(), data = bar + DATA;
    start_barriers(1, 1);
    if (thread_index() == 0) {
        store_u32x4(p.out, {1, 2, 3, 4});
        if (!p.planted)
            fence_async();
        mbarrier_arrive_expect(bar, 16);
        bulk_load(data, p.out, 16, bar); /* here: bulk_load_without_fence */
        wait_phase(bar, 0);
    }
}

/* Two boxes, one after another; the second wait has the first one's parity. */
MM_KERNEL(wrong_parity, plant, 64) {
    const smem_t bar = smem_base(), data = bar + DATA;
    start_barriers(1, 1);
    for (uint32_t i = 0; i < 2; i++) {
        if (thread_index() == 0)
            load_box(p, data + i * BOX_BYTES, bar, (int32_t)(i * 64));
        wait_phase(bar, p.planted ? 0 : i);
        const uint32_t word = smem_load_u32(data + i * BOX_BYTES + thread_index() * 4); /* here: wrong_parity */
        store_u32(p.out + i * 4096 + thread_index() * 4, word);
        cta_sync();
    }
}

MM_KERNEL(full_not_waited, plant, 64) {
    const smem_t bar = smem_base(), data = bar + DATA;
    start_barriers(1, 1);
    if (thread_index() == 0)
        load_box(p, data, bar, 0);
    if (warp_index() == 1) {
        if (!p.planted)
            wait_phase(bar, 0);
        store_u32(p.out + lane_index() * 4, smem_load_u32(data + lane_index() * 4)); /* here: full_not_waited */
    }
    if (warp_index() == 0)
        wait_phase(bar, 0);
}

/* Warp 0 loads three boxes into two stages; warp 1 reads them. `impatient`: warp 0 waits until a stage is full, and not
 * until it has been read, before it fills it again. */
MM_DEVICE void two_stages(const plant &p, uint32_t stage_bytes, bool impatient) {
    const smem_t full = smem_base(), empty = full + 16, data = full + DATA;
    if (thread_index() == 0) {
        for (uint32_t stage = 0; stage < 2; stage++) {
            mbarrier_init(full + 8 * stage, 1);
            mbarrier_init(empty + 8 * stage, 32);
        }
        mbarrier_init_fence();
    }
    cta_sync();
    if (thread_index() == 0)
        for (uint32_t i = 0; i < 3; i++) {
            const smem_t stage = data + i % 2 * stage_bytes;
            if (i >= 2)
                wait_phase((impatient ? full : empty) + i % 2 * 8, 0);
            load_box(p, stage, full + i % 2 * 8, (int32_t)(i * 64));
        }
    if (warp_index() == 1)
        for (uint32_t i = 0; i < 3; i++) {
            wait_phase(full + i % 2 * 8, i / 2);
            for (uint32_t at = lane_index() * 16; at < BOX_BYTES; at += 512) {
                const u32x4 piece = smem_load_u32x4(data + i % 2 * stage_bytes + at); /* here: stages */
                store_u32x4(p.out + i * BOX_BYTES + at, piece);
            }
            mbarrier_arrive(empty + i % 2 * 8);
        }
}

MM_KERNEL(stage_overwritten, plant, 64) {
    two_stages(p, BOX_BYTES, p.planted);
}

MM_KERNEL(stages_overlap, plant, 64) {
    two_stages(p, p.planted ? BOX_BYTES - 1024 : BOX_BYTES, false);
}

/* Two bulk copies land on one barrier, which expects fewer or more bytes than they bring. */
MM_DEVICE void two_copies(const plant &p, uint32_t expected) {
    const smem_t bar = smem_base(), data = bar + DATA;
    start_barriers(1, 1);
    if (thread_index() == 0) {
        mbarrier_arrive_expect(bar, expected);
        bulk_load(data, p.in, 256, bar);             /* here: too_few_bytes */
        bulk_load(data + 256, p.in + 256, 256, bar); /* here: too_few_bytes */
    }
    wait_phase(bar, 0);                                                              /* here: too_many_bytes */
    store_u32(p.out + thread_index() * 4, smem_load_u32(data + thread_index() * 4)); /* here: too_few_bytes */
}

MM_KERNEL(too_few_bytes, plant, 128) {
    two_copies(p, p.planted ? 256 : 512);
}

MM_KERNEL(too_many_bytes, plant, 128) {
    two_copies(p, p.planted ? 528 : 512);
}

/* A slot is filled again while a bulk store may still read it. */
MM_KERNEL(slot_reused, plant, 32) {
    if (thread_index() != 0)
        return;
    for (uint32_t i = 0; i < 2; i++) {
        if (i > 0 && !p.planted)
            bulk_wait_read<0>();
        smem_store_u32x4(smem_base(), {i, i, i, i}); /* here: slot_reused */
        fence_async_shared();
        bulk_store(p.out + 16 * i, smem_base(), 16);
        bulk_commit();
    }
    bulk_wait<0>();
}

/* What a bulk store wrote is read back before it is waited for: reading shared memory is not enough. */
MM_KERNEL(store_read_back, plant, 32) {
    if (thread_index() != 0)
        return;
    smem_store_u32x4(smem_base(), {1, 2, 3, 4});
    fence_async_shared();
    bulk_store(p.out, smem_base(), 16);
    bulk_commit();
    if (p.planted)
        bulk_wait_read<0>();
    else
        bulk_wait<0>();
    store_u32(p.out + 1024, load_u32(p.out)); /* here: store_read_back */
    bulk_wait<0>();
}

/* The CTA ends while its bulk store may still read shared memory. */
MM_KERNEL(store_outlives_cta, plant, 32) {
    if (thread_index() == 0) {
        smem_store_u32x4(smem_base(), {1, 2, 3, 4});
        fence_async_shared();
        bulk_store(p.out, smem_base(), 16); /* here: store_outlives_cta */
        bulk_commit();                      /* here: store_outlives_cta */
        if (!p.planted)
            bulk_wait_read<0>();
    }
}

MM_KERNEL(misaligned_box, plant, 32) {
    const smem_t bar = smem_base(), data = bar + DATA + (p.planted ? 64 : 0);
    start_barriers(1, 1);
    if (thread_index() == 0)
        load_box(p, data, bar, 0);
    wait_phase(bar, 0);
}

MM_KERNEL(ragged_copy, plant, 32) {
    const smem_t bar = smem_base(), data = bar + DATA;
    const uint32_t bytes = p.planted ? 24 : 32;
    start_barriers(1, 1);
    if (thread_index() == 0) {
        mbarrier_arrive_expect(bar, bytes);
        bulk_load(data, p.in, bytes, bar); /* here: ragged_copy */
    }
    wait_phase(bar, 0);
}

MM_KERNEL(wrong_dimensions, plant, 32) {
    const smem_t bar = smem_base(), data = bar + DATA;
    start_barriers(1, 1);
    if (thread_index() == 0) {
        mbarrier_arrive_expect(bar, BOX_BYTES);
        if (p.planted)
            tma_load<3>(data, &p.swizzled, bar, {0, 0, 0}); /* here: wrong_dimensions */
        else
            tma_load<2>(data, &p.swizzled, bar, {0, 0});
    }
    wait_phase(bar, 0);
}

/* A box that does not start at a multiple of 16 bytes. */
MM_KERNEL(ragged_box, plant, 32) {
    const smem_t bar = smem_base(), data = bar + DATA;
    start_barriers(1, 1);
    if (thread_index() == 0) {
        mbarrier_arrive_expect(bar, BOX_BYTES);
        tma_load<2>(data, &p.swizzled, bar, {p.planted ? -4 : -8, 0}); /* here: ragged_box */
    }
    wait_phase(bar, 0);
}

MM_KERNEL(store_below_zero, plant, 128) {
    write_box(smem_base());
    fence_async_shared();
    cta_sync();
    if (thread_index() == 0) {
        tma_store<2>(&p.out_swizzled, smem_base(), {0, p.planted ? -1 : 1}); /* here: store_below_zero */
        bulk_commit();
        bulk_wait<0>();
    }
}

/* The map is read from memory that holds no map. */
MM_KERNEL(no_map, plant, 32) {
    const smem_t bar = smem_base(), data = bar + DATA;
    start_barriers(1, 1);
    if (thread_index() == 0) {
        mbarrier_arrive_expect(bar, BOX_BYTES);
        tma_load<2>(data, p.planted ? (const tensor_map *)p.in : &p.swizzled, bar, {0, 0}); /* here: no_map */
    }
    wait_phase(bar, 0);
}
