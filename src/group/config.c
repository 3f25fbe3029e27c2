/* The check of a group's configuration. */
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "group/group.h"

#define MAX_TIMEOUT_MS (INT64_C(1000) * 60 * 60 * 24 * 365)
#define MAX_THREADS 4096
#define MAX_SPARE 4096 /* more than any GPU has; how many it has is its backend's matter */

static mmoe_status check_range(const char *field, int64_t value, int64_t least, int64_t most) {
    if (value >= least && value <= most) {
        return MMOE_OK;
    }
    return mm_fail(MMOE_INVALID_ARGUMENT, "config.%s is %lld, expected %lld .. %lld", field, (long long)value,
                   (long long)least, (long long)most);
}

static mmoe_status check_ranges(const mmoe_group_config *config) {
    const struct {
        const char *field;
        int64_t value, least, most;
    } ranges[] = {
        {"max_tokens", config->max_tokens, 0, MMOE_MAX_TOKENS},
        {"max_hidden", config->max_hidden, 1, MMOE_MAX_HIDDEN},
        {"max_top_k", config->max_top_k, 1, MMOE_MAX_TOP_K},
        {"max_experts", config->max_experts, 1, MMOE_MAX_EXPERTS},
        {"arrive_timeout_ms", config->arrive_timeout_ms, 1, MAX_TIMEOUT_MS},
        {"progress_timeout_ms", config->progress_timeout_ms, 1, MAX_TIMEOUT_MS},
        {"threads", config->threads, 0, MAX_THREADS},
        {"spare_multiprocessors", config->spare_multiprocessors, 0, MAX_SPARE},
    };
    mmoe_status status = MMOE_OK;
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0] && status == MMOE_OK; i++) {
        status = check_range(ranges[i].field, ranges[i].value, ranges[i].least, ranges[i].most);
    }
    return status;
}

static int32_t share_of_cores(int world) {
    cpu_set_t usable;
    long cores = sched_getaffinity(0, sizeof usable, &usable) == 0 ? CPU_COUNT(&usable) : sysconf(_SC_NPROCESSORS_ONLN);
    return cores > world ? (int32_t)(cores / world) : 1;
}

mmoe_status mm_group_config_check(const mmoe_group_config *config, int world, mmoe_group_config *out) {
    if (config == NULL) {
        return mm_fail(MMOE_INVALID_ARGUMENT, "config is NULL, expected a mmoe_group_config");
    }
    if (config->struct_size != sizeof *config) {
        return mm_fail(MMOE_INVALID_ARGUMENT,
                       "config.struct_size is %zu, expected %zu as mmoe_group_config_default() sets it",
                       config->struct_size, sizeof *config);
    }
    if (world < 1 || world > MMOE_MAX_WORLD) {
        return mm_fail(MMOE_INVALID_ARGUMENT, "world is %d, expected 1 .. %d", world, MMOE_MAX_WORLD);
    }
    mmoe_status status = check_ranges(config);
    if (status != MMOE_OK) {
        return status;
    }
    const int64_t rows = world * config->max_tokens * config->max_top_k;
    if (rows > INT32_MAX) {
        return mm_fail(MMOE_INVALID_ARGUMENT,
                       "world * config.max_tokens * config.max_top_k is %lld, expected at most %d (a row number is an "
                       "int32)",
                       (long long)rows, INT32_MAX);
    }
    const char *name = config->name != NULL ? config->name : "";
    const size_t longest = sizeof((struct mmoe_group *)NULL)->name - 1;
    if (strnlen(name, longest + 1) > longest) {
        return mm_fail(MMOE_INVALID_ARGUMENT, "config.name begins \"%.32s\" and is longer than %zu bytes", name,
                       longest);
    }
    *out = *config;
    out->name = name;
    if (out->threads == 0) {
        out->threads = share_of_cores(world);
    }
    return MMOE_OK;
}
