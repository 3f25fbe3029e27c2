/* How much a test of the simulator tries: what its arguments say, or what fits the size of the tests. */
#ifndef TESTS_SIM_SEEDS_H
#define TESTS_SIM_SEEDS_H

#include <cstdint>
#include <cstdlib>

#include "rig/small.h"

/* Argument `place`, a number; `usual` where there is none. */
static inline uint64_t argument_or(int count, char **arguments, int place, uint64_t usual) {
    return count > place ? std::strtoull(arguments[place], nullptr, 10) : usual;
}

#endif
