/* The seeded generator that every choice of a machine is drawn from. */
#ifndef SIM_RANDOM_H
#define SIM_RANDOM_H

#include <cstdint>

namespace sim {

class random_source {
  public:
    explicit random_source(uint64_t seed) : state(seed * 0x9e3779b97f4a7c15ull + 0x2545f4914f6cdd1dull) {}

    uint64_t next() {
        state += 0x9e3779b97f4a7c15ull;
        uint64_t z = state;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
        return z ^ (z >> 31);
    }
    /* 0 .. count-1 */
    uint32_t below(uint32_t count) { return (uint32_t)((next() >> 32) * count >> 32); }
    bool one_in(uint32_t count) { return below(count) == 0; }

  private:
    uint64_t state;
};

} // namespace sim

#endif
