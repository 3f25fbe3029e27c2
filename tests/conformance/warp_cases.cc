/* Cases of warp.cu. */
#include "case.h"
#include "random.h"

namespace conformance {
namespace {

void add_identity(case_list &cases, uint32_t ctas, uint32_t cluster) {
    test_case c;
    c.name = "identity: " + std::to_string(ctas) + " CTAs in clusters of " + std::to_string(cluster);
    c.kernel = "warp_identity";
    c.ctas = ctas;
    c.cluster = cluster;
    c.threads = 96;
    c.shared_bytes = 64;
    c.after = image(ctas * c.threads * 13 * 4);
    for (uint32_t cta = 0; cta < ctas; cta++)
        for (uint32_t t = 0; t < c.threads; t++) {
            const uint32_t word[13] = {t, t / 32, t % 32, cta, ctas, cta % cluster, 0, 1, 1, 1, 1, 1, 1};
            for (uint32_t i = 0; i < 13; i++)
                c.after.put(((cta * c.threads + t) * 13 + i) * 4, word[i]);
        }
    cases.push_back(c);
}

void add_exchange(case_list &cases) {
    test_case c;
    c.name = "warp: shuffles and ballot";
    c.kernel = "warp_exchange";
    c.threads = 64;
    random_source random(3);
    uint32_t value[64], from[64];
    for (uint32_t t = 0; t < c.threads; t++) {
        value[t] = (uint32_t)random.next();
        if ((value[t] & 0x7f800000) == 0x7f800000)
            value[t] ^= 0x00800000; /* no NaN: its bits need not travel as a float */
        from[t] = (uint32_t)random.between(0, 31);
        append(c.in, value[t]);
        append(c.in, from[t]);
    }
    c.after = image(c.threads * 18 * 4);
    for (uint32_t t = 0; t < c.threads; t++) {
        const uint32_t lane = t % 32, *warp = value + t - lane;
        std::vector<uint32_t> word = {warp[from[t]]};
        for (int as_float = 0; as_float < 2; as_float++)
            for (uint32_t bit = 0; bit < 5; bit++)
                word.push_back(warp[lane ^ 1u << bit]);
        for (uint32_t delta : {1, 2, 4, 8, 16, 5})
            word.push_back(lane >= delta ? warp[lane - delta] : warp[lane]);
        uint32_t votes = 0;
        for (uint32_t l = 0; l < 32; l++)
            votes |= (warp[l] & 1) << l;
        word.push_back(votes);
        for (uint32_t i = 0; i < 18; i++)
            c.after.put((t * 18 + i) * 4, word[i]);
    }
    cases.push_back(c);
}

void add_pass(case_list &cases) {
    test_case c;
    c.name = "warp: words through shared memory";
    c.kernel = "warp_pass";
    c.threads = 64;
    c.shared_bytes = 256;
    c.number[0] = 7;
    c.after = image(c.threads * 4);
    uint32_t value[64], next[64];
    for (uint32_t t = 0; t < 64; t++)
        value[t] = t;
    for (uint32_t round = 0; round < c.number[0]; round++) {
        for (uint32_t t = 0; t < 64; t++)
            next[t] = value[t / 32 * 32 + (t + round) % 32] + 1;
        std::memcpy(value, next, sizeof value);
    }
    for (uint32_t t = 0; t < 64; t++)
        c.after.put(4 * t, value[t]);
    cases.push_back(c);
}

} // namespace

void add_warp_cases(case_list &cases) {
    add_identity(cases, 3, 1);
    add_identity(cases, 8, 2);
    add_exchange(cases);
    add_pass(cases);
}

} // namespace conformance
