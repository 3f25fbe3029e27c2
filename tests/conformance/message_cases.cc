/* Cases of message.cu. */
#include "case.h"
#include "random.h"

namespace conformance {
namespace {

const char *const KINDS[] = {"store_release_gpu",   "store_release_system",        "add_release_gpu",
                             "add_release_system",  "fence_gpu and a relaxed add", "fence_system on both sides",
                             "compare_swap_system", "fetch_add_acq_rel_gpu"};
const uint32_t KIND_COUNT = sizeof KINDS / sizeof KINDS[0];
const uint32_t FLAG_BYTES = 128, MESSAGE_BYTES = 1024;

void add_pass(case_list &cases, const char *kernel, const std::string &how, uint32_t kind, uint32_t threads) {
    const uint32_t pairs = 2, messages = 4, slots = pairs * 2 * FLAG_BYTES, copies = slots + pairs * MESSAGE_BYTES;
    test_case c;
    c.name = "message: " + how + ", " + KINDS[kind];
    c.kernel = kernel;
    c.ctas = 2 * pairs;
    c.together = true;
    c.threads = threads;
    c.shared_bytes = 1024 + MESSAGE_BYTES;
    c.number[0] = messages;
    c.number[1] = kind;
    c.after = image(copies + pairs * messages * MESSAGE_BYTES);
    c.before.assign(c.after.bytes.size(), 0xee);
    std::memset(c.before.data(), 0, slots);
    for (uint32_t pair = 0; pair < pairs; pair++) {
        c.after.put(pair * 2 * FLAG_BYTES, messages);
        c.after.put((pair * 2 + 1) * FLAG_BYTES, messages);
        for (uint32_t message = 0; message < messages; message++)
            for (uint32_t at = 0; at < MESSAGE_BYTES; at += 4) {
                const uint32_t word = pair << 24 | message << 16 | at;
                c.after.put(slots + pair * MESSAGE_BYTES + at, word);
                c.after.put(copies + (pair * messages + message) * MESSAGE_BYTES + at, word);
            }
    }
    cases.push_back(c);
}

void add_chain(case_list &cases, uint32_t kind) {
    const uint32_t ctas = 5, words = ctas * FLAG_BYTES, sums = words + ctas * 128;
    test_case c;
    c.name = std::string("message: along a chain of 5 CTAs, ") + KINDS[kind];
    c.kernel = "message_chain";
    c.ctas = ctas;
    c.together = true;
    c.threads = 32;
    c.number[0] = kind;
    c.after = image(sums + ctas * 128);
    c.before.assign(c.after.bytes.size(), 0);
    for (uint32_t cta = 0; cta < ctas; cta++) {
        c.after.put(cta * FLAG_BYTES, 1u);
        for (uint32_t lane = 0; lane < 32; lane++) {
            uint32_t sum = 0;
            for (uint32_t before = 0; before < cta; before++)
                sum = sum * 3 + before * 1000 + (lane + 1) % 32;
            c.after.put(words + (cta * 32 + lane) * 4, cta * 1000 + lane);
            c.after.put(sums + (cta * 32 + lane) * 4, sum);
        }
    }
    cases.push_back(c);
}

void add_store_and_look(case_list &cases) {
    const uint32_t pairs = 2, rounds = 200;
    test_case c;
    c.name = "message: two CTAs that store and then look, fence_sc_system";
    c.kernel = "message_store_and_look";
    c.ctas = 2 * pairs;
    c.together = true;
    c.threads = 32;
    c.number[0] = rounds;
    c.after = image(pairs * 6 * FLAG_BYTES);
    c.before.assign(c.after.bytes.size(), 0);
    for (uint32_t pair = 0; pair < pairs; pair++)
        for (uint32_t word = 0; word < 6; word++)
            c.after.put((pair * 6 + word) * FLAG_BYTES, word < 4 ? rounds : 0u);
    cases.push_back(c);
}

void add_between_proxies(case_list &cases) {
    test_case c;
    c.name = "message: a thread and its own bulk copies";
    c.kernel = "message_between_proxies";
    c.threads = 32;
    c.shared_bytes = 1024 + 32 * 64;
    c.in = random_source(4).bytes(32 * 64);
    c.after = image(2 * c.in.size());
    for (size_t at = 0; at < c.in.size(); at += 4) {
        c.after.put(at, read<uint32_t>(c.in, at));
        c.after.put(c.in.size() + at, read<uint32_t>(c.in, at) + 1);
    }
    cases.push_back(c);
}

} // namespace

void add_message_cases(case_list &cases) {
    for (uint32_t kind = 0; kind < KIND_COUNT; kind++) {
        add_pass(cases, "message_pass", "plain stores", kind, 128);
        add_pass(cases, "message_bulk", "bulk copies", kind, 32);
        add_chain(cases, kind);
    }
    add_store_and_look(cases);
    add_between_proxies(cases);
}

} // namespace conformance
