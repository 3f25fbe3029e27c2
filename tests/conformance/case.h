/* A case of the suite: a kernel, what it is given, and what must be in its output afterwards, worked out by plain C
 * that knows nothing of the machine or the simulator. */
#ifndef TESTS_CONFORMANCE_CASE_H
#define TESTS_CONFORMANCE_CASE_H

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "parameters.h"

namespace conformance {

/* An output, byte by byte: a value, or untouched. */
class image {
  public:
    explicit image(size_t size = 0) : bytes(size), written(size) {}

    template <typename type> void put(size_t offset, type value) {
        std::memcpy(bytes.data() + offset, &value, sizeof value);
        std::memset(written.data() + offset, 1, sizeof value);
    }

    std::vector<uint8_t> bytes, written;
};

enum which_buffer { IN, OUT };

/* A tensor map over one of the case's buffers, from `offset` on; desc.base is not used. */
struct case_map {
    which_buffer buffer;
    size_t offset;
    tensor_map_desc desc;
};

struct test_case {
    std::string name, kernel;
    uint32_t ctas = 1, threads = 128, cluster = 1, shared_bytes = 0;
    bool together = false; /* its CTAs wait for each other: all must run at once */
    uint32_t launches = 1; /* one after another, each allowed to start before the one in front has ended */
    std::vector<uint8_t> in;
    std::vector<uint32_t> table;
    std::vector<uint8_t> before; /* what the output holds before; empty: poison */
    std::vector<case_map> maps;
    uint32_t number[PARAMETER_NUMBERS - 1] = {};
    image after;
    /* For outputs that are not one image: says what is wrong, or nothing. It is shown bytes that `after` leaves
     * untouched, and those alone are not compared. */
    std::function<std::string(const std::vector<uint8_t> &)> judge;
};

template <typename type> type read(const std::vector<uint8_t> &bytes, size_t offset) {
    type value;
    std::memcpy(&value, bytes.data() + offset, sizeof value);
    return value;
}

template <typename type> void append(std::vector<uint8_t> &bytes, type value) {
    const size_t end = bytes.size();
    bytes.resize(end + sizeof value);
    std::memcpy(bytes.data() + end, &value, sizeof value);
}

/* One function a file of kernels. */
using case_list = std::vector<test_case>;
void add_mbarrier_cases(case_list &);
void add_tma_load_cases(case_list &);
void add_tma_store_cases(case_list &);
void add_bulk_cases(case_list &);
void add_wgmma_cases(case_list &);
void add_pipeline_cases(case_list &);
void add_matrix_cases(case_list &);
void add_warp_cases(case_list &);
void add_sync_cases(case_list &);
void add_memory_cases(case_list &);
void add_message_cases(case_list &);
void add_arithmetic_cases(case_list &);

case_list all_cases();

} // namespace conformance

#endif
