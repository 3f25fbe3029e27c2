/* Products on OpenBLAS in which a row's bits don't depend on the other rows; see gemm.c for how. */
#ifndef MM_CPU_GEMM_H
#define MM_CPU_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Largest pieces of a product: rows of one sgemm, columns of a tile, depth of a panel converted to fp32 at a time. */
#define MM_GEMM_ROWS 512
#define MM_GEMM_COLS 384
#define MM_GEMM_PANEL 1024

/* A product is computed over runs of an expert's rows: MM_GEMM_RUN each, the last one up to MM_GEMM_RUN_MAX - 1, which
 * whole blocks of any size cover within MM_GEMM_RUN_PADDED. */
#define MM_GEMM_RUN 512
#define MM_GEMM_RUN_MAX 640
#define MM_GEMM_RUN_PADDED 1024

/* Tile of a weight gradient, and its rows converted at a time. */
#define MM_OUTER_ROWS 256
#define MM_OUTER_COLS 512
#define MM_OUTER_DEPTH 256

/* The memory of one thread, in fp32: a piece of each operand and the result. */
struct mm_workspace {
    float *a, *b, *c;
};

/* Floats of `a` and `b` for products up to `depth` deep, and of `c`. `a` also serves as one row of the largest H. */
size_t mm_workspace_a(int64_t depth);
size_t mm_workspace_b(int64_t depth);
size_t mm_workspace_c(void);

/* How the right operand lies in memory: [columns, depth] or [depth, columns]. */
enum mm_gemm_layout { MM_GEMM_COLS_DEPTH, MM_GEMM_DEPTH_COLS };

struct mm_gemm_shape {
    int64_t depth;
    int32_t cols; /* 1 .. MM_GEMM_COLS */
    enum mm_gemm_layout layout;
};

/* How products of one shape are done on this machine. */
struct mm_gemm_form {
    bool transposed; /* sgemm writes C^T */
    uint32_t blocks; /* bit b: sgemm takes 2^b rows */
};

/* Finds the form by trying; overwrites the workspace. */
struct mm_gemm_form mm_gemm_probe(const struct mm_gemm_shape *shape, const struct mm_workspace *space);

/* Rows of the next sgemm when `rest` (> 0) rows are left; more than `rest`: it is padded with zeros. */
int64_t mm_gemm_block(const struct mm_gemm_form *form, int64_t rest);

/* C = A B. A: row r at a + r * a_pitch, bf16; with `a_scale` row r is bf16(a_scale[r] * A). B: `load` writes rows
 * or columns depth .. depth+count-1 of it to b as the layout says. */
struct mm_gemm {
    struct mm_gemm_shape shape;
    struct mm_gemm_form form;
    const uint16_t *a;
    int64_t a_pitch;
    const float *a_scale;
    void (*load)(const void *context, int64_t depth, int64_t count, float *b);
    const void *context;
};

/* `rows` of A, at most MM_GEMM_RUN_MAX; the result is space->c [rows, cols]. */
void mm_gemm_run(const struct mm_gemm *gemm, int64_t rows, const struct mm_workspace *space);

/* space->c [m, n] = (first) or += space->a [depth, m]^T space->b [depth, n]. */
void mm_gemm_outer(int64_t m, int64_t n, int64_t depth, bool first, const struct mm_workspace *space);

#endif
