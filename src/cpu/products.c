/* The four row products; see products.h. A task is one tile of columns of one run. */
#include <string.h>

#include "cpu/activation.h"
#include "cpu/combine.h"
#include "cpu/products.h"

enum { GATE_UP_COLS = MM_GEMM_COLS / 2 }; /* a tile of gate columns and the same up columns are one sgemm */
_Static_assert(MM_GEMM_COLS <= MM_GRAD_COLS, "a tile's row fits the gradient's scratch");

/* ---- Plan ---- */

static struct mm_gemm_form form_of(const struct mm_gemm_shape *shape, struct mm_cpu_group *cpu) {
    for (int i = 0; i < cpu->forms_known; i++) {
        const struct mm_gemm_shape *known = &cpu->forms[i].shape;
        if (known->depth == shape->depth && known->cols == shape->cols && known->layout == shape->layout)
            return cpu->forms[i].form;
    }
    struct mm_gemm_form form = mm_gemm_probe(shape, &cpu->spaces[0]);
    if (cpu->forms_known < MM_KNOWN_FORMS)
        cpu->forms[cpu->forms_known++] = (struct mm_known_form){*shape, form};
    return form;
}

static struct mm_product_plan plan_product(int64_t depth, struct mm_tiling tiling, int32_t stacked,
                                           enum mm_gemm_layout layout, struct mm_cpu_group *cpu) {
    struct mm_product_plan plan = {.tiling = tiling};
    plan.shape[0] = (struct mm_gemm_shape){depth, tiling.width * stacked, layout};
    plan.shape[1] = (struct mm_gemm_shape){depth, tiling.last * stacked, layout};
    for (int i = tiling.count == 1; i < 2; i++)
        plan.form[i] = form_of(&plan.shape[i], cpu);
    return plan;
}

void mm_products_plan(const mmoe_layer_config *config, struct mm_cpu_group *cpu, struct mm_cpu_layer *layer) {
    const int64_t hidden = config->hidden, intermediate = config->intermediate;
    struct mm_tiling hidden_tiles = mm_tiling_of(hidden, MM_GEMM_COLS);
    layer->product[MM_PRODUCT_GATE_UP] =
        plan_product(hidden, mm_tiling_of(intermediate, GATE_UP_COLS), 2, MM_GEMM_COLS_DEPTH, cpu);
    layer->product[MM_PRODUCT_DOWN] = plan_product(intermediate, hidden_tiles, 1, MM_GEMM_COLS_DEPTH, cpu);
    layer->product[MM_PRODUCT_DH] =
        plan_product(hidden, mm_tiling_of(intermediate, MM_GEMM_COLS), 1, MM_GEMM_DEPTH_COLS, cpu);
    layer->product[MM_PRODUCT_DX] = plan_product(2 * intermediate, hidden_tiles, 1, MM_GEMM_DEPTH_COLS, cpu);
}

/* ---- A tile of one run ---- */

struct job {
    const struct mm_cpu_call *call;
    const struct mm_product_plan *product;
    bool with_h;
};

/* What a task works on, and the weights that its loader reads. */
struct tile {
    const struct job *job;
    struct mm_run run;
    int64_t number, at; /* of the tile; its first column */
    int32_t width;
    struct mm_matrix gate, up, down;
    int64_t intermediate;
};

static struct tile tile_of(const struct job *job, int64_t index) {
    const struct mm_cpu_call *call = job->call;
    const struct mm_tiling *tiling = &job->product->tiling;
    struct tile tile = {.job = job, .run = mm_cpu_runs(call)[index / tiling->count], .number = index % tiling->count};
    tile.at = tile.number * tiling->width;
    tile.width = mm_tile_width(tiling, tile.number);
    tile.gate = mm_matrix_of_expert(call->gate, tile.run.expert);
    tile.up = mm_matrix_of_expert(call->up, tile.run.expert);
    tile.down = mm_matrix_of_expert(call->down, tile.run.expert);
    tile.intermediate = call->intermediate;
    return tile;
}

/* a: row 0 of the left operand's rows; the result is [run.rows, columns of the tile]. */
static const float *multiply(const struct tile *tile, const uint16_t *a, int64_t a_pitch, const float *row_scale,
                             void (*load)(const void *, int64_t, int64_t, float *), int thread) {
    const struct mm_product_plan *product = tile->job->product;
    const int last = tile->number == product->tiling.count - 1;
    const struct mm_workspace *space = mm_cpu_space(tile->job->call, thread);
    struct mm_gemm gemm = {
        .shape = product->shape[last],
        .form = product->form[last],
        .a = a + tile->run.row * a_pitch,
        .a_pitch = a_pitch,
        .a_scale = row_scale == NULL ? NULL : row_scale + tile->run.row,
        .load = load,
        .context = tile,
    };
    mm_gemm_run(&gemm, tile->run.rows, space);
    return space->c;
}

static mmoe_status run_all(const struct mm_cpu_call *call, enum mm_product which, int64_t runs, bool with_h,
                           mm_cpu_task *task) {
    struct job job = {call, &call->products->product[which], with_h};
    return mm_cpu_run(call, runs * job.product->tiling.count, task, &job);
}

static bool weight_on_input(const struct mm_cpu_call *call) {
    return call->layer->config.weight_on == MMOE_WEIGHT_ON_INPUT;
}

/* Where the result of a row goes: [H], to be summed here or in the combine slots of its token's rank. */
static uint16_t *result_of(const struct mm_cpu_call *call, int64_t row) {
    return call->results != NULL ? call->results + row * call->hidden : mm_combine_slot(call, row);
}

/* ---- Forward ---- */

static void load_gate_up(const void *context, int64_t depth, int64_t count, float *b) {
    const struct tile *tile = context;
    mm_widen_tile(&tile->gate, tile->at, depth, tile->width, count, b, count);
    mm_widen_tile(&tile->up, tile->at, depth, tile->width, count, b + tile->width * count, count);
}

static void gate_up_task(const void *context, int64_t index, int thread) {
    const struct tile tile = tile_of(context, index);
    const struct mm_cpu_call *call = tile.job->call;
    const int64_t intermediate = call->intermediate;
    const float *scale = weight_on_input(call) ? call->plan->view.row_weight : NULL;
    const float *c = multiply(&tile, call->x, call->hidden, scale, load_gate_up, thread);
    uint16_t passing[2 * GATE_UP_COLS];
    for (int64_t i = 0; i < tile.run.rows; i++, c += 2 * tile.width) {
        int64_t row = tile.run.row + i;
        uint16_t *gate = passing, *up = passing + tile.width;
        if (call->gate_up != NULL) {
            gate = call->gate_up + row * 2 * intermediate + tile.at;
            up = gate + intermediate;
        }
        mm_narrow(tile.width, c, gate);
        mm_narrow(tile.width, c + tile.width, up);
        if (tile.job->with_h)
            mm_swiglu(tile.width, call->layer->config.limit, gate, up, call->h + row * intermediate + tile.at);
    }
}

mmoe_status mm_products_gate_up(const struct mm_cpu_call *call, int64_t runs, bool with_h) {
    return run_all(call, MM_PRODUCT_GATE_UP, runs, with_h, gate_up_task);
}

static void load_down(const void *context, int64_t depth, int64_t count, float *b) {
    const struct tile *tile = context;
    mm_widen_tile(&tile->down, tile->at, depth, tile->width, count, b, count);
}

static void down_task(const void *context, int64_t index, int thread) {
    const struct tile tile = tile_of(context, index);
    const struct mm_cpu_call *call = tile.job->call;
    const float *c = multiply(&tile, call->h, call->intermediate, NULL, load_down, thread);
    for (int64_t i = 0; i < tile.run.rows; i++, c += tile.width) {
        int64_t row = tile.run.row + i;
        float scale = weight_on_input(call) ? 1.0f : call->plan->view.row_weight[row];
        mm_narrow_scaled(tile.width, scale, c, result_of(call, row) + tile.at);
    }
}

mmoe_status mm_products_down(const struct mm_cpu_call *call, int64_t runs) {
    return run_all(call, MM_PRODUCT_DOWN, runs, false, down_task);
}

/* ---- Backward ---- */

static void load_down_columns(const void *context, int64_t depth, int64_t count, float *b) {
    const struct tile *tile = context;
    mm_widen_tile(&tile->down, depth, tile->at, count, tile->width, b, tile->width);
}

/* Part `number` of a row's dw. */
static float *dw_part(const struct mm_cpu_call *call, int64_t number, int64_t row) {
    return call->dw + number * call->plan->view.padded_rows + row;
}

static void dh_task(const void *context, int64_t index, int thread) {
    const struct tile tile = tile_of(context, index);
    const struct mm_cpu_call *call = tile.job->call;
    const int64_t intermediate = call->intermediate;
    const float *c = multiply(&tile, call->dy, call->hidden, NULL, load_down_columns, thread);
    for (int64_t i = 0; i < tile.run.rows; i++, c += tile.width) {
        int64_t row = tile.run.row + i, at = row * 2 * intermediate + tile.at;
        float weight = weight_on_input(call) ? 1.0f : call->plan->view.row_weight[row];
        float part = mm_swiglu_gradient(tile.width, call->layer->config.limit, weight, weight, call->gate_up + at,
                                        call->gate_up + at + intermediate, c, call->dgrad + at,
                                        call->dgrad + at + intermediate, call->h + row * intermediate + tile.at);
        if (!weight_on_input(call))
            *dw_part(call, tile.number, row) = part;
    }
}

mmoe_status mm_products_dh(const struct mm_cpu_call *call, int64_t runs) {
    return run_all(call, MM_PRODUCT_DH, runs, false, dh_task);
}

static void weighted_h_task(const void *context, int64_t index, int thread) {
    (void)thread;
    const struct mm_cpu_call *call = context;
    const struct mm_run run = mm_cpu_runs(call)[index];
    for (int64_t row = run.row; row < run.row + run.rows; row++) {
        float weight = weight_on_input(call) ? 1.0f : call->plan->view.row_weight[row];
        const uint16_t *gate = call->gate_up + row * 2 * call->intermediate;
        mm_swiglu_scaled(call->intermediate, call->layer->config.limit, weight, gate, gate + call->intermediate,
                         call->h + row * call->intermediate);
    }
}

mmoe_status mm_products_weighted_h(const struct mm_cpu_call *call, int64_t runs) {
    return mm_cpu_run(call, runs, weighted_h_task, call);
}

/* dX = dgate * W1 + dup * W3 as one product, 2I deep: rows of W1, then of W3. */
static void load_gate_then_up(const void *context, int64_t depth, int64_t count, float *b) {
    const struct tile *tile = context;
    const int64_t intermediate = tile->intermediate, end = depth + count;
    if (depth < intermediate)
        mm_widen_tile(&tile->gate, depth, tile->at, (end < intermediate ? end : intermediate) - depth, tile->width, b,
                      tile->width);
    if (end > intermediate) {
        int64_t from = depth > intermediate ? depth : intermediate;
        mm_widen_tile(&tile->up, from - intermediate, tile->at, end - from, tile->width,
                      b + (from - depth) * tile->width, tile->width);
    }
}

static void dx_task(const void *context, int64_t index, int thread) {
    const struct tile tile = tile_of(context, index);
    const struct mm_cpu_call *call = tile.job->call;
    const mmoe_plan *plan = &call->plan->view;
    const float *c = multiply(&tile, call->dgrad, 2 * call->intermediate, NULL, load_gate_then_up, thread);
    for (int64_t i = 0; i < tile.run.rows; i++, c += tile.width) {
        int64_t row = tile.run.row + i;
        float scale = weight_on_input(call) ? plan->row_weight[row] : 1.0f;
        if (call->wants_dx[plan->row_source[row]])
            mm_narrow_scaled(tile.width, scale, c, result_of(call, row) + tile.at);
        if (weight_on_input(call))
            *dw_part(call, tile.number, row) = mm_dot_widened(tile.width, call->x + row * call->hidden + tile.at, c);
    }
}

mmoe_status mm_products_dx(const struct mm_cpu_call *call, int64_t runs) {
    return run_all(call, MM_PRODUCT_DX, runs, false, dx_task);
}
