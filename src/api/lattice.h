/* Which addresses strided views touch: sums of whole multiples of strides.
 *
 * Two views of one allocation, such as the gate and the up half of a tensor or two slices of columns, interleave
 * without touching, so that comparing first and last address isn't enough. The question "do they share a byte" is: is
 * there a sum of multiples of their strides, each multiple within its bounds, that falls into a small window. */
#ifndef MM_API_LATTICE_H
#define MM_API_LATTICE_H

#include <stdbool.h>

#include "megamoe.h"

/* Wider than any difference of two addresses. */
typedef __int128 mm_wide;

/* Multiples low .. high of a stride > 0, in bytes. */
struct mm_term {
    int64_t stride, low, high;
};

#define MM_MOST_TERMS 6

struct mm_lattice {
    int count;
    struct mm_term terms[MM_MOST_TERMS]; /* by falling stride */
};

/* Adds c * stride for low <= c <= high; a stride of 0 or no choice of c adds nothing. */
void mm_lattice_add(struct mm_lattice *lattice, int64_t stride, int64_t low, int64_t high);

/* Whether some sum lies in low .. high. Exact for what any sane layout asks; strides so entangled that a million
 * steps don't tell count as reaching. */
bool mm_lattice_reaches(const struct mm_lattice *lattice, mm_wide low, mm_wide high);

#endif
