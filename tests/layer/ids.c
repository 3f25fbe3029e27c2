/* Ids and router weights that are wrong, and experts that a token names twice. */
#include "proof.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* A batch spoilt on one rank: that rank must be told what is wrong, its peer that rank 1 refused. */
struct refusal {
    struct rig_batch good, bad;
    struct rig_options options;
    mmoe_status status;   /* of the bad rank */
    const char *names[3]; /* what its sentence must hold */
};

#define BAD_RANK 1

static void refused_forward(struct rig_rank *rank, const struct refusal *refusal, mmoe_layer *layer, mmoe_saved *saved,
                            int poison) {
    struct rig_call call = rig_call_make(rank, &refusal->bad, &refusal->options, saved, poison);
    mmoe_status status = mmoe_forward(layer, &call.forward);
    const char *text = mmoe_last_error();
    RIG_EXPECT(rank, status == (rank->rank == BAD_RANK ? refusal->status : MMOE_REFUSED), "status is %s: %s",
               mmoe_status_name(status), text);
    RIG_EXPECT(rank, rank->rank == BAD_RANK || strstr(text, "rank 1"), "the text does not name rank 1: %s", text);
    for (int i = 0; i < 3 && refusal->names[i]; i++)
        RIG_EXPECT(rank, strstr(text, refusal->names[i]), "no \"%s\" in the text: %s", refusal->names[i], text);
    RIG_EXPECT(rank, rig_call_untouched(&call), "a refused call wrote");
    RIG_EXPECT(rank, mmoe_group_check(rank->group) == MMOE_OK, "a refusal broke the group");
    rig_call_free(&call);
}

/* Good, bad, good, bad, good: a refusal is over when it has been told. */
static void refusal_body(struct rig_rank *rank, void *context) {
    struct refusal *refusal = context;
    mmoe_layer *layer;
    mmoe_saved *saved;
    RIG_OK(rank, mmoe_layer_create(rank->group, &refusal->good.layer, &layer));
    RIG_OK(rank, mmoe_saved_create(layer, MMOE_KEEP_PLAN, &saved));
    for (int step = 0; step < 3; step++) {
        if (!rig_step(rank, layer, saved, &refusal->good, &refusal->options, 0xff))
            return;
        if (step < 2)
            refused_forward(rank, refusal, layer, saved, step == 0 ? 0xff : 0x7f);
        if (rank->failed)
            return;
    }
    mmoe_saved_destroy(&saved);
    mmoe_layer_destroy(&layer);
}

static void check_refusal(struct refusal *refusal, enum rig_kind kind) {
    struct rig_world world = rig_world_for(&refusal->good, 1, kind);
    rig_batch_reset(&refusal->good);
    rig_world_run(&world, refusal_body, refusal);
    rig_compare(&refusal->good, &refusal->options, RIG_BOUND);
}

static struct refusal refusal_make(void) {
    mmoe_layer_config layer = rig_layer(8, 6, 4, 2);
    const int64_t tokens[2] = {5, 5};
    struct refusal refusal = {.good = rig_batch_make(&layer, 2, tokens, RIG_UNIFORM, 71),
                              .bad = rig_batch_make(&layer, 2, tokens, RIG_UNIFORM, 72),
                              .status = MMOE_INVALID_ARGUMENT};
    rig_batch_positive(&refusal.good);
    return refusal;
}

static void refusal_free(struct refusal *refusal) {
    rig_batch_free(&refusal->good);
    rig_batch_free(&refusal->bad);
}

static void check_bad_id(int64_t id, bool wide, bool last, enum rig_kind kind) {
    struct refusal refusal = refusal_make();
    char value[32];
    snprintf(value, sizeof value, "%lld", (long long)id);
    refusal.options.wide_ids = wide;
    refusal.names[0] = value;
    refusal.names[1] = last ? "token 4" : "token 0";
    refusal.names[2] = last ? "slot 1" : "slot 0";
    refusal.bad.ids[last ? 2 * 10 - 1 : 10] = id; /* of rank 1 */
    check_refusal(&refusal, kind);
    refusal_free(&refusal);
}

static void b09_id_out_of_range_is_refused(void **state) {
    (void)state;
    const int64_t narrow[] = {-2, -7, INT_MIN, 4, 5, INT_MAX},
                  wide[] = {-2, 4, INT_MIN, INT64_MIN, INT64_MAX, (INT64_C(1) << 32) + 1, -(INT64_C(1) << 32)};
    for (int last = 0; last < 2; last++) {
        for (size_t i = 0; i < sizeof narrow / sizeof *narrow; i++)
            check_bad_id(narrow[i], false, last, RIG_THREADS);
        for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
            check_bad_id(wide[i], true, last, RIG_THREADS);
    }
    check_bad_id(4, false, true, RIG_PROCESSES);
    check_bad_id((INT64_C(1) << 32) + 1, true, false, RIG_PROCESSES);
}

static void b09_minus_one_is_skipped(void **state) {
    (void)state;
    mmoe_layer_config layer = rig_layer(8, 6, 4, 2);
    const int64_t tokens[2] = {2, 2}, ids[8] = {-1, 3, 0, -1, -1, -1, 2, -1};
    for (int wide = 0; wide < 2; wide++) {
        struct rig_options options = {.wide_ids = wide};
        prove_ids(&layer, 2, RIG_THREADS, tokens, ids, &options);
    }
}

static void weight_that_is_not_finite_is_refused(void **state) {
    (void)state;
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        struct refusal refusal = refusal_make();
        refusal.names[0] = "token 2";
        refusal.names[1] = "slot 1";
        refusal.bad.weights[10 + 5] = bad[i]; /* of rank 1 */
        check_refusal(&refusal, RIG_THREADS);
        refusal_free(&refusal);
    }
}

static void b10_duplicate_experts_are_summed(void **state) {
    (void)state;
    mmoe_layer_config layer = rig_layer(16, 12, 4, 3);
    const int64_t alone[1] = {2}, two[2] = {1, 1}, four[4] = {0, 1, 0, 1}, ids[6] = {1, 1, 2, 3, 3, 3};
    for (int form = 0; form < 4; form++) {
        struct rig_options options = {.keep = form & 1 ? MMOE_KEEP_ROWS : MMOE_KEEP_PLAN};
        layer.weight_on = form & 2 ? MMOE_WEIGHT_ON_INPUT : MMOE_WEIGHT_ON_OUTPUT;
        prove_ids(&layer, 1, RIG_THREADS, alone, ids, &options);
        prove_ids(&layer, 2, RIG_PROCESSES, two, ids, &options);
        prove_ids(&layer, 4, RIG_THREADS, four, ids, &options);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b09_id_out_of_range_is_refused),
        cmocka_unit_test(b09_minus_one_is_skipped),
        cmocka_unit_test(weight_that_is_not_finite_is_refused),
        cmocka_unit_test(b10_duplicate_experts_are_summed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
