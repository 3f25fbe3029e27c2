/* Weight gradients: an expert's rows are the contraction, both operands come MN-major straight from the row pools.
 *
 * A unit is two tiles of 128 output rows, one a CTA, and one tile of 256 columns: the CTAs share B. An expert without
 * rows gets zeros, or nothing when gradients accumulate. The pads of a pool are zero, so the last step of an expert
 * needs no mask. */
#ifndef MM_KERNELS_WGRAD_CUH
#define MM_KERNELS_WGRAD_CUH

#include "kernels/backward_params.h"
#include "kernels/load.cuh"
#include "kernels/multiply.cuh"
#include "kernels/store.cuh"
#include "kernels/sum_results.cuh"

struct wgrad_task {
    uint32_t expert, output;
    int32_t row, column; /* of the tile in the output; may lie past the end */
    int32_t a_column;    /* of the tile's rows in the pool of a */
    int32_t first_row;   /* of the contraction */
    uint32_t steps;
};

struct wgrad_walk {
    uint32_t round, units, row_tiles, row_pairs, column_tiles;
    bool spoils; /* no sums: the tiles become NaN */
};

/* What a launch has to do, from how its call has gone so far. */
enum wgrad_purpose { WGRAD_SUM, WGRAD_SPOIL, WGRAD_NOTHING };

MM_DEVICE wgrad_purpose purpose_of(const wgrad_params &p) {
    if (!p.in_call)
        return WGRAD_SUM;
    const call_state *state = p.call.group.state;
    const bool failed = load_u32(&state->result.outcome) != CALL_GOOD || load_u32(&state->gave_up) != 0;
    if (p.closing)
        return failed && !p.accumulate ? WGRAD_SPOIL : WGRAD_NOTHING;
    return failed ? WGRAD_NOTHING : WGRAD_SUM;
}

/* From here on a failure leaves a part of the sums. */
MM_DEVICE void note_adding(const wgrad_params &p) {
    if (p.in_call && p.accumulate && cta_index() == 0 && consumer_warp() == 0 && elect_one())
        store_u32(&p.call.group.state->adding, load_u32(&p.call.group.state->call));
}

MM_DEVICE wgrad_walk wgrad_walk_begin(const wgrad_params &p) {
    wgrad_walk walk = {};
    walk.row_tiles = (p.m + TILE_ROWS - 1) / TILE_ROWS;
    walk.row_pairs = (p.outputs * walk.row_tiles + 1) / 2;
    walk.column_tiles = TILES_OF(p.n);
    const wgrad_purpose purpose = purpose_of(p);
    walk.spoils = purpose == WGRAD_SPOIL;
    walk.units = purpose == WGRAD_NOTHING ? 0 : p.segments.experts * walk.row_pairs * walk.column_tiles;
    return walk;
}

/* Units go to clusters in turn, to and fro: who gets the first one of a round, which is the largest, gets the last one,
 * the smallest, of the next. */
MM_DEVICE uint32_t unit_of_round(uint32_t round) {
    const uint32_t clusters = cta_count() / CLUSTER_CTAS, cluster = cta_index() / CLUSTER_CTAS;
    return round * clusters + (round % 2 == 0 ? cluster : clusters - 1 - cluster);
}

/* The order of a call that has failed may be any. */
MM_DEVICE uint32_t expert_in_turn(const wgrad_walk &walk, const row_segments &segments, uint32_t turn) {
    return segments.by_rows == nullptr || walk.spoils ? turn : load_u32(segments.by_rows + turn);
}

MM_DEVICE bool wgrad_walk_next(wgrad_walk &walk, const wgrad_params &p, wgrad_task &task) {
    const uint32_t per_expert = walk.row_pairs * walk.column_tiles, clusters = cta_count() / CLUSTER_CTAS;
    while (walk.round * clusters < walk.units) {
        const uint32_t unit = unit_of_round(walk.round++);
        if (unit >= walk.units)
            continue;
        task.expert = expert_in_turn(walk, p.segments, unit / per_expert);
        const uint32_t used = load_u32(p.segments.used_rows + task.expert);
        if (used == 0 && p.accumulate)
            continue;
        const uint32_t in_expert = unit % per_expert;
        const uint32_t row_tile = 2 * (in_expert / walk.column_tiles) + cluster_rank();
        task.output = row_tile >= walk.row_tiles && p.outputs > 1;
        task.row = (int32_t)((row_tile - task.output * walk.row_tiles) * TILE_ROWS);
        task.a_column = task.row + (int32_t)(task.output * p.m);
        task.column = (int32_t)(in_expert % walk.column_tiles * TILE_COLUMNS);
        task.first_row = (int32_t)load_u32(p.segments.first_row + task.expert);
        task.steps = walk.spoils ? 0 : (used + TILE_DEPTH - 1) / TILE_DEPTH;
        return true;
    }
    return false;
}

/* For a trace: of all that the expert has in this launch. */
MM_DEVICE uint32_t tile_of(const wgrad_walk &walk, const wgrad_task &task) {
    const uint32_t row_tile = task.output * walk.row_tiles + (uint32_t)task.row / TILE_ROWS;
    return row_tile * walk.column_tiles + (uint32_t)task.column / TILE_COLUMNS;
}

MM_DEVICE void produce(const wgrad_params &p) {
    open_log(TRACE_LOADER);
    ring at = {0, 1};
    wgrad_walk walk = wgrad_walk_begin(p);
    wgrad_task task;
    while (wgrad_walk_next(walk, p, task)) {
        for (uint32_t step = 0; step < task.steps; step++) {
            const smem_t bar = stage_expect(at, STAGE_BYTES), stage = stage_address(at.stage);
            const int32_t row = task.first_row + (int32_t)step * TILE_DEPTH;
            tma_load<3>(stage, &p.a, bar, {0, row, task.a_column / 64});
            tma_load<3>(stage + STAGE_A_BYTES + cluster_rank() * 2 * BLOCK_BYTES, &p.b, bar,
                        {0, row, task.column / 64 + (int32_t)cluster_rank() * 2}, BOTH_CTAS);
            ring_next(at);
        }
        note(p.call.trace, TRACE_LOAD_WGRAD, task.expert, tile_of(walk, task));
    }
    close_log(p.call.trace, TRACE_LOADER);
}

/* One word to the warp's 16 rows of a tile, in pieces of `columns`: zeros are the gradient of an expert without rows.
 */
MM_DEVICE void store_words(const wgrad_params &p, const wgrad_task &task, int32_t columns, uint32_t word,
                           staging &out) {
    const weight_view view = weight_of(p.out[task.output], task.expert);
    const int32_t row = task.row + (int32_t)warp_row();
    for (int32_t column = 0; column < TILE_COLUMNS; column += columns) {
        const smem_t piece = staging_take(out);
        for (uint32_t i = 0; i < PIECE_BYTES / 512; i++)
            smem_store_u32x4(piece + i * 512 + lane_index() * 16, u32x4{word, word, word, word});
        if (staging_ready()) {
            tma_store<3>(view.map, piece, {task.column + column, row, view.expert});
            bulk_commit();
        }
    }
}

/* The consumers' tasks. Pieces hold `piece_columns`, `nan` is a word of them that holds no number; epilogue(d, task)
 * takes a tile's sums out. */
template <typename tile_epilogue>
MM_DEVICE void wgrad_consume(const wgrad_params &p, int32_t piece_columns, uint32_t nan, staging &out,
                             const tile_epilogue &epilogue) {
    ring at = {0, 0};
    wgrad_walk walk = wgrad_walk_begin(p);
    wgrad_task task;
    float d[128];
    open_consumer_log(p.call.trace);
    if (walk.units > 0)
        note_adding(p);
    while (wgrad_walk_next(walk, p, task)) {
        if (task.steps == 0) {
            store_words(p, task, piece_columns, walk.spoils ? nan : 0, out);
        } else {
            multiply<MN_MAJOR, MN_MAJOR>(d, at, task.steps);
            note_together(p.call.trace, TRACE_MULTIPLY_WGRAD, task.expert, tile_of(walk, task));
            epilogue(d, task);
        }
        note_together(p.call.trace, TRACE_STAGE_WGRAD, task.expert, tile_of(walk, task));
    }
    bulk_wait<0>();
    close_consumer_log(p.call.trace);
}

/* ---- Meanwhile ---- */

#define MEANWHILE_LOOK_NS 500 /* nobody waits for these warps */

MM_DEVICE smem_t all_loaded(void) {
    return smem_base() + ALL_LOADED_OFFSET;
}

/* Aligned: whether the CTA's last operands are on their way, after which nobody is to wait for the other warps. */
MM_DEVICE bool has_loaded_all(void) {
    return warp_ballot(mbarrier_test(all_loaded(), 0)) != 0;
}

/* Aligned: whether every result of this rank's tokens has come. */
MM_DEVICE bool have_arrived(const call_group &group) {
    bool there = true;
    for (uint32_t rank = lane_index(); rank < group.world; rank += 32)
        there = there && reached(load_acquire_system(&own_control(group)->rows_arrived[rank].value),
                                 load_u32(&group.state->rows_target[rank]));
    there = warp_ballot(!there) == 0;
    warp_sync();
    return there;
}

/* By warps that have nothing to do while the others multiply: what tokens they get to. The end of the call sums the
 * rest. */
MM_DEVICE void sum_meanwhile(const wgrad_params &p) {
    if (!p.in_call || p.dx.data == nullptr || purpose_of(p) != WGRAD_SUM)
        return;
    open_log(own_role());
    while (!have_arrived(p.call.group)) {
        if (has_loaded_all())
            return;
        sleep_ns(MEANWHILE_LOOK_NS);
    }
    note(p.call.trace, TRACE_AWAIT_RESULTS);
    sum_tokens<1>(p.call, p.dx, [] { return has_loaded_all(); });
    close_log(p.call.trace, own_role());
}

MM_DEVICE void produce_and_tell(const wgrad_params &p) {
    produce(p);
    mbarrier_arrive(all_loaded());
}

template <typename consumer> MM_DEVICE void wgrad_run(const wgrad_params &p, const consumer &consume) {
    if (thread_index() == 0)
        mbarrier_init(all_loaded(), 1);
    gemm_run<88, 208>([&] { produce_and_tell(p); }, consume, [&] { sum_meanwhile(p); });
}

#endif
