/* The group behind the layers of a benchmark. */
#ifndef BENCH_GPU_GROUP_H
#define BENCH_GPU_GROUP_H

#include "megamoe.h"

struct bench_group {
    mmoe_group *group;
};

#endif
