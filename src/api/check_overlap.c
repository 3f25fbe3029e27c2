/* Check that outputs overlap neither inputs nor one another. */
#include <stdio.h>

#include "api/check.h"
#include "api/lattice.h"

/* A tensor, or one expert's matrix of a stack given as one pointer an expert. */
struct piece {
    const struct mm_argument *argument;
    int64_t expert;    /* -1: the whole tensor */
    mm_wide low, high; /* first byte, and the one after the last */
};

/* At most six stacks of El pieces, the other arguments of one piece. */
size_t mm_overlap_bytes(int local_experts) {
    return (6 * (size_t)local_experts + MM_MOST_ARGUMENTS) * sizeof(struct piece);
}

static const void *piece_start(const struct piece *piece) {
    const mmoe_tensor *tensor = piece->argument->tensor;
    return piece->expert < 0 ? tensor->data : tensor->experts[piece->expert];
}

static struct piece make_piece(const struct mm_argument *argument, int64_t expert) {
    struct piece piece = {.argument = argument, .expert = expert};
    const mmoe_tensor *tensor = argument->tensor;
    int64_t bytes = mm_dtype_bytes(tensor->dtype);
    piece.low = (mm_wide)(uintptr_t)piece_start(&piece);
    piece.high = piece.low + bytes;
    for (int i = expert >= 0; i < tensor->dims; i++) {
        mm_wide reach = (mm_wide)tensor->stride[i] * (tensor->shape[i] - 1) * bytes;
        *(reach < 0 ? &piece.low : &piece.high) += reach;
    }
    return piece;
}

static size_t collect(const struct mm_argument *arguments, int count, struct piece *pieces) {
    size_t made = 0;
    for (int i = 0; i < count; i++) {
        const mmoe_tensor *tensor = arguments[i].tensor;
        if (mm_tensor_is_absent(tensor) || mm_tensor_is_empty(tensor)) {
            continue;
        }
        if (tensor->experts == NULL) {
            pieces[made++] = make_piece(&arguments[i], -1);
            continue;
        }
        for (int64_t expert = 0; expert < tensor->shape[0]; expert++) {
            pieces[made++] = make_piece(&arguments[i], expert);
        }
    }
    return made;
}

/* Shell sort by first byte: qsort may allocate, and a call with a fixed capacity doesn't. */
static void sort_pieces(struct piece *pieces, size_t count) {
    size_t gap = 1;
    while (gap < count / 3) {
        gap = 3 * gap + 1;
    }
    for (; gap > 0; gap /= 3) {
        for (size_t i = gap; i < count; i++) {
            struct piece moving = pieces[i];
            size_t at = i;
            for (; at >= gap && pieces[at - gap].low > moving.low; at -= gap) {
                pieces[at] = pieces[at - gap];
            }
            pieces[at] = moving;
        }
    }
}

/* A dimension of one element is not stepped along: its stride may be of any size. */
static void add_strides(struct mm_lattice *lattice, const struct piece *piece, int sign) {
    const mmoe_tensor *tensor = piece->argument->tensor;
    for (int i = piece->expert >= 0; i < tensor->dims; i++) {
        if (tensor->shape[i] == 1) {
            continue;
        }
        mm_lattice_add(lattice, sign * tensor->stride[i] * mm_dtype_bytes(tensor->dtype), 0, tensor->shape[i] - 1);
    }
}

/* Elements at a and b share a byte when -size_a < address_a - address_b < size_b. */
static bool share_a_byte(const struct piece *a, const struct piece *b) {
    struct mm_lattice lattice = {0};
    add_strides(&lattice, a, 1);
    add_strides(&lattice, b, -1);
    mm_wide apart = (mm_wide)(uintptr_t)piece_start(b) - (mm_wide)(uintptr_t)piece_start(a);
    return mm_lattice_reaches(&lattice, apart - mm_dtype_bytes(a->argument->tensor->dtype) + 1,
                              apart + mm_dtype_bytes(b->argument->tensor->dtype) - 1);
}

#define PIECE_NAME_BYTES 64

static void piece_name(const struct piece *piece, char name[PIECE_NAME_BYTES]) {
    if (piece->expert < 0) {
        snprintf(name, PIECE_NAME_BYTES, "%s", piece->argument->expect.name);
    } else {
        snprintf(name, PIECE_NAME_BYTES, "%s.experts[%lld]", piece->argument->expect.name, (long long)piece->expert);
    }
}

static mmoe_status fail_overlap(const struct piece *a, const struct piece *b) {
    const struct piece *output = a->argument->output ? a : b, *other = output == a ? b : a;
    char output_name[PIECE_NAME_BYTES], other_name[PIECE_NAME_BYTES];
    piece_name(output, output_name);
    piece_name(other, other_name);
    return mm_fail(MMOE_INVALID_ARGUMENT,
                   "%s at %p overlaps %s at %p, expected outputs apart from inputs and from one another", output_name,
                   piece_start(output), other_name, piece_start(other));
}

mmoe_status mm_check_overlap(const struct mm_argument *arguments, int count, void *scratch) {
    struct piece *pieces = scratch;
    size_t made = collect(arguments, count, pieces);
    sort_pieces(pieces, made);
    for (size_t i = 0; i < made; i++) {
        for (size_t j = i + 1; j < made && pieces[j].low < pieces[i].high; j++) {
            bool matters = pieces[i].argument->output || pieces[j].argument->output;
            if (matters && share_a_byte(&pieces[i], &pieces[j])) {
                return fail_overlap(&pieces[i], &pieces[j]);
            }
        }
    }
    return MMOE_OK;
}
