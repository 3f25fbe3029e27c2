/* Search for a bounded integer combination of strides. */
#include "api/lattice.h"

#define MOST_STEPS 1000000

/* Equal strides become one term: the search would try each split of a sum between them. */
void mm_lattice_add(struct mm_lattice *lattice, int64_t stride, int64_t low, int64_t high) {
    if (stride == 0 || (low == 0 && high == 0)) {
        return;
    }
    struct mm_term term = {.stride = stride, .low = low, .high = high};
    if (stride < 0) {
        term = (struct mm_term){.stride = -stride, .low = -high, .high = -low};
    }
    for (int i = 0; i < lattice->count; i++) {
        if (lattice->terms[i].stride == term.stride) {
            lattice->terms[i].low += term.low;
            lattice->terms[i].high += term.high;
            return;
        }
    }
    int at = lattice->count++;
    for (; at > 0 && lattice->terms[at - 1].stride < term.stride; at--) {
        lattice->terms[at] = lattice->terms[at - 1];
    }
    lattice->terms[at] = term;
}

static mm_wide floor_divide(mm_wide value, mm_wide by) {
    return value / by - (value % by < 0);
}
static mm_wide ceil_divide(mm_wide value, mm_wide by) {
    return value / by + (value % by > 0);
}

/* The largest stride first: its multiple has to bring the rest, which is small when strides nest, into the window, and
 * that leaves one or two choices. */
static bool reaches(const struct mm_term *terms, int count, mm_wide low, mm_wide high, int *steps) {
    if (count == 0) {
        return low <= 0 && high >= 0;
    }
    mm_wide rest_low = 0, rest_high = 0, stride = terms[0].stride;
    for (int i = 1; i < count; i++) {
        rest_low += (mm_wide)terms[i].stride * terms[i].low;
        rest_high += (mm_wide)terms[i].stride * terms[i].high;
    }
    mm_wide from = ceil_divide(low - rest_high, stride), to = floor_divide(high - rest_low, stride);
    from = from > terms[0].low ? from : terms[0].low;
    to = to < terms[0].high ? to : terms[0].high;
    for (mm_wide c = from; c <= to; c++) {
        if (--*steps < 0 || reaches(terms + 1, count - 1, low - c * stride, high - c * stride, steps)) {
            return true;
        }
    }
    return false;
}

bool mm_lattice_reaches(const struct mm_lattice *lattice, mm_wide low, mm_wide high) {
    int steps = MOST_STEPS;
    return reaches(lattice->terms, lattice->count, low, high, &steps);
}
