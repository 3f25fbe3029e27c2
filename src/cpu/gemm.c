/* Products on OpenBLAS, batch-invariant.
 *
 * The contract: a row of C = A B has the same bits whatever the other rows are, wherever in the batch it lies, and at
 * any number of threads. So every sgemm is single-threaded, and the sizes are chosen so that OpenBLAS treats all rows
 * of a block alike. Whether it does depends on the kernel it picked for this CPU, so we don't assume, we try
 * (mm_gemm_probe): multiply a block of equal rows, at each block size. A size is good when all rows of the result have
 * equal bits, and when these are the bits that the other good sizes give. The kernels have no branch on the data, so
 * equal rows in give equal rows out for all data or for none. Then most rows of an expert go in the largest good block
 * and the tail in smaller ones, padded with zeros.
 *
 * Two forms are tried. The direct one computes C [rows, cols]; the other C^T [cols, rows], turned round afterwards.
 * OpenBLAS 0.3.21 with its AVX-512 kernels (and Sandybridge's, Nehalem's) is good in the direct form at all sizes; with
 * its AVX2 kernels (Haswell, Zen) the direct form is good only up to 8 rows, C^T up to 16: their 16-row blocks round
 * differently from the ones that follow. The form that allows larger blocks wins.
 *
 * Depth is cut at fixed places, each panel converted to fp32 in the thread's own memory and added to C by sgemm (beta =
 * 1); the cuts depend on the depth alone. Weight gradients need none of this: their sum runs over the rows of one
 * expert, in the same order and the same calls at any W. */
#include <cblas.h>
#include <string.h>

#include "cpu/convert.h"
#include "cpu/gemm.h"

enum { LARGEST = 9, SMALLEST = 3 }; /* log2 of the block sizes tried */
_Static_assert(1 << LARGEST == MM_GEMM_ROWS, "the largest block");
_Static_assert(MM_GEMM_RUN_PADDED % MM_GEMM_ROWS == 0 && MM_GEMM_RUN_PADDED >= MM_GEMM_RUN_MAX, "a run in blocks");

/* The direct form needs no turning round; below this many rows a block it is slower than C^T all the same. */
enum { DIRECT_ENOUGH = 64 };

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

size_t mm_workspace_a(int64_t depth) {
    size_t product = (size_t)MM_GEMM_ROWS * larger((size_t)smaller(depth, MM_GEMM_PANEL), MM_GEMM_COLS);
    return larger(product, (size_t)MM_OUTER_DEPTH * MM_OUTER_ROWS);
}

size_t mm_workspace_b(int64_t depth) {
    size_t product = (size_t)MM_GEMM_COLS * (size_t)smaller(depth, MM_GEMM_PANEL);
    return larger(product, (size_t)MM_OUTER_DEPTH * MM_OUTER_COLS);
}

size_t mm_workspace_c(void) {
    return larger((size_t)MM_GEMM_RUN_PADDED * MM_GEMM_COLS, (size_t)MM_OUTER_ROWS * MM_OUTER_COLS);
}

/* One block: c (+)= a [rows, depth] b, as C or C^T. */
static void multiply(const struct mm_gemm_shape *shape, bool transposed, int64_t rows, int64_t depth, bool first,
                     const float *a, const float *b, float *c) {
    const int m = (int)rows, n = shape->cols, k = (int)depth;
    const bool cols_depth = shape->layout == MM_GEMM_COLS_DEPTH;
    const int b_pitch = cols_depth ? k : n;
    const float beta = first ? 0.0f : 1.0f;
    if (transposed)
        cblas_sgemm(CblasRowMajor, cols_depth ? CblasNoTrans : CblasTrans, CblasTrans, n, m, k, 1.0f, b, b_pitch, a, k,
                    beta, c, m);
    else
        cblas_sgemm(CblasRowMajor, CblasNoTrans, cols_depth ? CblasTrans : CblasNoTrans, m, n, k, 1.0f, a, k, b,
                    b_pitch, beta, c, n);
}

/* c [cols, rows] to [rows, cols] in place, by way of `space`. */
static void turn_round(int64_t rows, int64_t cols, float *c, float *space) {
    enum { SQUARE = 8 };
    for (int64_t i0 = 0; i0 < rows; i0 += SQUARE)
        for (int64_t j = 0; j < cols; j++)
            for (int64_t i = i0; i < smaller(i0 + SQUARE, rows); i++)
                space[i * cols + j] = c[j * rows + i];
    memcpy(c, space, (size_t)(rows * cols) * sizeof *c);
}

/* ---- Which block sizes keep a row's bits ---- */

/* Numbers in (-1, 1) with no pattern, the same on every machine. */
static void fill_noise(uint32_t *state, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i++) {
        *state = *state * 1664525u + 1013904223u;
        out[i] = (float)(int32_t)*state * 0x1p-31f;
    }
}

/* Where in the workspace's c the result of a block of 2^b rows lies: all sizes side by side. */
static float *trial(const struct mm_workspace *space, int32_t cols, int b) {
    return space->c + (int64_t)(2 * MM_GEMM_ROWS - (2 << b)) * cols;
}

/* Element (row, col) of a trial. */
static float trial_at(const float *c, bool transposed, int b, int32_t cols, int64_t row, int64_t col) {
    return transposed ? c[(col << b) + row] : c[row * cols + col];
}

static bool rows_equal(const struct mm_workspace *space, bool transposed, int32_t cols, int b, int reference) {
    const float *c = trial(space, cols, b), *other = trial(space, cols, reference);
    for (int64_t col = 0; col < cols; col++) {
        float expected = trial_at(other, transposed, reference, cols, 0, col);
        for (int64_t row = 0; row < 1 << b; row++)
            if (trial_at(c, transposed, b, cols, row, col) != expected)
                return false;
    }
    return true;
}

static uint32_t good_blocks(const struct mm_gemm_shape *shape, bool transposed, const struct mm_workspace *space) {
    uint32_t state = 1;
    for (int64_t at = 0; at < shape->depth; at += MM_GEMM_PANEL) {
        int64_t depth = smaller(shape->depth - at, MM_GEMM_PANEL);
        fill_noise(&state, depth, space->a);
        for (int64_t row = 1; row < MM_GEMM_ROWS; row++)
            memcpy(space->a + row * depth, space->a, (size_t)depth * sizeof *space->a);
        fill_noise(&state, depth * shape->cols, space->b);
        for (int b = LARGEST; b >= SMALLEST; b--)
            multiply(shape, transposed, 1 << b, depth, at == 0, space->a, space->b, trial(space, shape->cols, b));
    }
    uint32_t blocks = 0;
    int reference = -1;
    for (int b = LARGEST; b >= SMALLEST; b--)
        if (rows_equal(space, transposed, shape->cols, b, reference < 0 ? b : reference)) {
            blocks |= 1u << b;
            reference = reference < 0 ? b : reference;
        }
    return blocks;
}

struct mm_gemm_form mm_gemm_probe(const struct mm_gemm_shape *shape, const struct mm_workspace *space) {
    uint32_t direct = good_blocks(shape, false, space);
    if (direct >= DIRECT_ENOUGH)
        return (struct mm_gemm_form){false, direct};
    uint32_t transposed = good_blocks(shape, true, space);
    if (transposed > direct)
        return (struct mm_gemm_form){true, transposed};
    return (struct mm_gemm_form){false, direct != 0 ? direct : 1u}; /* single rows always keep their bits */
}

/* ---- Products ---- */

int64_t mm_gemm_block(const struct mm_gemm_form *form, int64_t rest) {
    int64_t below = 0;
    for (int b = 0; b <= LARGEST; b++) {
        if ((form->blocks >> b & 1u) == 0)
            continue;
        int64_t block = 1 << b;
        if (block >= rest && (block * 4 <= rest * 5 || below == 0))
            return block; /* a block with up to a fifth of padding beats several small ones */
        if (block <= rest)
            below = block;
    }
    return below;
}

static void load_rows(const struct mm_gemm *gemm, int64_t row, int64_t rows, int64_t block, int64_t at, int64_t depth,
                      float *a) {
    for (int64_t i = 0; i < rows; i++) {
        const uint16_t *from = gemm->a + (row + i) * gemm->a_pitch + at;
        if (gemm->a_scale != NULL)
            mm_widen_scaled(depth, gemm->a_scale[row + i], from, a + i * depth);
        else
            mm_widen(depth, from, a + i * depth);
    }
    memset(a + rows * depth, 0, (size_t)((block - rows) * depth) * sizeof *a);
}

void mm_gemm_run(const struct mm_gemm *gemm, int64_t rows, const struct mm_workspace *space) {
    const struct mm_gemm_shape *shape = &gemm->shape;
    const int64_t cols = shape->cols;
    for (int64_t at = 0; at < shape->depth; at += MM_GEMM_PANEL) {
        int64_t depth = smaller(shape->depth - at, MM_GEMM_PANEL);
        gemm->load(gemm->context, at, depth, space->b);
        for (int64_t row = 0, block; row < rows; row += block) {
            block = mm_gemm_block(&gemm->form, rows - row);
            load_rows(gemm, row, smaller(block, rows - row), block, at, depth, space->a);
            multiply(shape, gemm->form.transposed, block, depth, at == 0, space->a, space->b, space->c + row * cols);
        }
    }
    for (int64_t row = 0, block; gemm->form.transposed && row < rows; row += block) {
        block = mm_gemm_block(&gemm->form, rows - row);
        turn_round(block, cols, space->c + row * cols, space->a);
    }
}

void mm_gemm_outer(int64_t m, int64_t n, int64_t depth, bool first, const struct mm_workspace *space) {
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)m, (int)n, (int)depth, 1.0f, space->a, (int)m, space->b,
                (int)n, first ? 0.0f : 1.0f, space->c, (int)n);
}
