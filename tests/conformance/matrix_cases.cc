/* Cases of matrix.cu. */
#include "case.h"
#include "random.h"

namespace conformance {
namespace {

const uint32_t WARPS = 4, WARP_BYTES = 1024, ROW_BYTES = 16;

/* Where the rows lie: each at a place of its own, in any order; neighbours in a load may share a row. */
std::vector<uint32_t> places(bool shared) {
    random_source random(shared);
    std::vector<uint32_t> all;
    for (uint32_t warp = 0; warp < WARPS; warp++) {
        bool taken[WARP_BYTES / ROW_BYTES] = {};
        for (uint32_t lane = 0; lane < 32; lane++) {
            uint32_t place;
            do
                place = (uint32_t)random.between(0, WARP_BYTES / ROW_BYTES - 1);
            while (taken[place]);
            taken[place] = true;
            all.push_back(shared && lane % 2 == 1 ? all.back() : place * ROW_BYTES);
        }
    }
    return all;
}

/* Of element `half` (0 or 1) of value[i] of a lane: the place in the warp's shared memory. */
uint32_t place_of(const std::vector<uint32_t> &rows, uint32_t warp, uint32_t lane, uint32_t i, uint32_t half,
                  bool transposed) {
    uint32_t row = lane / 4, column = 2 * (lane % 4) + half;
    if (transposed)
        std::swap(row, column);
    return warp * WARP_BYTES + rows[warp * 32 + i * 8 + row] + 2 * column;
}

void add_move(case_list &cases, uint32_t what, const std::string &name) {
    const bool load = what == 2;
    test_case c;
    c.name = name;
    c.kernel = "matrix_move";
    c.shared_bytes = WARPS * WARP_BYTES;
    c.number[0] = what;
    c.table = places(load);
    c.in = random_source(what + 10).bytes(load ? WARPS * WARP_BYTES : WARPS * 32 * 16);
    c.after = image(load ? WARPS * 32 * 16 : WARPS * WARP_BYTES);
    if (!load)
        for (size_t i = 0; i < c.after.bytes.size(); i++)
            c.after.put(i, (uint8_t)0xee);
    for (uint32_t warp = 0; warp < WARPS; warp++)
        for (uint32_t lane = 0; lane < 32; lane++)
            for (uint32_t i = 0; i < 4; i++)
                for (uint32_t half = 0; half < 2; half++) {
                    const uint32_t place = place_of(c.table, warp, lane, i, half, what == 1);
                    const uint32_t held = ((warp * 32 + lane) * 4 + i) * 4 + half * 2;
                    if (load)
                        c.after.put(held, read<uint16_t>(c.in, place));
                    else
                        c.after.put(place, read<uint16_t>(c.in, held));
                }
    cases.push_back(c);
}

} // namespace

void add_matrix_cases(case_list &cases) {
    add_move(cases, 0, "matrix_store: plain");
    add_move(cases, 1, "matrix_store: transposed");
    add_move(cases, 2, "matrix_load: rows anywhere, some shared");
}

} // namespace conformance
