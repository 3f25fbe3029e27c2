/* Cases of bulk.cu. */
#include "case.h"
#include "random.h"

namespace conformance {
namespace {

void add_ring(case_list &cases, uint32_t pieces) {
    const uint32_t lanes = 32, bytes = 128;
    test_case c;
    c.name = "bulk_store: " + std::to_string(pieces) + " groups a lane, slots reused";
    c.kernel = "bulk_store_ring";
    c.threads = lanes;
    c.shared_bytes = lanes * 3 * bytes;
    c.number[0] = pieces;
    c.in = random_source(pieces).bytes(pieces * lanes * bytes);
    c.after = image(c.in.size() + lanes * 4);
    for (size_t i = 0; i < c.in.size(); i++)
        c.after.put(i, c.in[i]);
    for (uint32_t lane = 0; lane < lanes; lane++) {
        uint32_t sum = 0;
        for (uint32_t at = 0; at < bytes; at += 4)
            sum += read<uint32_t>(c.in, ((pieces - 1) * lanes + lane) * bytes + at);
        c.after.put(c.in.size() + lane * 4, sum);
    }
    cases.push_back(c);
}

void add_groups(case_list &cases) {
    /* {destination, source, bytes} */
    const uint32_t stores[][3] = {{0, 4096, 16},      {16, 0, 2048},  {3072, 32, 48},    {2064, 6144, 512},
                                  {4096, 1024, 1024}, {6000, 16, 80}, {7168, 2048, 1008}};
    const uint32_t size = 8192, count = sizeof stores / sizeof stores[0];
    test_case c;
    c.name = "bulk_store: groups of several stores, sizes from 16 bytes";
    c.kernel = "bulk_store_groups";
    c.threads = 64;
    c.shared_bytes = 1024 + size;
    c.number[0] = count;
    c.number[1] = size;
    c.in = random_source(7).bytes(size);
    c.after = image(2 * size);
    for (uint32_t i = 0; i < count; i++) {
        c.table.insert(c.table.end(), stores[i], stores[i] + 3);
        for (uint32_t b = 0; b < stores[i][2]; b++)
            for (uint32_t half = 0; half < (i + 1 < count ? 2u : 1u); half++)
                c.after.put(half * size + stores[i][0] + b, c.in[stores[i][1] + b]);
    }
    cases.push_back(c);
}

} // namespace

void add_bulk_cases(case_list &cases) {
    for (uint32_t pieces : {1, 3, 20})
        add_ring(cases, pieces);
    add_groups(cases);
}

} // namespace conformance
