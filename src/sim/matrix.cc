/* matrix_store and matrix_load: four 8x8 matrices of 16-bit elements, a row an address. */
#include <cstring>

#include "sim/access.h"
#include "sim/gather.h"
#include "sim/operations.h"

namespace sim {

namespace {

/* Where lane `lane` holds element (row, column) of a matrix: the lane, and which half of its value. */
struct place {
    unsigned lane, half;
};

place place_of(unsigned row, unsigned column, bool transposed) {
    if (transposed)
        std::swap(row, column);
    return {row * 4 + column / 2, column % 2};
}

size_t row_offset(thread &t, unsigned lane, const char *what) {
    return shared_offset(t, *t.of->of, (uint32_t)t.of->given[lane], 16, 16, what);
}

} // namespace

void matrix_store(uint32_t row_address, const uint32_t (&value)[4], bool transposed) {
    thread &t = enter(__builtin_return_address(0));
    warp &w = *t.of;
    cta &c = *w.of;
    not_polling(t);
    w.given[t.lane] = row_address;
    for (int i = 0; i < 4; i++)
        w.matrices[t.lane][i] = value[i];
    if (!gather(t, aligned::MATRIX_STORE, transposed))
        return;
    for (unsigned lane = 0; lane < 32; lane++) {
        const size_t offset = row_offset(t, lane, "matrix_store");
        uint16_t row[8];
        for (unsigned column = 0; column < 8; column++) {
            const place p = place_of(lane % 8, column, transposed);
            row[column] = (uint16_t)(w.matrices[p.lane][lane / 8] >> 16 * p.half);
        }
        thread &writer = w.lanes[lane];
        writer.where = t.where;
        check_shared(t, c, offset, sizeof row, access::WRITE, thread_observer(writer, 0), "matrix_store");
        writer.unfenced[FENCED_SHARED] = label(writer);
        memcpy(&c.shared[offset], row, sizeof row);
    }
    w.accessed = ~0u;
    w.home->progress++;
    part(t);
}

void matrix_load(uint32_t row_address, uint32_t (&value)[4]) {
    thread &t = enter(__builtin_return_address(0));
    warp &w = *t.of;
    cta &c = *w.of;
    w.given[t.lane] = row_address;
    if (gather(t, aligned::MATRIX_LOAD, 0)) {
        for (unsigned lane = 0; lane < 32; lane++) {
            const size_t offset = row_offset(t, lane, "matrix_load");
            uint16_t row[8];
            check_shared(t, c, offset, sizeof row, access::READ, thread_observer(w.lanes[lane], 0), "matrix_load");
            memcpy(row, &c.shared[offset], sizeof row);
            for (unsigned column = 0; column < 8; column += 2)
                w.matrices[place_of(lane % 8, column, false).lane][lane / 8] = row[column] | (uint32_t)row[column + 1]
                                                                                                 << 16;
        }
        w.accessed = ~0u;
        part(t);
    }
    for (int i = 0; i < 4; i++)
        value[i] = w.matrices[t.lane][i];
}

} // namespace sim
