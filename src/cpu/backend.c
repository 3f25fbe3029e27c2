/* The CPU backend's table; see cpu.h. */
#include <cblas.h>
#include <stdio.h>

#include "cpu/cpu.h"
#include "cpu/passes.h"
#include "cpu/setup.h"

static bool present(char *detail, size_t bytes) {
    mmoe_group_config alone = {0};
    snprintf(detail, bytes, "%d cores, %s, kernels for %s", mm_pool_threads(&alone, 1), openblas_get_config(),
             openblas_get_corename());
    return true;
}

static bool supports(const mmoe_layer_config *config, char *reason, size_t bytes) {
    (void)config, (void)reason, (void)bytes;
    return true; /* every legal layer */
}

static mmoe_status refuse(struct mmoe_layer *layer, enum mm_call_kind kind, void *stream, mmoe_status status) {
    (void)stream;
    return mm_call_refuse(layer->group, kind, status);
}

static const mmoe_plan *plan(struct mmoe_saved *saved) {
    return &saved->plan.view;
}

const struct mm_backend mm_cpu_backend = {
    .name = "cpu",
    .present = present,
    .supports = supports,
    .segments = &mm_host_segments,
    .layout = mm_layout_of,
    .sizes = mm_cpu_sizes,
    .group_open = mm_cpu_group_open,
    .group_close = mm_cpu_group_close,
    .layer_open = mm_cpu_layer_open,
    .layer_close = mm_cpu_layer_close,
    .saved_open = mm_cpu_saved_open,
    .saved_close = mm_cpu_saved_close,
    .plan = plan,
    .forward = mm_cpu_forward,
    .backward = mm_cpu_backward,
    .refuse = refuse,
};
