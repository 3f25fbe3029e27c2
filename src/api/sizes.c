/* Bytes of every buffer, before any is made. */
#include "api/check.h"

/* Parts of the segment lie one after another, so a part ends where the next begins. */
static void segment_sizes(const struct mm_layout *layout, mmoe_sizes *sizes) {
    sizes->flags = layout->x - layout->control;
    sizes->x_slot = layout->dy - layout->x;
    sizes->dy_slot = layout->ids - layout->dy;
    sizes->routing = layout->combine - layout->ids;
    sizes->combine_slots = layout->dw - layout->combine;
    sizes->dw_slots = layout->bytes - layout->dw;
    sizes->segment = layout->bytes;
}

/* A fixed capacity makes room for its rows whatever is received. */
static int64_t rows_to_hold(const mmoe_layer_config *layer, int64_t rows, int64_t most_rows) {
    return rows < 0 || layer->capacity_policy == MMOE_CAPACITY_FIXED ? most_rows : rows;
}

mmoe_status mmoe_sizes_of(const mmoe_group_config *group, const mmoe_layer_config *layer, int world, int64_t tokens,
                          int64_t rows, mmoe_keep keep, mmoe_sizes *sizes) {
    const struct mm_backend *backend;
    mmoe_group_config checked;
    mmoe_status status = mm_check_pointer("sizes", sizes, "the address of a mmoe_sizes");
    if (status == MMOE_OK) {
        status = mm_group_config_check(group, world, &checked);
    }
    if (status == MMOE_OK) {
        status = mm_check_layer_in_group(layer, &checked, world);
    }
    if (status == MMOE_OK) {
        status = mm_check_range("tokens", tokens, 0, checked.max_tokens);
    }
    if (status == MMOE_OK) {
        status = mm_check_range("keep", keep, MMOE_KEEP_PLAN, MMOE_KEEP_ROWS);
    }
    if (status == MMOE_OK) {
        status = mm_backend_find(checked.backend, &backend);
    }
    if (status != MMOE_OK) {
        return status;
    }
    int64_t most_rows = mm_most_rows(layer, world, checked.max_tokens);
    if (rows > most_rows) {
        return mm_fail(MMOE_INVALID_ARGUMENT, "rows is %lld, expected at most %lld, or less than 0 for the worst case",
                       (long long)rows, (long long)most_rows);
    }
    int64_t padded_rows = mm_padded_rows_bound(rows_to_hold(layer, rows, most_rows), layer->experts / world);
    struct mm_plan_shape shape = mm_plan_shape_of(layer, 0, world);
    mmoe_sizes result = {0};
    const struct mm_layout layout = backend->layout(&checked, world);
    segment_sizes(&layout, &result);
    backend->sizes(&checked, layer, world, padded_rows, keep, &result);
    result.plan = mm_plan_bytes(&shape, tokens, padded_rows);
    result.saved = result.plan + result.kept_x + result.kept_gate_up;
    *sizes = result;
    return MMOE_OK;
}
