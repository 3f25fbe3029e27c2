/* Cases of memory.cu. */
#include <algorithm>

#include "case.h"
#include "random.h"

namespace conformance {
namespace {

void add_widths(case_list &cases) {
    test_case c;
    c.name = "memory: every width, global and shared";
    c.kernel = "memory_widths";
    c.ctas = 2;
    c.threads = 64;
    c.shared_bytes = c.threads * 64;
    c.in = random_source(9).bytes(c.ctas * c.threads * 64);
    c.after = image(c.in.size());
    for (size_t i = 0; i < c.in.size(); i++)
        c.after.put(i, c.in[i]);
    cases.push_back(c);
}

/* Whether the fetches of `threads` threads, from `first` on, are start, start + step, ... in any order. */
bool is_sequence(const std::vector<uint8_t> &out, uint32_t first, uint32_t threads, uint32_t which, uint32_t start,
                 uint32_t step) {
    std::vector<uint32_t> fetched;
    for (uint32_t t = 0; t < threads; t++)
        fetched.push_back(read<uint32_t>(out, 4 * (8 + (first + t) * 4 + which)));
    std::sort(fetched.begin(), fetched.end());
    for (uint32_t i = 0; i < threads; i++)
        if (fetched[i] != start + i * step)
            return false;
    return true;
}

void add_additions(case_list &cases) {
    const uint32_t ctas = 4, threads = 64, all = ctas * threads, sums = all * (all - 1) / 2;
    test_case c;
    c.name = "memory: additions, fetches, swaps";
    c.kernel = "memory_additions";
    c.ctas = ctas;
    c.threads = threads;
    c.shared_bytes = 16;
    const uint32_t before[8] = {10, 20, 30, 40, 50, 60, 70, 80};
    c.after = image(4 * (8 + all * 4 + ctas));
    c.before.assign(c.after.bytes.size(), 0xff);
    std::memcpy(c.before.data(), before, sizeof before);
    const uint32_t after[8] = {10 + sums, 20 + sums * 3, 30 - sums, 40 + all, 50 + all * 7, 60 + all, 70, 80};
    for (uint32_t i = 0; i < 8; i++)
        c.after.put(4 * i, after[i]);
    for (uint32_t thread = 0; thread < all; thread++)
        c.after.put(4 * (8 + thread * 4 + 3), 70u);
    for (uint32_t cta = 0; cta < ctas; cta++)
        c.after.put(4 * (8 + all * 4 + cta), 5 + 2 * threads);
    c.judge = [=](const std::vector<uint8_t> &out) -> std::string {
        if (!is_sequence(out, 0, all, 0, 40, 1))
            return "fetch_add_relaxed_gpu: the fetches are no sequence";
        if (!is_sequence(out, 0, all, 1, 50, 7))
            return "fetch_add_acq_rel_gpu: the fetches are no sequence";
        for (uint32_t cta = 0; cta < ctas; cta++)
            if (!is_sequence(out, cta * threads, threads, 2, 5, 2))
                return "smem_fetch_add: the fetches are no sequence";
        return "";
    };
    cases.push_back(c);
}

} // namespace

void add_memory_cases(case_list &cases) {
    add_widths(cases);
    add_additions(cases);
}

} // namespace conformance
