/* Weight gradients; see wgrad.h. A task is one tile of one expert's dW1 and dW3 together (they share the rows of x), or
 * of its dW2. Its rows are converted MM_OUTER_DEPTH at a time, counted from the expert's first row. */
#include <string.h>

#include "cpu/wgrad.h"

/* A matrix of gradients cut into tiles. */
struct grid {
    struct mm_tiling rows, cols;
};

struct job {
    const struct mm_cpu_call *call;
    const mmoe_backward_args *args;
    struct grid inner; /* of dW1 and dW3 [I, H] */
    struct grid outer; /* of dW2 [H, I] */
    int64_t inner_tiles, outer_tiles;
};

/* Where a tile lies, and which rows are summed. */
struct place {
    int64_t expert, row, col;
    int32_t rows, cols;
    int64_t first, count; /* of the expert's rows */
};

static struct place place_of(const struct job *job, const struct grid *grid, int64_t expert, int64_t tile) {
    const mmoe_plan *plan = &job->call->plan->view;
    int64_t row = tile / grid->cols.count, col = tile % grid->cols.count;
    return (struct place){
        .expert = expert,
        .row = row * grid->rows.width,
        .col = col * grid->cols.width,
        .rows = mm_tile_width(&grid->rows, row),
        .cols = mm_tile_width(&grid->cols, col),
        .first = plan->expert_offset[expert],
        .count = plan->expert_rows[expert],
    };
}

static void load(const uint16_t *rows, int64_t pitch, int64_t count, int64_t cols, float *out, int64_t out_pitch) {
    for (int64_t i = 0; i < count; i++)
        mm_widen(cols, rows + i * pitch, out + i * out_pitch);
}

/* x as the experts saw it. */
static void load_x(const struct mm_cpu_call *call, const struct place *place, int64_t first, int64_t count,
                   float *out) {
    const uint16_t *x = call->x + first * call->hidden + place->col;
    if (call->layer->config.weight_on != MMOE_WEIGHT_ON_INPUT) {
        load(x, call->hidden, count, place->cols, out, place->cols);
        return;
    }
    for (int64_t i = 0; i < count; i++)
        mm_widen_scaled(place->cols, call->plan->view.row_weight[first + i], x + i * call->hidden,
                        out + i * place->cols);
}

/* `rows` rows of the thread's tile, from row `from` on, to the gradient; an expert without rows has a sum of zero. */
static void store(const struct job *job, const mmoe_tensor *gradient, const struct place *place, float *tile) {
    struct mm_matrix matrix = mm_matrix_of_expert(gradient, place->expert);
    if (place->count == 0 && job->args->accumulate)
        return;
    if (place->count == 0)
        memset(tile, 0, (size_t)place->rows * (size_t)place->cols * sizeof *tile);
    mm_store_tile(&matrix, place->row, place->col, place->rows, place->cols, tile, place->cols, job->args->accumulate);
}

static void gate_up_tile(const struct job *job, const struct place *place, const struct mm_workspace *space) {
    const struct mm_cpu_call *call = job->call;
    const bool gate = job->args->dgate.dims != 0, up = job->args->dup.dims != 0;
    const int64_t stacked = (gate + up) * place->rows, pitch = 2 * call->intermediate;
    for (int64_t at = 0; at < place->count; at += MM_OUTER_DEPTH) {
        int64_t depth = place->count - at < MM_OUTER_DEPTH ? place->count - at : MM_OUTER_DEPTH;
        const uint16_t *dgate = call->dgrad + (place->first + at) * pitch + place->row;
        if (gate)
            load(dgate, pitch, depth, place->rows, space->a, stacked);
        if (up)
            load(dgate + call->intermediate, pitch, depth, place->rows, space->a + gate * place->rows, stacked);
        load_x(call, place, place->first + at, depth, space->b);
        mm_gemm_outer(stacked, place->cols, depth, at == 0, space);
    }
    if (gate)
        store(job, &job->args->dgate, place, space->c);
    if (up)
        store(job, &job->args->dup, place, space->c + gate * place->rows * place->cols);
}

static void down_tile(const struct job *job, const struct place *place, const struct mm_workspace *space) {
    const struct mm_cpu_call *call = job->call;
    for (int64_t at = 0; at < place->count; at += MM_OUTER_DEPTH) {
        int64_t depth = place->count - at < MM_OUTER_DEPTH ? place->count - at : MM_OUTER_DEPTH;
        int64_t row = place->first + at;
        load(call->dy + row * call->hidden + place->row, call->hidden, depth, place->rows, space->a, place->rows);
        load(call->h + row * call->intermediate + place->col, call->intermediate, depth, place->cols, space->b,
             place->cols);
        mm_gemm_outer(place->rows, place->cols, depth, at == 0, space);
    }
    store(job, &job->args->ddown, place, space->c);
}

static void task(const void *context, int64_t index, int thread) {
    const struct job *job = context;
    const struct mm_workspace *space = mm_cpu_space(job->call, thread);
    int64_t tiles = job->inner_tiles + job->outer_tiles;
    int64_t expert = index / tiles, tile = index % tiles;
    if (tile < job->inner_tiles) {
        struct place place = place_of(job, &job->inner, expert, tile);
        gate_up_tile(job, &place, space);
    } else {
        struct place place = place_of(job, &job->outer, expert, tile - job->inner_tiles);
        down_tile(job, &place, space);
    }
}

void mm_wgrad(const struct mm_cpu_call *call, const mmoe_backward_args *args) {
    const int64_t hidden = call->hidden, intermediate = call->intermediate;
    struct job job = {
        .call = call,
        .args = args,
        .inner = {mm_tiling_of(intermediate, MM_OUTER_ROWS / 2), mm_tiling_of(hidden, MM_OUTER_COLS)},
        .outer = {mm_tiling_of(hidden, MM_OUTER_ROWS), mm_tiling_of(intermediate, MM_OUTER_COLS)},
    };
    if (args->dgate.dims != 0 || args->dup.dims != 0)
        job.inner_tiles = (int64_t)job.inner.rows.count * job.inner.cols.count;
    if (args->ddown.dims != 0)
        job.outer_tiles = (int64_t)job.outer.rows.count * job.outer.cols.count;
    mm_cpu_run_to_end(call, call->layer->local_experts * (job.inner_tiles + job.outer_tiles), task, &job);
}
