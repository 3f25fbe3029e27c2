/* The ranks that share a layer's experts; see bench.h. */
#include "group.h"

#include "base/error.h"
#include "base/memory.h"
#include "bench.h"

static mmoe_status make(const mmoe_group_config *config, int world, mmoe_group **group) {
    if (world == 1) {
        return mmoe_group_create_threads(config, 1, group);
    }
    mmoe_status status = mmoe_group_create_env(config, group);
    if (status == MMOE_OK && mmoe_group_world(*group) != world) {
        status = mm_fail(MMOE_INVALID_ARGUMENT, "world is %d, expected %d as in the environment", world,
                         mmoe_group_world(*group));
    }
    return status;
}

int bench_group_make(const char *backend, const char *name, int world, int64_t hidden, int64_t experts, int64_t top_k,
                     int64_t max_tokens, struct bench_group **made) {
    mmoe_status status = mm_alloc_zero((void **)made, sizeof **made, "the group");
    if (status != MMOE_OK) {
        return status;
    }
    mmoe_group_config config = mmoe_group_config_default();
    config.max_tokens = max_tokens;
    config.max_hidden = hidden;
    config.max_top_k = top_k;
    config.max_experts = experts;
    config.backend = backend;
    config.name = name;
    status = make(&config, world, &(*made)->group);
    if (status != MMOE_OK) {
        bench_group_free(*made);
        *made = NULL;
    }
    return status;
}

void bench_group_free(struct bench_group *group) {
    mmoe_group_destroy(&group->group);
    mm_free(&group);
}
