/* What the reports and plans of calls over several GPUs count: rows, at any skew, and bytes to and from peers, as on
 * the CPU. */
#include <stdlib.h>

#include "gpus.h"

#define ALL_GRADIENTS (1u << RIG_DX | 1u << RIG_DWEIGHTS | 1u << RIG_DGATE | 1u << RIG_DUP | 1u << RIG_DDOWN)

struct counted {
    struct rig_batch batch;
    struct rig_options options;
    mmoe_report forward[MMOE_MAX_WORLD], backward[MMOE_MAX_WORLD]; /* of each rank */
};

static void counted_body(struct rig_rank *rank, void *context) {
    struct counted *counted = context;
    mmoe_layer *layer;
    mmoe_saved *saved;
    struct rig_placed placed;
    RIG_OK(rank, mmoe_layer_create(rank->group, &counted->batch.layer, &layer));
    RIG_OK(rank, mmoe_saved_create(layer, counted->options.keep, &saved));
    struct rig_call call = rig_call_make(rank, &counted->batch, &counted->options, saved, 0xff);
    call.forward.report = &counted->forward[rank->rank];
    call.backward.report = &counted->backward[rank->rank];
    RIG_EXPECT(rank,
               rig_call_place(rank, &call, &placed) && rig_call_forward(rank, layer, &call, &placed, &counted->batch) &&
                   rig_call_backward(rank, layer, &call, &placed, &counted->batch),
               "not made");
    rig_placed_free(rank, &placed);
    rig_call_free(&call);
    mmoe_saved_destroy(&saved);
    mmoe_layer_destroy(&layer);
}

static void expect_same(const char *call, int rank, const mmoe_report *found, const mmoe_report *expected) {
    if (found->call != expected->call || found->rows != expected->rows || found->padded_rows != expected->padded_rows ||
        found->bytes_pulled != expected->bytes_pulled || found->bytes_pushed != expected->bytes_pushed)
        fail_msg("%s of rank %d: call %u, %lld rows, %lld with pads, %lld bytes pulled, %lld pushed; on the CPU call "
                 "%u, %lld rows, %lld with pads, %lld bytes pulled, %lld pushed",
                 call, rank, found->call, (long long)found->rows, (long long)found->padded_rows,
                 (long long)found->bytes_pulled, (long long)found->bytes_pushed, expected->call,
                 (long long)expected->rows, (long long)expected->padded_rows, (long long)expected->bytes_pulled,
                 (long long)expected->bytes_pushed);
    if (!(found->seconds_total > 0 && found->seconds_fused > 0))
        fail_msg("%s of rank %d took %g s, its large kernel %g s", call, rank, found->seconds_total,
                 found->seconds_fused);
}

static void count(struct counted *counted, const char *backend) {
    struct rig_world world = rig_world_for(&counted->batch, 1, gpus_kind);
    world.config.backend = backend;
    rig_world_run(&world, counted_body, counted);
}

static void compare_reports(struct counted *counted) {
    count(counted, "cpu");
    struct counted *expected = malloc(sizeof *expected);
    *expected = *counted;
    count(counted, rig_backend());
    for (int r = 0; r < counted->batch.world; r++) {
        expect_same("the forward", r, &counted->forward[r], &expected->forward[r]);
        expect_same("the backward", r, &counted->backward[r], &expected->backward[r]);
    }
    free(expected);
}

/* With gradients that even and odd ranks leave out: what nobody wants is not sent. */
static void reports_count_what_is_sent(void **state) {
    (void)state;
    static const unsigned omits[][2] = {{0, 0},
                                        {1u << RIG_DX, 1u << RIG_DWEIGHTS},
                                        {1u << RIG_DX | 1u << RIG_DWEIGHTS, 1u << RIG_DX | 1u << RIG_DUP},
                                        {ALL_GRADIENTS, ALL_GRADIENTS}};
    for
        GPUS_EACH_WORLD(world)
    for (int i = 0; i < COUNT(omits); i++) {
        int64_t tokens[MMOE_MAX_WORLD];
        mmoe_layer_config layer = rig_layer(64, 64, 2 * world, 3);
        layer.combine = i == 1 ? MMOE_COMBINE_GROUPED : MMOE_COMBINE_EXACT;
        struct counted *counted = rig_shared(sizeof *counted);
        gpus_uneven_tokens(world, 20, tokens);
        counted->batch = rig_batch_make(&layer, world, tokens, RIG_HOLES, 971);
        counted->options.keep = (mmoe_keep)(i % 2);
        for (int r = 0; r < world; r++)
            counted->options.omit[r] = omits[i][r % 2];
        compare_reports(counted);
        rig_batch_free(&counted->batch);
        rig_shared_free(counted);
    }
}

/* ---- B14: every token of every rank to one expert ---- */

#define SKEWS 4

static void skewed_body(struct rig_rank *rank, void *context) {
    struct rig_batch *batches = context;
    const struct rig_options options = {0};
    mmoe_layer *layer;
    mmoe_saved *saved;
    RIG_OK(rank, mmoe_layer_create(rank->group, &batches[0].layer, &layer));
    RIG_OK(rank, mmoe_saved_create(layer, options.keep, &saved));
    for (int i = 0; i < SKEWS && batches[i].world > 0; i++) {
        const int64_t due = gpus_demand(&batches[i], rank->rank);
        if (!rig_step(rank, layer, saved, &batches[i], &options, 0xff) ||
            !rig_plan_is_right(rank, mmoe_saved_plan(saved), &batches[i]))
            return;
        RIG_EXPECT(rank, mmoe_saved_plan(saved)->rows == due, "%lld rows, expected %lld",
                   (long long)mmoe_saved_plan(saved)->rows, (long long)due);
    }
    mmoe_saved_destroy(&saved);
    mmoe_layer_destroy(&layer);
}

static void b14_counts_are_exact_at_any_skew(void **state) {
    (void)state;
    static const int64_t sizes[SKEWS] = {1, 32, 257, 2304};
    const int count = rig_scaled("tokens of a rank, of the first sizes", SKEWS, 2);
    for
        GPUS_EACH_WORLD(world)
    for (int each_slot = 0; each_slot < 2; each_slot++) {
        const mmoe_layer_config layer = rig_layer(64, 64, 2 * world, each_slot ? 2 * world : 1);
        struct rig_batch batches[SKEWS] = {0};
        for (int i = 0; i < count; i++) {
            int64_t tokens[MMOE_MAX_WORLD];
            for (int r = 0; r < world; r++)
                tokens[r] = sizes[i];
            batches[i] = rig_batch_make(&layer, world, tokens, RIG_ONE_EXPERT, 990 + (uint64_t)i);
            rig_batch_positive(&batches[i]);
            assert_int_equal(gpus_demand(&batches[i], world - 1), world * sizes[i] * layer.top_k);
        }
        struct rig_world ranks = rig_world_for(batches, count, gpus_kind);
        rig_world_run(&ranks, skewed_body, batches);
        for (int i = 0; i < count; i++) {
            rig_compare(&batches[i], &(struct rig_options){0}, RIG_BOUND);
            rig_batch_free(&batches[i]);
        }
    }
}

int main(void) {
    const struct CMUnitTest of_threads[] = {
        cmocka_unit_test(reports_count_what_is_sent),
        cmocka_unit_test(b14_counts_are_exact_at_any_skew),
    };
    return gpus_main(2, (struct gpus_tests){NULL, 0}, GPUS_TESTS(of_threads));
}
