/* A kernel that holds multiprocessors, as another library's may: its CTAs tell that they run, and stay until they are
 * let go. */
#ifndef TESTS_FUSED_HOLD_H
#define TESTS_FUSED_HOLD_H

#include <stdint.h>

enum { HOLD_MOST_PEERS = 8, HOLD_THREADS = 64 };

struct hold_params {
    uint32_t *tell[HOLD_MOST_PEERS]; /* counters that each CTA adds one to */
    uint32_t peers;
    const uint32_t *until; /* the CTAs stay until it has reached `count` */
    uint32_t count;
};

#endif
