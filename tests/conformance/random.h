/* Seeded random data: the same on every machine. */
#ifndef TESTS_CONFORMANCE_RANDOM_H
#define TESTS_CONFORMANCE_RANDOM_H

#include <cstdint>
#include <vector>

namespace conformance {

/* splitmix64 */
class random_source {
  public:
    explicit random_source(uint64_t seed) : state_(seed) {}

    uint64_t next() {
        uint64_t z = state_ += 0x9e3779b97f4a7c15u;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        return z ^ z >> 31;
    }

    /* low .. high, both included */
    int64_t between(int64_t low, int64_t high) { return low + (int64_t)(next() % (uint64_t)(high - low + 1)); }

    std::vector<uint8_t> bytes(size_t size) {
        std::vector<uint8_t> all(size);
        for (uint8_t &byte : all)
            byte = (uint8_t)next();
        return all;
    }

  private:
    uint64_t state_;
};

} // namespace conformance

#endif
