/* What the backend keeps for a group, a layer and a saved state, and the passage of one call. */
#ifndef MM_CPU_STATE_H
#define MM_CPU_STATE_H

#include "backend/backend.h"
#include "cpu/convert.h"
#include "cpu/gemm.h"
#include "cpu/pool.h"
#include "cpu/sizes.h"

/* A run of rows of one local expert: the rows of one task. */
struct mm_run {
    int32_t expert, row, rows; /* row: in the row map */
};

/* A row's place among those of its token on this rank. */
struct mm_row_link {
    int32_t next; /* -1: it is the last one */
    int32_t last; /* of the first one alone */
};

/* Rows, bf16 unless said otherwise; scratch that the layers of a group share. One buffer a kind, rows back to back. */
struct mm_pools {
    struct mm_buffer x;       /* [rows, H] tokens */
    struct mm_buffer dy;      /* [rows, H] gradients of the tokens' outputs; forward: results to be summed here */
    struct mm_buffer gate_up; /* [rows, 2I] gate, then up */
    struct mm_buffer h;       /* [rows, I] forward: h; backward: w*h */
    struct mm_buffer dgrad;   /* [rows, 2I] gradients of gate, then of up */
    struct mm_buffer dw;      /* [tiles, rows] fp32: the columns of a tile's part of dw */
    struct mm_buffer runs;    /* struct mm_run */
    struct mm_buffer links;   /* struct mm_row_link [rows] of a grouped combine */
};

/* Forms found so far are remembered: a model's layers share few shapes. */
#define MM_KNOWN_FORMS 64

struct mm_known_form {
    struct mm_gemm_shape shape;
    struct mm_gemm_form form;
};

struct mm_cpu_group {
    struct mm_pool *pool;
    int threads;
    struct mm_pools pools;
    struct mm_buffer workspace;  /* the memory of all threads */
    struct mm_workspace *spaces; /* [threads] pieces of it */
    int64_t depth;               /* that the pieces are made for */
    struct mm_plan plan;         /* of a forward that keeps nothing */
    struct mm_known_form forms[MM_KNOWN_FORMS];
    int forms_known;
};

/* Columns cut into tiles of equal width, the last one narrower. */
struct mm_tiling {
    int32_t width, count;
    int32_t last; /* width of the last one */
};

/* The four products of a layer that must keep a row's bits. */
enum mm_product { MM_PRODUCT_GATE_UP, MM_PRODUCT_DOWN, MM_PRODUCT_DH, MM_PRODUCT_DX, MM_PRODUCT_COUNT };

struct mm_product_plan {
    struct mm_tiling tiling;
    struct mm_gemm_shape shape[2]; /* of a tile, and of the last tile */
    struct mm_gemm_form form[2];
};

struct mm_cpu_layer {
    struct mm_product_plan product[MM_PRODUCT_COUNT];
};

struct mm_cpu_saved {
    struct mm_buffer x, gate_up; /* kept rows, as in the pools */
};

/* One call on its way. */
struct mm_cpu_call {
    struct mmoe_layer *layer;
    struct mmoe_group *group;
    struct mm_cpu_group *cpu;
    const struct mm_cpu_layer *products;
    int64_t hidden, intermediate, top_k, tokens;
    struct mm_plan *plan;
    const mmoe_tensor *gate, *up, *down;    /* the weights */
    uint16_t *x, *dy, *gate_up, *h, *dgrad; /* the rows in use, as in struct mm_pools */
    uint16_t *results;                      /* grouped combine: [rows, H]; else NULL */
    float *dw;
    bool wants_dx[MMOE_MAX_WORLD], wants_dw[MMOE_MAX_WORLD]; /* backward: what each rank wants back */
    mmoe_report report;
    double started, phase_started;
};

typedef void mm_cpu_task(const void *context, int64_t index, int thread);

struct mm_tiling mm_tiling_of(int64_t cols, int32_t widest);
int32_t mm_tile_width(const struct mm_tiling *tiling, int64_t tile);

/* Starts the clock and the report of a call with `tokens` own tokens. */
struct mm_cpu_call mm_cpu_call_of(struct mmoe_layer *layer, int64_t tokens);

/* Adds the time since the last phase ended to `*seconds`, which lies in the call's report. */
void mm_cpu_phase_ends(struct mm_cpu_call *call, double *seconds);

/* The report of a call that has succeeded. */
mmoe_report mm_cpu_report(const struct mm_cpu_call *call);

/* Runs the tasks on all threads; when a rank has aborted, stops and returns why. */
mmoe_status mm_cpu_run(const struct mm_cpu_call *call, int64_t count, mm_cpu_task *task, const void *context);

/* The same, but goes on to the end whatever the peers do. */
void mm_cpu_run_to_end(const struct mm_cpu_call *call, int64_t count, mm_cpu_task *task, const void *context);

/* Writes the runs that cover the rows of the sources with `wanted` (NULL: of all) to the pool, and returns their
 * number. */
int64_t mm_cpu_make_runs(const struct mm_cpu_call *call, const bool *wanted);

/* The header of this rank for the current call. */
struct mm_header mm_cpu_header(const struct mm_cpu_call *call, enum mm_call_kind kind);

static inline struct mm_run *mm_cpu_runs(const struct mm_cpu_call *call) {
    return call->cpu->pools.runs.data;
}

static inline const struct mm_workspace *mm_cpu_space(const struct mm_cpu_call *call, int thread) {
    return &call->cpu->spaces[thread];
}

#endif
