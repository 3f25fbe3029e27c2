/* Whether tests run at reduced size: in C and in C++. */
#ifndef RIG_SMALL_H
#define RIG_SMALL_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* True when MMOE_TEST_SCALE=small is set, as it is under sanitizers: tests then run reduced counts. */
static inline bool rig_small(void) {
    const char *scale = getenv("MMOE_TEST_SCALE");
    return scale && strcmp(scale, "small") == 0;
}

#endif
