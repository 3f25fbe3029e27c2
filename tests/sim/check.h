/* Checks that say what is wrong and count. */
#ifndef TESTS_SIM_CHECK_H
#define TESTS_SIM_CHECK_H

#include <cstdio>

static unsigned failed_checks;

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            std::printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                                        \
            failed_checks++;                                                                                           \
        }                                                                                                              \
    } while (0)

static inline int checks_result(void) {
    std::printf("%u failed\n", failed_checks);
    return failed_checks > 0;
}

#endif
