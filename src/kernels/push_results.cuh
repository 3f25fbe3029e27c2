/* Result rows: the consumers stage them, and the store warp pushes them to their tokens' combine slots on the ranks
 * that own them; then it says so. */
#ifndef MM_KERNELS_PUSH_RESULTS_CUH
#define MM_KERNELS_PUSH_RESULTS_CUH

#include "kernels/call_wait.cuh"
#include "kernels/part_stores.cuh"

/* ---- Consumers ---- */

/* Rows of 512 bytes, their 16-byte chunks in the order of combine_chunk(). */
MM_DEVICE void stage_results(const float (&d)[128], const float (&weight)[2], uint32_t &turn) {
    const uint32_t row = lane_index() % 8, matrix = lane_index() / 8;
#pragma unroll
    for (uint32_t half = 0; half < 2; half++) {
        const smem_t at = part_take(turn) + row * (TILE_COLUMNS * 2);
#pragma unroll
        for (uint32_t group = 0; group < TILE_COLUMNS / 8; group += 4) {
            uint32_t pairs[4];
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) {
                const uint32_t first = 4 * (group + i) + 2 * half;
                pairs[i] = pack_bf16(weight[half] * d[first], weight[half] * d[first + 1]);
            }
            matrix_store(at + combine_chunk(group + matrix, row) * 16, pairs);
        }
        part_give(turn);
    }
}

/* ---- Store warp ---- */

#define EVERY_RANK (~(uint64_t)0)

/* Where the rows of a block go: row 32 * i + lane in entry i. */
struct block_rows {
    uint32_t source[4]; /* not a rank: a pad, or its rank wants nothing */
    uint32_t slot[4];   /* token * K + k */
};

/* `wanting`: the ranks that want results, a bit each. */
MM_DEVICE block_rows rows_of_block(const fused_call &p, uint32_t block, uint64_t wanting) {
    block_rows rows;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t row = block * TILE_ROWS + 32 * i + lane_index();
        const uint32_t source = load_u32(p.rows.source + row);
        rows.source[i] = source < p.group.world && (wanting >> source & 1) != 0 ? source : ~0u;
        rows.slot[i] = load_u32(p.rows.token + row) * p.top_k + load_u32(p.rows.slot + row);
    }
    return rows;
}

/* Of a row of results in a matrix of them. */
MM_DEVICE unsigned char *result_row(const fused_call &p, unsigned char *matrix, uint32_t row) {
    return matrix + (uint64_t)row * p.hidden * sizeof(bf16_t);
}

MM_DEVICE unsigned char *combine_slot(const fused_call &p, uint32_t source, uint32_t slot) {
    return result_row(p, p.group.segment[source] + p.combine, slot);
}

enum arrival { ARRIVED_ROWS, ARRIVED_DW };

/* Aligned: how many rows of the block go to rank first + lane. */
MM_DEVICE uint32_t rows_to_rank(const fused_call &p, const block_rows &rows, uint32_t first) {
    uint32_t own = 0;
    for (uint32_t rank = first; rank < p.group.world && rank < first + 32; rank++) {
        uint32_t count = 0;
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            count += count_bits(warp_ballot(rows.source[i] == rank));
        own = lane_index() == rank - first ? count : own;
    }
    return own;
}

/* Aligned: tells each rank how many of its rows in the block have come. */
MM_DEVICE void count_results(const fused_call &p, const block_rows &rows, arrival what) {
    for (uint32_t first = 0; first < p.group.world; first += 32) {
        const uint32_t own = rows_to_rank(p, rows, first);
        if (own > 0) {
            call_control *control = control_of(p.group, first + lane_index());
            call_flag *arrived = what == ARRIVED_DW ? control->dw_arrived : control->rows_arrived;
            add_release_system(&arrived[p.group.rank].value, own);
        }
    }
}

/* 8 rows of 512 bytes a part, two parts of each consumer warp. goes(source): whether a row of results goes anywhere;
 * place(source, slot): where. When this returns they have come; nobody has been told. */
template <typename row_goes, typename row_place>
MM_DEVICE void store_result_rows(const fused_call &p, const fused_task &task, const block_rows &rows,
                                 const row_goes &goes, const row_place &place, part_stores &s) {
    const uint32_t width = p.hidden - task.tile * TILE_COLUMNS;
    const uint32_t bytes = (width < TILE_COLUMNS ? width : TILE_COLUMNS) * sizeof(bf16_t);
#pragma unroll
    for (uint32_t group = 0; group < 2; group++)
#pragma unroll
        for (uint32_t half = 0; half < 2; half++)
#pragma unroll
            for (uint32_t w = 0; w < 4; w++) {
                const uint32_t warp = group * 4 + w, part = part_of_turn(warp, s.turn + half);
                const uint32_t holder = warp % 2 * 16 + half * 8 + lane_index() % 8;
                const uint32_t source = warp_shuffle(rows.source[warp / 2], holder);
                const uint32_t slot = warp_shuffle(rows.slot[warp / 2], holder);
                await_part(part, s.turn + half);
                if (lane_index() < 8 && goes(source))
                    bulk_store(place(source, slot) + task.tile * TILE_COLUMNS * sizeof(bf16_t),
                               part_address(part) + lane_index() * (TILE_COLUMNS * 2), bytes);
                stores_started(s, part);
            }
    s.turn += 2;
    stores_done(s);
    note_push(p.trace, p.group, TRACE_PUSH, task, rows.source, bytes);
}

/* Each row to its token's slot. */
MM_DEVICE block_rows push_results(const fused_call &p, const fused_task &task, uint64_t wanting, part_stores &s) {
    const block_rows rows = rows_of_block(p, task.block, wanting);
    store_result_rows(
        p, task, rows, [&](uint32_t source) { return source < p.group.world; },
        [&](uint32_t source, uint32_t slot) { return combine_slot(p, source, slot); }, s);
    return rows;
}

#endif
