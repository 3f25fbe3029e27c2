/* Between the files of the fake driver. */
#ifndef FAKE_H
#define FAKE_H

#include "cuda/driver_api.h"

#define ANSWER(name, ...)                                                                                              \
    mm_cu_result name(__VA_ARGS__);                                                                                    \
    mm_cu_result name(__VA_ARGS__)

/* Objects that were made; fewer than none: that were freed. */
void fake_made(int objects);

/* Of the calling thread's current context; -1: there is none. */
int fake_device(void);

/* What `function` must answer in place of doing its work, by FAKE_FAIL in the environment: "cuMemCreate@1=2" lets it
 * give the result 2 while a context of device 1 is current. */
mm_cu_result fake_failure(const char *function);

/* Whether two devices are the pair that a variable of the environment names, "1-2" in either order. */
int fake_is_pair(const char *variable, int a, int b);

/* Whether it is the device that a variable of the environment names. */
int fake_is_device(const char *variable, int device);

#endif
