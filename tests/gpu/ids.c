/* Ids and router weights that are wrong, and experts that a token names twice, on one GPU. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support.h"

#define EXPERTS 4
#define TOP_K 2
#define TOKENS 5

/* A batch that is refused with a sentence which holds `names`. */
struct refusal {
    struct rig_batch good, bad;
    struct rig_options options;
    const char *names[3];
};

static void refused_forward(struct rig_rank *rank, const struct refusal *refusal, mmoe_layer *layer, mmoe_saved *saved,
                            int poison) {
    struct rig_call call = rig_call_make(rank, &refusal->bad, &refusal->options, saved, poison);
    struct rig_placed placed;
    RIG_EXPECT(rank, rig_call_place(rank, &call, &placed), "not placed");
    mmoe_status status = mmoe_forward(layer, &call.forward);
    const char *text = mmoe_last_error();
    RIG_EXPECT(rank, status == MMOE_INVALID_ARGUMENT, "status is %s: %s", mmoe_status_name(status), text);
    for (int i = 0; i < 3 && refusal->names[i]; i++)
        RIG_EXPECT(rank, strstr(text, refusal->names[i]), "no \"%s\" in the text: %s", refusal->names[i], text);
    RIG_EXPECT(rank, rig_call_fetch(rank, &call, &placed) && rig_call_untouched(&call), "a refused call wrote");
    RIG_EXPECT(rank, mmoe_group_check(rank->group) == MMOE_OK, "a refusal broke the group");
    rig_placed_free(rank, &placed);
    rig_call_free(&call);
}

/* Bad, bad under another poison, good: a refusal is over when it has been told. */
static void refusal_body(struct rig_rank *rank, void *context) {
    struct refusal *refusal = context;
    mmoe_layer *layer;
    mmoe_saved *saved;
    RIG_OK(rank, mmoe_layer_create(rank->group, &refusal->good.layer, &layer));
    RIG_OK(rank, mmoe_saved_create(layer, MMOE_KEEP_PLAN, &saved));
    for (int poison = 0; poison < 2 && !rank->failed; poison++)
        refused_forward(rank, refusal, layer, saved, poison ? 0x7f : 0xff);
    if (rank->failed || !rig_step(rank, layer, saved, &refusal->good, &refusal->options, 0xff))
        return;
    mmoe_saved_destroy(&saved);
    mmoe_layer_destroy(&layer);
}

static struct refusal refusal_make(void) {
    mmoe_layer_config layer = rig_layer(64, 64, EXPERTS, TOP_K);
    const int64_t tokens = TOKENS;
    struct refusal refusal = {.good = rig_batch_make(&layer, 1, &tokens, RIG_UNIFORM, 71),
                              .bad = rig_batch_make(&layer, 1, &tokens, RIG_UNIFORM, 72)};
    rig_batch_positive(&refusal.good);
    return refusal;
}

static void check_and_free(struct refusal *refusal) {
    struct rig_world world = rig_world_for(&refusal->good, 1, RIG_THREADS);
    rig_world_run(&world, refusal_body, refusal);
    rig_compare(&refusal->good, &refusal->options, RIG_BOUND);
    rig_batch_free(&refusal->good);
    rig_batch_free(&refusal->bad);
}

static void check_bad_id(int64_t id, bool wide, bool last) {
    struct refusal refusal = refusal_make();
    char value[32];
    snprintf(value, sizeof value, "%lld", (long long)id);
    refusal.options.wide_ids = wide;
    refusal.names[0] = value;
    refusal.names[1] = last ? "token 4" : "token 0";
    refusal.names[2] = last ? "slot 1" : "slot 0";
    refusal.bad.ids[last ? TOKENS * TOP_K - 1 : 0] = id;
    check_and_free(&refusal);
}

static void b09_id_out_of_range_is_refused(void **state) {
    (void)state;
    const int64_t narrow[] = {-2, EXPERTS, INT_MIN, INT_MAX, -7, EXPERTS + 1},
                  wide[] = {(INT64_C(1) << 32) + 1, -(INT64_C(1) << 32), -2, EXPERTS, INT_MIN, INT64_MIN, INT64_MAX};
    const int count = rig_scaled("ids out of range", COUNT(wide), 2);
    for (int i = 0; i < count; i++)
        for (int last = 0; last < 2; last++) {
            if (i < COUNT(narrow))
                check_bad_id(narrow[i], false, last);
            check_bad_id(wide[i], true, last);
        }
}

static void b09_minus_one_is_skipped(void **state) {
    (void)state;
    mmoe_layer_config layer = rig_layer(64, 64, EXPERTS, TOP_K);
    const int64_t ids[] = {-1, 3, 0, -1, -1, -1, 2, -1};
    for (int wide = 0; wide < 2; wide++) {
        const struct rig_options options = {.wide_ids = wide};
        prove_tokens(&layer, 4, ids, &options);
    }
}

/* What a router with a NaN among its scores hands over. */
static void b08_weight_that_is_not_finite_is_refused(void **state) {
    (void)state;
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < COUNT(bad); i++) {
        struct refusal refusal = refusal_make();
        refusal.names[0] = "token 2";
        refusal.names[1] = "slot 1";
        refusal.bad.weights[2 * TOP_K + 1] = bad[i];
        check_and_free(&refusal);
    }
}

static void b10_duplicate_experts_are_summed(void **state) {
    (void)state;
    mmoe_layer_config layer = rig_layer(64, 64, EXPERTS, 3);
    const int64_t ids[] = {1, 1, 2, 3, 3, 3};
    for (int keep = MMOE_KEEP_PLAN; keep <= MMOE_KEEP_ROWS; keep++) {
        const struct rig_options options = {.keep = keep};
        prove_tokens(&layer, 2, ids, &options);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b09_id_out_of_range_is_refused),
        cmocka_unit_test(b09_minus_one_is_skipped),
        cmocka_unit_test(b08_weight_that_is_not_finite_is_refused),
        cmocka_unit_test(b10_duplicate_experts_are_summed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
