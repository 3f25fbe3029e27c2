/* What forwards over several GPUs keep for their backward: the rows of x, gate and up, and the plan. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "cuda/state.h"
#include "gpus.h"

static const struct rig_options keep_rows = {.forward_only = true, .keep = MMOE_KEEP_ROWS};

static bool is_zero(const uint16_t *values, int64_t n) {
    int64_t zeros = 0;
    while (zeros < n && (values[zeros] & 0x7fff) == 0)
        zeros++;
    return zeros == n;
}

/* One row of a product with a weight [rows, cols]. */
static bool is_product(const uint16_t *found, const uint16_t *weight, const uint16_t *x, int64_t rows, int64_t cols) {
    for (int64_t i = 0; i < rows; i++) {
        double sum = 0;
        for (int64_t h = 0; h < cols; h++)
            sum += (double)mm_bf16_to_float(weight[i * cols + h]) * (double)mm_bf16_to_float(x[h]);
        if (!(fabs(mm_bf16_to_float(found[i]) - sum) <= fabs(sum) / 128 + 1e-3))
            return false;
    }
    return true;
}

/* Row for row: x is its token's, gate and up are those of its expert, and pads are zeros. */
static void expect_kept(struct rig_rank *rank, const struct rig_batch *batch, const mmoe_plan *plan, const uint16_t *x,
                        const uint16_t *gate_up) {
    const int64_t hidden = batch->layer.hidden, inner = batch->layer.intermediate;
    int64_t expert = 0;
    for (int64_t row = 0; row < plan->padded_rows; row++) {
        while (row >= plan->expert_offset[expert + 1])
            expert++;
        const uint16_t *kept = x + row * hidden, *products = gate_up + row * 2 * inner;
        if (plan->row_source[row] < 0) {
            RIG_EXPECT(rank, is_zero(kept, hidden) && is_zero(products, 2 * inner), "pad %lld is not zero",
                       (long long)row);
            continue;
        }
        const int64_t token = rig_batch_first(batch, plan->row_source[row]) + plan->row_token[row];
        const int64_t weight = (rank->rank * plan->local_experts + expert) * inner * hidden;
        RIG_EXPECT(rank, memcmp(kept, batch->x + token * hidden, (size_t)hidden * sizeof *kept) == 0,
                   "row %lld is not its token", (long long)row);
        RIG_EXPECT(rank,
                   is_product(products, batch->gate + weight, kept, inner, hidden) &&
                       is_product(products + inner, batch->up + weight, kept, inner, hidden),
                   "gate or up of row %lld is wrong", (long long)row);
    }
}

static void kept_body(struct rig_rank *rank, void *context) {
    struct rig_batch *batch = context;
    mmoe_layer *layer;
    mmoe_saved *saved;
    RIG_OK(rank, mmoe_layer_create(rank->group, &batch->layer, &layer));
    RIG_OK(rank, mmoe_saved_create(layer, MMOE_KEEP_ROWS, &saved));
    for (int step = 0; step < 2; step++) {
        if (!rig_step(rank, layer, saved, batch, &keep_rows, 0xff) ||
            !rig_plan_is_right(rank, mmoe_saved_plan(saved), batch))
            return;
        const struct mm_cuda_saved *kept = saved->backend_state;
        const mmoe_plan *plan = mmoe_saved_plan(saved);
        const size_t x_bytes = (size_t)(plan->padded_rows * batch->layer.hidden) * sizeof(uint16_t);
        const size_t products_bytes = (size_t)(plan->padded_rows * 2 * batch->layer.intermediate) * sizeof(uint16_t);
        uint16_t *x = malloc(x_bytes + 1), *gate_up = malloc(products_bytes + 1);
        RIG_EXPECT(rank,
                   rig_fetch(rank, x, mm_at(kept->x.address), x_bytes) &&
                       rig_fetch(rank, gate_up, mm_at(kept->gate_up.address), products_bytes),
                   "not fetched");
        expect_kept(rank, batch, plan, x, gate_up);
        free(x);
        free(gate_up);
    }
    mmoe_saved_destroy(&saved);
    mmoe_layer_destroy(&layer);
}

static void kept_rows_and_plan_are_right(void **state) {
    (void)state;
    gpus_two_at_small_size();
    for
        GPUS_EACH_WORLD(world)
    for (int fixed = 0; fixed < 2; fixed++) {
        int64_t tokens[MMOE_MAX_WORLD];
        mmoe_layer_config layer = rig_layer(128, 64, 2 * world, 3);
        layer.capacity_policy = fixed ? MMOE_CAPACITY_FIXED : MMOE_CAPACITY_GROW;
        layer.capacity = fixed ? 200 * world : 0;
        gpus_uneven_tokens(world, 60, tokens);
        struct rig_batch batch = rig_batch_make(&layer, world, tokens, fixed ? RIG_HOLES : RIG_ZIPF, 745);
        struct rig_world ranks = rig_world_for(&batch, 1, gpus_kind);
        rig_world_run(&ranks, kept_body, &batch);
        rig_batch_free(&batch);
    }
}

int main(void) {
    const struct CMUnitTest of_threads[] = {cmocka_unit_test(kept_rows_and_plan_are_right)};
    return gpus_main(2, (struct gpus_tests){NULL, 0}, GPUS_TESTS(of_threads));
}
