/* A group's budget of multiprocessors, on one GPU: no large kernel of a forward or a backward takes more of them. */
#include "cuda/state.h"
#include "support.h"

#define LARGE_THREADS 384 /* of every large kernel, and of no other */

static struct mm_driver real;
static unsigned most_ctas; /* of a large kernel since it was last looked at */

static mm_cu_result count_ctas(const struct mm_cu_launch_config *config, mm_cu_function function, void **parameters,
                               void **extra) {
    if (config->block_x == LARGE_THREADS && config->grid_x > most_ctas)
        most_ctas = config->grid_x;
    return real.cuLaunchKernelEx(config, function, parameters, extra);
}

static bool is_kept(struct rig_rank *rank, const char *call, unsigned most) {
    RIG_TRY(rank, most_ctas > 0 && most_ctas <= most, "a kernel of the %s has %u CTAs, expected 1 .. %u", call,
            most_ctas, most);
    most_ctas = 0;
    return true;
}

static void budget_body(struct rig_rank *rank, void *context) {
    struct rig_batch *batch = context;
    struct mm_cuda_group *cuda = rank->group->backend_state;
    const int left = cuda->gpu.device.multiprocessors - rank->group->config.spare_multiprocessors;
    const struct rig_options options = {.keep = MMOE_KEEP_PLAN};
    mmoe_layer *layer;
    mmoe_saved *saved;
    struct rig_placed placed;
    RIG_OK(rank, mmoe_layer_create(rank->group, &batch->layer, &layer));
    RIG_OK(rank, mmoe_saved_create(layer, options.keep, &saved));
    struct rig_call call = rig_call_make(rank, batch, &options, saved, 0xff);
    real = cuda->gpu.driver;
    cuda->gpu.driver.cuLaunchKernelEx = count_ctas;
    most_ctas = 0;
    RIG_EXPECT(rank,
               rig_call_place(rank, &call, &placed) && rig_call_forward(rank, layer, &call, &placed, batch) &&
                   is_kept(rank, "forward", (unsigned)left) && rig_call_backward(rank, layer, &call, &placed, batch) &&
                   is_kept(rank, "backward", left > 2 ? (unsigned)left : 2),
               "not kept");
    rig_placed_free(rank, &placed);
    rig_call_free(&call);
    mmoe_saved_destroy(&saved);
    mmoe_layer_destroy(&layer);
}

static void no_large_kernel_takes_more(void **state) {
    (void)state;
    const int all = count_multiprocessors(), spare[] = {0, 1, all / 2, all - 1};
    const mmoe_layer_config layer = rig_layer(64, 64, 4, 2);
    const int64_t tokens = 40;
    for (int i = 0; i < COUNT(spare); i++) {
        struct rig_batch batch = rig_batch_make(&layer, 1, &tokens, RIG_HOLES, 911);
        struct rig_world world = rig_world_for(&batch, 1, RIG_THREADS);
        world.config.spare_multiprocessors = spare[i];
        rig_world_run(&world, budget_body, &batch);
        rig_batch_free(&batch);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_large_kernel_takes_more)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
