/* Checks of a layer's configuration. */
#include <math.h>

#include "api/check.h"

static mmoe_status check_sizes(const mmoe_layer_config *config, int world) {
    mmoe_status status = mm_check_range("config.hidden", config->hidden, 1, MMOE_MAX_HIDDEN);
    if (status == MMOE_OK) {
        status = mm_check_range("config.intermediate", config->intermediate, 1, MMOE_MAX_INTERMEDIATE);
    }
    if (status == MMOE_OK) {
        status = mm_check_range("config.experts", config->experts, 1, MMOE_MAX_EXPERTS);
    }
    if (status == MMOE_OK && config->experts % world != 0) {
        status = mm_fail(MMOE_INVALID_ARGUMENT, "config.experts is %lld, expected a multiple of the %d ranks",
                         (long long)config->experts, world);
    }
    return status == MMOE_OK ? mm_check_range("config.top_k", config->top_k, 1, MMOE_MAX_TOP_K) : status;
}

static mmoe_status check_options(const mmoe_layer_config *config) {
    mmoe_status status =
        mm_check_range("config.weight_on", config->weight_on, MMOE_WEIGHT_ON_OUTPUT, MMOE_WEIGHT_ON_INPUT);
    if (status == MMOE_OK) {
        status = mm_check_range("config.activation", config->activation, MMOE_SILU, MMOE_SILU);
    }
    if (status == MMOE_OK && !(isfinite(config->limit) && config->limit >= 0)) {
        status = mm_fail(MMOE_INVALID_ARGUMENT, "config.limit is %g, expected a finite number above 0, or 0 for none",
                         (double)config->limit);
    }
    if (status == MMOE_OK) {
        status = mm_check_range("config.check_weights", config->check_weights, 0, 1);
    }
    return status == MMOE_OK
               ? mm_check_range("config.combine", config->combine, MMOE_COMBINE_EXACT, MMOE_COMBINE_GROUPED)
               : status;
}

static mmoe_status check_capacity(const mmoe_layer_config *config) {
    mmoe_status status =
        mm_check_range("config.capacity_policy", config->capacity_policy, MMOE_CAPACITY_GROW, MMOE_CAPACITY_FIXED);
    if (status == MMOE_OK) {
        status = mm_check_range("config.drop", config->drop, 0, 1);
    }
    if (status == MMOE_OK) {
        status = mm_check_range("config.capacity", config->capacity, 0, INT32_MAX);
    }
    if (status != MMOE_OK || config->capacity_policy == MMOE_CAPACITY_FIXED) {
        return status;
    }
    if (config->capacity != 0) {
        return mm_fail(MMOE_INVALID_ARGUMENT,
                       "config.capacity is %lld, expected 0 unless config.capacity_policy is fixed",
                       (long long)config->capacity);
    }
    return config->drop == 0
               ? MMOE_OK
               : mm_fail(MMOE_INVALID_ARGUMENT, "config.drop is 1, expected 0 unless config.capacity_policy is fixed");
}

mmoe_status mm_check_layer(const mmoe_layer_config *config, int world) {
    mmoe_status status = mm_check_pointer("config", config, "a mmoe_layer_config");
    if (status == MMOE_OK) {
        status = mm_check_struct_size("config", config->struct_size, sizeof *config, "mmoe_layer_config_default()");
    }
    if (status == MMOE_OK) {
        status = mm_check_range("world", world, 1, MMOE_MAX_WORLD);
    }
    if (status == MMOE_OK) {
        status = check_sizes(config, world);
    }
    if (status == MMOE_OK) {
        status = check_options(config);
    }
    return status == MMOE_OK ? check_capacity(config) : status;
}

/* Pads count too: the last row number must be an int32. */
mmoe_status mm_check_row_numbers(int64_t rows, int64_t local_experts) {
    int64_t padded = mm_padded_rows_bound(rows, local_experts);
    if (padded > INT32_MAX) {
        return mm_fail(MMOE_INVALID_ARGUMENT,
                       "a rank of %lld experts may get %lld rows, %lld with pads, expected at most %d",
                       (long long)local_experts, (long long)rows, (long long)padded, INT32_MAX);
    }
    return MMOE_OK;
}

static mmoe_status check_maximum(const char *name, int64_t value, const char *maximum_name, int64_t maximum) {
    if (value > maximum) {
        return mm_fail(MMOE_INVALID_ARGUMENT, "%s is %lld, expected at most the group's %s of %lld", name,
                       (long long)value, maximum_name, (long long)maximum);
    }
    return MMOE_OK;
}

mmoe_status mm_check_layer_in_group(const mmoe_layer_config *config, const mmoe_group_config *group, int world) {
    mmoe_status status = mm_check_layer(config, world);
    if (status == MMOE_OK) {
        status = check_maximum("config.hidden", config->hidden, "max_hidden", group->max_hidden);
    }
    if (status == MMOE_OK) {
        status = check_maximum("config.experts", config->experts, "max_experts", group->max_experts);
    }
    if (status == MMOE_OK) {
        status = check_maximum("config.top_k", config->top_k, "max_top_k", group->max_top_k);
    }
    return status == MMOE_OK
               ? mm_check_row_numbers(mm_most_rows(config, world, group->max_tokens), config->experts / world)
               : status;
}
