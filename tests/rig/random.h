/* Seeded random numbers for tests: the same on every machine. */
#ifndef RIG_RANDOM_H
#define RIG_RANDOM_H

#include <math.h>
#include <stdint.h>

struct rig_random {
    uint64_t state;
};

static inline struct rig_random rig_seed(uint64_t seed) {
    return (struct rig_random){seed};
}

static inline uint64_t rig_next(struct rig_random *random) {
    uint64_t z = random->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* 0 .. count-1 */
static inline int64_t rig_below(struct rig_random *random, int64_t count) {
    return (int64_t)(rig_next(random) % (uint64_t)count);
}

/* In [0, 1). */
static inline double rig_uniform(struct rig_random *random) {
    return (double)(rig_next(random) >> 11) * 0x1p-53;
}

/* Mean 0, deviation 1. */
static inline double rig_normal(struct rig_random *random) {
    double radius = sqrt(-2 * log(1 - rig_uniform(random)));
    return radius * cos(2 * 3.14159265358979323846 * rig_uniform(random));
}

#endif
