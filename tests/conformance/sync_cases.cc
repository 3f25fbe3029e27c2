/* Cases of sync.cu. */
#include "case.h"

namespace conformance {
namespace {

test_case sync_case(const char *name, const char *kernel, uint32_t threads, uint32_t rounds) {
    test_case c;
    c.name = name;
    c.kernel = kernel;
    c.threads = threads;
    c.shared_bytes = 1024;
    c.number[0] = rounds;
    return c;
}

void add_cta(case_list &cases) {
    const uint32_t rounds = 6, threads = 128;
    test_case c = sync_case("cta_sync: shared and global memory", "sync_cta", threads, rounds);
    c.after = image(8 * threads);
    for (uint32_t t = 0; t < threads; t++) {
        uint32_t sum = 0;
        for (uint32_t round = 0; round < rounds; round++) {
            const uint32_t other = (t + 33 * (round + 1)) % threads;
            sum += (round * 1000 + other) * 3 + round * 7 + other;
        }
        c.after.put(4 * t, sum);
        c.after.put(4 * (threads + t), (rounds - 1) * 7 + t);
    }
    cases.push_back(c);
}

void add_named(case_list &cases) {
    const uint32_t rounds = 5, threads = 256;
    test_case c = sync_case("barrier_sync: four at once", "sync_named", threads, rounds);
    c.after = image(4 * threads);
    for (uint32_t t = 0; t < threads; t++) {
        uint32_t sum = 0;
        for (uint32_t round = 0; round < rounds * (t / 64 + 1); round++)
            sum += (round + (t ^ 32)) * (round + 1);
        c.after.put(4 * t, sum);
    }
    cases.push_back(c);
}

void add_producer_consumer(case_list &cases) {
    const uint32_t fills = 9, threads = 128;
    test_case c = sync_case("barrier_arrive: full and empty slots", "sync_producer_consumer", threads, fills);
    c.after = image(4 * threads);
    for (uint32_t t = 0; t < threads; t++) {
        uint32_t sum = 0;
        for (uint32_t i = 0; i < fills; i++)
            sum += (i * 100 + t % 32) * (t / 32);
        c.after.put(4 * t, sum);
    }
    cases.push_back(c);
}

void add_cluster(case_list &cases) {
    const uint32_t rounds = 4, threads = 64, ctas = 4;
    test_case c = sync_case("cluster_sync: global memory", "sync_cluster", threads, rounds);
    c.ctas = ctas;
    c.cluster = 2;
    c.after = image(8 * ctas * threads);
    for (uint32_t cta = 0; cta < ctas; cta++)
        for (uint32_t t = 0; t < threads; t++) {
            uint32_t sum = 0;
            for (uint32_t round = 0; round < rounds; round++)
                sum = sum * 5 + round * 31 + (cta ^ 1) * 1000 + (t + round) % threads;
            c.after.put(4 * (cta * threads + t), sum);
            c.after.put(4 * ((ctas + cta) * threads + t), (rounds - 1) * 31 + cta * 1000 + t);
        }
    cases.push_back(c);
}

void add_launches(case_list &cases) {
    const uint32_t threads = 64, ctas = 4;
    test_case c = sync_case("grid_dependency_wait: 5 launches that overlap", "sync_launches", threads, 0);
    c.ctas = ctas;
    c.launches = 5;
    c.before.assign(4 * ctas * threads, 0);
    c.after = image(c.before.size());
    for (uint32_t word = 0; word < ctas * threads; word++) {
        uint32_t value = 0;
        for (uint32_t i = 0; i < c.launches; i++)
            value = value * 3 + word;
        c.after.put(4 * word, value);
    }
    cases.push_back(c);
}

} // namespace

void add_sync_cases(case_list &cases) {
    add_cta(cases);
    add_named(cases);
    add_producer_consumer(cases);
    add_cluster(cases);
    add_launches(cases);
}

} // namespace conformance
