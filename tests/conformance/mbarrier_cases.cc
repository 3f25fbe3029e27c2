/* Cases of mbarrier.cu. */
#include "case.h"
#include "random.h"

namespace conformance {
namespace {

void add_phases(case_list &cases, uint32_t arrivals) {
    const uint32_t phases = 5;
    test_case c;
    c.name = "mbarrier: 5 phases of " + std::to_string(arrivals) + " arrivals";
    c.kernel = "mbarrier_phases";
    c.shared_bytes = 1024;
    c.number[0] = arrivals;
    c.number[1] = phases;
    c.after = image(phases * 6 * 4);
    for (uint32_t phase = 0; phase < phases; phase++)
        for (uint32_t step = 0; step < 3; step++) {
            const uint32_t ended = step == 2; /* then the running parity is the other one */
            c.after.put(4 * (phase * 6 + step * 2), ended);
            c.after.put(4 * (phase * 6 + step * 2 + 1), ended ^ 1);
        }
    cases.push_back(c);
}

void add_bytes(case_list &cases, uint32_t how, const char *name) {
    const uint32_t copy[][3] = {{16, 0, 16}, {512, 2048, 4096}, {4096, 128, 48}, {0, 7168, 1024}};
    const uint32_t phases = 3, size = 8192;
    test_case c;
    c.name = std::string("mbarrier: bytes of 4 copies, ") + name;
    c.kernel = "mbarrier_bytes";
    c.threads = 64;
    c.shared_bytes = 1024 + size;
    c.number[0] = 4;
    c.number[1] = how;
    c.number[2] = phases;
    c.in = random_source(how + 1).bytes(phases * size);
    c.after = image(phases * size);
    for (uint32_t phase = 0; phase < phases; phase++) {
        for (uint32_t i = 0; i < size; i++)
            c.after.put(phase * size + i, (uint8_t)0xee);
        for (const auto &one : copy)
            for (uint32_t i = 0; i < one[2]; i++)
                c.after.put(phase * size + one[1] + i, c.in[phase * size + one[0] + i]);
    }
    for (const auto &one : copy)
        c.table.insert(c.table.end(), one, one + 3);
    cases.push_back(c);
}

void add_cluster(case_list &cases) {
    test_case c;
    c.name = "mbarrier: arrivals across a cluster";
    c.kernel = "mbarrier_cluster";
    c.ctas = 4;
    c.cluster = 2;
    c.threads = 32;
    c.shared_bytes = 1024;
    c.number[0] = 4;
    c.after = image(c.ctas * 8);
    for (uint32_t cta = 0; cta < c.ctas; cta++) {
        c.after.put(cta * 8, 0u);
        c.after.put(cta * 8 + 4, 4u);
    }
    cases.push_back(c);
}

} // namespace

void add_mbarrier_cases(case_list &cases) {
    for (uint32_t arrivals : {1, 2, 33, 128})
        add_phases(cases, arrivals);
    add_bytes(cases, 0, "expected with the arrival");
    add_bytes(cases, 1, "expected without an arrival");
    add_bytes(cases, 2, "expected one by one");
    add_bytes(cases, 3, "expected after the copies");
    add_cluster(cases);
}

} // namespace conformance
