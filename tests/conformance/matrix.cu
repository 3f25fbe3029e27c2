/* Matrix stores and loads: four 8 x 8 matrices of 16-bit elements between a warp's registers and shared memory. */
#include "tools.cuh"

enum { WARPS = 4, WARP_BYTES = 1024, STORE = 0, STORE_TRANSPOSED = 1, LOAD = 2 };

/* number[0]: what to do; table: for each lane the offset of its row. A store takes 4 words a lane from the input and
 * the output gets the warp's shared memory; a load finds the input in shared memory and the output gets 4 words a lane.
 */
MM_KERNEL(matrix_move, parameters, 128) {
    const uint32_t what = p.number[0], t = thread_index(), warp = warp_index();
    const smem_t data = smem_base() + warp * WARP_BYTES, row = data + load_u32(p.table + t);
    uint32_t value[4];
    if (what == LOAD) {
        shared_from_global(p, smem_base(), p.in, WARPS * WARP_BYTES);
        cta_sync();
        matrix_load(row, value);
        for (int i = 0; i < 4; i++)
            put(p, t * 4 + i, value[i]);
        return;
    }
    shared_fill(p, smem_base(), WARPS * WARP_BYTES, 0xeeeeeeee);
    cta_sync();
    for (int i = 0; i < 4; i++)
        value[i] = get(p, t * 4 + i);
    if (what == STORE)
        matrix_store(row, value);
    else
        matrix_store_transposed(row, value);
    cta_sync();
    shared_to_global(p, p.out, smem_base(), WARPS * WARP_BYTES);
}
