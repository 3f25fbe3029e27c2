/* Whether ranks that are processes of their own were given the same problem. Each makes a part of the data from its own
 * command line, so two that differ would compute something that nobody asked for, without any error. */
#ifndef CLI_AGREEMENT_H
#define CLI_AGREEMENT_H

#include "problem.h"

/* What one option comes to on a rank. */
struct agreement_term {
    char option[16], value[64]; /* for a sentence; a long value is cut */
    uint64_t digest;            /* of all of it; for a file, of its bytes */
};

#define AGREEMENT_TERMS (18 + INPUTS)

/* Everything that must be the same on all ranks, in plain memory that can be sent to a rank of the same version. */
struct agreement {
    struct agreement_term term[AGREEMENT_TERMS];
};

void agreement_of(const struct problem *problem, struct agreement *agreement);

/* Whether the agreements of all ranks are the same; if not, `error` says which option differs on which two ranks. */
bool agreement_holds(const struct agreement *all, int world, char *error, size_t error_bytes);

#endif
