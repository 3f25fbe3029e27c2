/* Contiguous bulk copies and the groups they are waited for in. */
#include "tools.cuh"

enum { PIECE_BYTES = 128, LANES = 32, SLOTS = 3 };

/* Each lane sends number[0] pieces through a ring of its own, a group a piece, refilling a slot as soon as its group
 * has been read. Piece i of lane l goes to place i * 32 + l. The sum of what the lane then reads back of its last piece
 * follows the pieces. */
MM_KERNEL(bulk_store_ring, parameters, 32) {
    const uint32_t lane = lane_index(), pieces = p.number[0];
    const smem_t ring = smem_base() + lane * SLOTS * PIECE_BYTES;
    for (uint32_t i = 0; i < pieces; i++) {
        const smem_t slot = ring + i % SLOTS * PIECE_BYTES;
        const uint64_t place = ((uint64_t)i * LANES + lane) * PIECE_BYTES;
        bulk_wait_read<SLOTS - 1>();
        for (uint32_t at = 0; at < PIECE_BYTES; at += 16)
            smem_store_u32x4(slot + at, load_u32x4(p.in + place + at));
        fence_async_shared();
        bulk_store(p.out + place, slot, PIECE_BYTES);
        bulk_commit();
    }
    bulk_wait<0>();
    uint32_t sum = 0;
    for (uint32_t at = 0; at < PIECE_BYTES; at += 4)
        sum += load_u32_l2(p.out + ((uint64_t)(pieces - 1) * LANES + lane) * PIECE_BYTES + at);
    put(p, pieces * LANES * PIECE_BYTES / 4 + lane, sum);
}

/* table: number[0] stores of {destination, source, bytes}, several to a group; `bulk_wait<1>` lets the last group be
 * under way while what the others stored is read back into the second half of the output. */
MM_KERNEL(bulk_store_groups, parameters, 64) {
    const smem_t data = smem_base() + DATA_OFFSET;
    const uint32_t stores = p.number[0], bytes = p.number[1];
    shared_from_global(p, data, p.in, bytes);
    fence_async_shared();
    cta_sync();
    if (thread_index() == 32) {
        for (uint32_t i = 0; i < stores; i++) {
            bulk_store(p.out + load_u32(p.table + 3 * i), data + load_u32(p.table + 3 * i + 1),
                       load_u32(p.table + 3 * i + 2));
            if (i % 3 == 2 || i + 2 >= stores)
                bulk_commit();
        }
        bulk_wait<1>();
        for (uint32_t i = 0; i + 1 < stores; i++) {
            const uint32_t to = load_u32(p.table + 3 * i), size = load_u32(p.table + 3 * i + 2);
            for (uint32_t at = to; at < to + size; at += 16)
                store_u32x4(p.out + bytes + at, load_u32x4_l2(p.out + at));
        }
        bulk_wait<0>();
    }
}
