/* The fuzzer's bytes as a stream of choices. A stream that has ended yields zeros, the plainest choice everywhere. */
#ifndef FUZZ_INPUT_H
#define FUZZ_INPUT_H

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the run and shows what promise was broken; libFuzzer then keeps the input. */
#define REQUIRE(condition)                                                                                             \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: broken promise: %s\n", __FILE__, __LINE__, #condition);                            \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

struct input {
    const uint8_t *at, *end;
};

static inline uint8_t input_byte(struct input *input) {
    return input->at < input->end ? *input->at++ : 0;
}

/* 0 .. count-1 */
static inline int input_below(struct input *input, int count) {
    return input_byte(input) % count;
}

/* A number that checks tend to get wrong: near `around`, near a power of two, at the ends of a type. */
static inline int64_t input_number(struct input *input, int64_t around) {
    static const int64_t edges[] = {
        0,         -1,        1,          INT32_MAX,     INT32_MIN,       (int64_t)INT32_MAX + 1,
        INT64_MAX, INT64_MIN, UINT32_MAX, INT64_MAX / 2, INT64_C(1) << 40};
    int edge_count = (int)(sizeof edges / sizeof edges[0]);
    int choice = input_byte(input);
    if (choice < 96)
        return (int64_t)((uint64_t)around + (uint64_t)(choice % 9) - 4u);
    if (choice < 160)
        return edges[choice % edge_count];
    if (choice < 208)
        return (int64_t)((uint64_t)1 << (choice % 63)) * (choice & 1 ? 1 : -1);
    return (int64_t)(int8_t)input_byte(input);
}

#endif
