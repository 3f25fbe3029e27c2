/* Random numbers addressed by place: any rank makes any part of the data, and gets the same bits as the others.
 *
 * Only integer arithmetic and exact float steps, so that the same seed gives the same bits on every machine. */
#ifndef CLI_RANDOM_H
#define CLI_RANDOM_H

#include <stdint.h>

/* A well-mixed function of its argument (the finaliser of splitmix64). */
static inline uint64_t random_mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* The key of one stream of numbers: a seed and what the stream is for. */
static inline uint64_t random_key(uint64_t seed, uint64_t purpose) {
    return random_mix(random_mix(seed + 0x9e3779b97f4a7c15u) ^ (purpose * 0xd1342543de82ef95u));
}

/* The 64 bits at `place` of a stream. */
static inline uint64_t random_bits(uint64_t key, uint64_t place) {
    return random_mix(key + (place + 1) * 0x9e3779b97f4a7c15u);
}

/* Uniform in (0, 1), never an end. */
double random_uniform(uint64_t key, uint64_t place);

/* Close to normal, mean 0 and variance 1, at most 3.47 in size: the sum of four uniform numbers. */
float random_normal(uint64_t key, uint64_t place);

/* random_normal times `scale`, rounded to bf16, for places first .. first+count-1. */
void random_fill_bf16(uint64_t key, uint64_t first, int64_t count, float scale, uint16_t *out);

#endif
