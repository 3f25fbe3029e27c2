/* The accuracy bar: errors against the float64 oracle at most 1.5 times those of the usual unfused pipeline on the same
 * data, and at most 5.5e-3. */
#include "proof.h"
#include "unfused.h"

#define RATIO 1.5

static void check_bar(int64_t hidden, int64_t intermediate, int64_t top_k, int64_t tokens_a_rank,
                      enum rig_routing routing) {
    tokens_a_rank /= rig_scaled("a part of the tokens: one over", 1, 4);
    mmoe_layer_config layer = rig_layer(hidden, intermediate, 8, top_k);
    const int64_t tokens[2] = {tokens_a_rank, tokens_a_rank}, all[1] = {2 * tokens_a_rank};
    struct rig_options options = {0};
    struct rig_batch fused = rig_batch_make(&layer, 2, tokens, routing, 801);
    struct rig_batch unfused = rig_batch_make(&layer, 1, all, routing, 801);
    struct rig_world world = rig_world_for(&fused, 1, RIG_THREADS);
    rig_run(&world, &fused, 1, &options);
    rig_compare(&fused, &options, RIG_BOUND);
    unfused_step(&unfused);
    double ours[6], theirs[6];
    rig_errors(&fused, &options, ours);
    rig_errors(&unfused, &options, theirs);
    static const char *const name[6] = {"y", "dx", "dweights", "dgate", "dup", "ddown"};
    for (int i = 0; i < 6; i++) {
        print_message("H %4d I %4d K %d %8s: %.2e, unfused %.2e\n", (int)hidden, (int)intermediate, (int)top_k, name[i],
                      ours[i], theirs[i]);
        if (!(ours[i] <= RATIO * theirs[i]))
            fail_msg("%s: %.2f times the error of the unfused pipeline", name[i], ours[i] / theirs[i]);
    }
    rig_batch_free(&fused);
    rig_batch_free(&unfused);
}

static void evenly_routed(void **state) {
    (void)state;
    check_bar(256, 192, 2, 128, RIG_UNIFORM);
    check_bar(192, 256, 8, 48, RIG_UNIFORM);
}

static void skewed(void **state) {
    (void)state;
    check_bar(256, 192, 2, 128, RIG_ZIPF);
    check_bar(512, 64, 1, 128, RIG_ZIPF);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(evenly_routed),
        cmocka_unit_test(skewed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
