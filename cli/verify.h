/* One rank's results against the float64 oracle. */
#ifndef CLI_VERIFY_H
#define CLI_VERIFY_H

#include "share.h"

#define VERIFIED 6
extern const enum tensor verified[VERIFIED];

/* How many of them a problem has: all, or with --forward the first. */
int verify_count(const struct problem *problem);

/* Sums of squares, in the order of `verified`: of the differences from the oracle, and of the oracle's values. */
struct verify_sums {
    double error[VERIFIED], norm[VERIFIED];
};

/* Compares what the share's last forward and backward wrote. Returns an exit code; the rank's sentence says why. */
int verify_share(struct share *share, struct verify_sums *sums);

/* How many steps of progress all ranks here make in that. */
int64_t verify_steps(const struct problem *problem);

#endif
