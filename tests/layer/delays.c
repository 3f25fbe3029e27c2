/* Ranks that are slow at any step, and nothing between the calls that holds the others back. */
#include "proof.h"

#include <string.h>
#include <unistd.h>

#include "base/bf16.h"

/* ---- Random sleeps at the steps of a call */

struct delays {
    struct rig_random random[MMOE_MAX_WORLD];
    int64_t one_in;       /* a sleep at every so many steps */
    int64_t microseconds; /* at most */
};

static struct delays delays_make(uint64_t seed, int64_t one_in, int64_t microseconds) {
    struct delays delays = {.one_in = one_in, .microseconds = microseconds};
    for (int r = 0; r < MMOE_MAX_WORLD; r++)
        delays.random[r] = rig_seed(seed + (uint64_t)r);
    return delays;
}

static mmoe_status sleep_now_and_then(void *context, int rank, enum mm_step step) {
    (void)step;
    struct delays *delays = context;
    struct rig_random *random = &delays->random[rank];
    if (rig_below(random, delays->one_in) == 0)
        usleep((useconds_t)rig_below(random, delays->microseconds + 1));
    return MMOE_OK;
}

/* ---- B31: values that encode (step, rank, token), two layers in turn */

struct steps {
    struct rig_batch *first, *second; /* one batch a step for each layer */
    int count;
};

static const mmoe_keep nested_keep[2] = {MMOE_KEEP_PLAN, MMOE_KEEP_ROWS};

/* What a step asks for changes too: a rank that wants nothing back from its peers ends a backward, and comes with the
 * next call, while they still read its tokens. */
static struct rig_options nested_options(int layer, int step) {
    static const unsigned omitted[] = {0, 1u << RIG_DX, 1u << RIG_DX | 1u << RIG_DWEIGHTS, 1u << RIG_DWEIGHTS};
    struct rig_options options = {.keep = nested_keep[layer]};
    for (int r = 0; r < 2; r++)
        options.omit[r] = omitted[(step + layer + r * (step / 4)) % 4];
    return options;
}

/* Forward and forward, backward and backward: the second layer's calls come between the first's. */
static bool nested_step(struct rig_rank *rank, mmoe_layer *const layers[2], mmoe_saved *const saved[2],
                        struct rig_batch *const batches[2], int step) {
    struct rig_options options[2] = {nested_options(0, step), nested_options(1, step)};
    struct rig_call calls[2];
    for (int i = 0; i < 2; i++) {
        calls[i] = rig_call_make(rank, batches[i], &options[i], saved[i], 0xff);
        RIG_TRY(rank, mmoe_forward(layers[i], &calls[i].forward) == MMOE_OK, "%s", mmoe_last_error());
    }
    for (int i = 1; i >= 0; i--)
        RIG_TRY(rank, mmoe_backward(layers[i], &calls[i].backward) == MMOE_OK, "%s", mmoe_last_error());
    for (int i = 0; i < 2; i++) {
        if (!rig_call_take_forward(rank, &calls[i], batches[i]) || !rig_call_take_backward(rank, &calls[i], batches[i]))
            return false;
        rig_call_free(&calls[i]);
    }
    return true;
}

static void nested_body(struct rig_rank *rank, void *context) {
    struct steps *steps = context;
    struct rig_batch *batches[2] = {steps->first, steps->second};
    mmoe_layer *layers[2];
    mmoe_saved *saved[2];
    for (int i = 0; i < 2; i++) {
        RIG_OK(rank, mmoe_layer_create(rank->group, &batches[i]->layer, &layers[i]));
        RIG_OK(rank, mmoe_saved_create(layers[i], nested_keep[i], &saved[i]));
    }
    for (int step = 0; step < steps->count; step++) {
        struct rig_batch *now[2] = {&batches[0][step], &batches[1][step]};
        if (!nested_step(rank, layers, saved, now, step))
            return;
    }
    for (int i = 0; i < 2; i++) {
        mmoe_saved_destroy(&saved[i]);
        mmoe_layer_destroy(&layers[i]);
    }
}

static struct rig_batch encoded_batch(int world, int64_t hidden, int64_t top_k, int step) {
    struct rig_random random = rig_seed(500 + (uint64_t)step);
    int64_t tokens[MMOE_MAX_WORLD];
    for (int r = 0; r < world; r++)
        tokens[r] = rig_below(&random, 5);
    enum rig_routing routing = (enum rig_routing)rig_below(&random, RIG_HOLES + 1);
    struct rig_batch batch = exact_batch(hidden, 4, top_k, world, tokens, routing, 600 + (uint64_t)step);
    exact_batch_encode(&batch, step);
    return batch;
}

#define B31_STEPS 500

static void b31_no_step_sees_another(enum rig_kind kind, int count) {
    static struct rig_batch first[B31_STEPS], second[B31_STEPS];
    for (int step = 0; step < count; step++) {
        first[step] = encoded_batch(2, 8, 2, step);
        second[step] = encoded_batch(2, 6, 1, step);
    }
    struct delays delays = delays_make(510, 24, 5000);
    struct steps steps = {first, second, count};
    struct rig_world world = rig_world_make(2, kind, 4, 8, 2, 4);
    world.hook = (struct mm_hook){sleep_now_and_then, &delays};
    world.seconds = 120;
    rig_world_run(&world, nested_body, &steps);
    for (int step = 0; step < count; step++) {
        struct rig_options options[2] = {nested_options(0, step), nested_options(1, step)};
        rig_compare(&first[step], &options[0], RIG_EXACT);
        rig_compare(&second[step], &options[1], RIG_EXACT);
        rig_batch_free(&first[step]);
        rig_batch_free(&second[step]);
    }
}

static void b31_no_step_sees_another_among_threads(void **state) {
    (void)state;
    b31_no_step_sees_another(RIG_THREADS, rig_scaled("steps", B31_STEPS, 40));
}

static void b31_no_step_sees_another_among_processes(void **state) {
    (void)state;
    b31_no_step_sees_another(RIG_PROCESSES, rig_scaled("steps", 100, 20));
}

/* ---- B31: two calls in flight on one handle */

#define CALLERS 2

struct caller {
    struct rig_rank rank; /* a copy: failures of two threads are kept apart */
    mmoe_layer *layer;
    struct rig_batch *batch;
    int calls;
    pthread_t id;
};

/* Only y is looked at: which of a rank's two callers meets which of a peer's is open, and y, of weights that all share,
 * does not depend on it. */
static void caller_calls(struct caller *caller) {
    struct rig_options options = {0};
    for (int i = 0; i < caller->calls; i++) {
        struct rig_call call = rig_call_make(&caller->rank, caller->batch, &options, NULL, 0xff);
        RIG_OK(&caller->rank, mmoe_forward(caller->layer, &call.forward));
        if (!rig_call_take_forward(&caller->rank, &call, caller->batch))
            return;
        rig_call_free(&call);
    }
}

static void *caller_main(void *argument) {
    caller_calls(argument);
    return NULL;
}

struct flights {
    struct rig_batch *batches; /* one a caller */
    int calls;
};

static void two_callers_body(struct rig_rank *rank, void *context) {
    struct flights *flights = context;
    mmoe_layer *layer;
    RIG_OK(rank, mmoe_layer_create(rank->group, &flights->batches[0].layer, &layer));
    struct caller callers[CALLERS];
    for (int i = 0; i < CALLERS; i++) {
        callers[i] =
            (struct caller){.rank = *rank, .layer = layer, .batch = &flights->batches[i], .calls = flights->calls};
        RIG_EXPECT(rank, pthread_create(&callers[i].id, NULL, caller_main, &callers[i]) == 0, "no thread");
    }
    for (int i = 0; i < CALLERS; i++)
        pthread_join(callers[i].id, NULL);
    for (int i = 0; i < CALLERS; i++)
        RIG_EXPECT(rank, !callers[i].rank.failed, "caller %d: %s", i, callers[i].rank.failure);
    mmoe_layer_destroy(&layer);
}

static void b31_two_calls_in_flight_wait_for_each_other(void **state) {
    (void)state;
    for (int world = 1; world <= 2; world++) {
        const int64_t tokens[CALLERS][2] = {{5, 3}, {2, 6}};
        struct rig_batch batches[CALLERS];
        for (int i = 0; i < CALLERS; i++)
            batches[i] = exact_batch(8, 4, 2, world, tokens[i], RIG_UNIFORM, 520 + (uint64_t)i);
        struct delays delays = delays_make(530, 40, 500);
        struct rig_world ranks = rig_world_make(world, RIG_THREADS, 8, 8, 2, 4);
        ranks.hook = (struct mm_hook){sleep_now_and_then, &delays};
        struct flights flights = {batches, rig_scaled("calls of each thread", 200, 20)};
        rig_world_run(&ranks, two_callers_body, &flights);
        for (int i = 0; i < CALLERS; i++) {
            const struct rig_reference *reference = rig_reference_of(&batches[i]);
            for (int64_t n = 0; n < rig_batch_values(&batches[i]); n++)
                assert_true(mm_bf16_to_float(batches[i].y[n]) == reference->y[n]);
            rig_batch_free(&batches[i]);
        }
    }
}

/* ---- B32: only rank 0 sends, to an expert of each rank, both weights 1 */

#define SENDERS 5 /* batches, of a size each */

struct senders {
    struct rig_batch expected[SENDERS], batch[SENDERS];
    int steps;
};

/* A forward and a backward a step, of sizes in turn, each compared by its bits. */
static void senders_body(struct rig_rank *rank, void *context) {
    struct senders *senders = context;
    struct rig_options options = {0};
    mmoe_layer *layer;
    mmoe_saved *saved;
    RIG_OK(rank, mmoe_layer_create(rank->group, &senders->batch[0].layer, &layer));
    RIG_OK(rank, mmoe_saved_create(layer, MMOE_KEEP_PLAN, &saved));
    for (int step = 0; step < senders->steps; step++) {
        const int i = step % SENDERS;
        if (!rig_step(rank, layer, saved, &senders->batch[i], &options, step % 2 ? 0x7f : 0xff))
            return;
        RIG_EXPECT(rank, rig_rank_same_bits(rank, &senders->expected[i], &senders->batch[i]), "a wrong row in step %d",
                   step);
    }
    mmoe_saved_destroy(&saved);
    mmoe_layer_destroy(&layer);
}

/* x of zeros and ones. Both experts pass features on as they are, so that y = 2x. */
static struct rig_batch sender_batch(int64_t most, uint64_t seed) {
    const int64_t tokens[2] = {most, most};
    struct rig_batch batch = exact_batch(16, 2, 2, 2, tokens, RIG_UNIFORM, seed);
    for (int64_t t = 0; t < batch.total; t++)
        for (int k = 0; k < 2; k++)
            batch.ids[2 * t + k] = t < most ? k : -1;
    for (int64_t n = 0; n < rig_batch_values(&batch); n++)
        batch.x[n] = mm_bf16_from_float(n % 16 == 0 || n * 7 % 5 < 2);
    for (int64_t n = 0; n < rig_batch_stack(&batch); n++)
        if (batch.down[n])
            batch.down[n] = mm_bf16_from_float(1.0f / 64);
    return batch;
}

static void expect_doubles(const struct rig_batch *batch) {
    for (int64_t n = 0; n < batch->tokens[0] * 16; n++)
        assert_true(mm_bf16_to_float(batch->y[n]) == (n % 16 ? 2 * mm_bf16_to_float(batch->x[n]) : 0));
}

static void b32_one_sender_gets_every_row_right(enum rig_kind kind) {
    static const int64_t sizes[SENDERS] = {1, 256, 2, 1024, 37};
    struct rig_options options = {0};
    struct senders senders = {.steps = rig_scaled("calls", 2000, 100) / 2};
    for (int i = 0; i < SENDERS; i++) {
        senders.expected[i] = sender_batch(sizes[i], 540 + (uint64_t)i);
        senders.batch[i] = sender_batch(sizes[i], 540 + (uint64_t)i);
    }
    struct rig_world world = rig_world_for(senders.expected, SENDERS, kind);
    rig_run(&world, senders.expected, SENDERS, &options);
    for (int i = 0; i < SENDERS; i++) {
        rig_compare(&senders.expected[i], &options, RIG_EXACT);
        expect_doubles(&senders.expected[i]);
    }
    rig_world_run(&world, senders_body, &senders);
    for (int i = 0; i < SENDERS; i++) {
        rig_batch_free(&senders.expected[i]);
        rig_batch_free(&senders.batch[i]);
    }
}

static void b32_one_sender_among_threads(void **state) {
    (void)state;
    b32_one_sender_gets_every_row_right(RIG_THREADS);
}

static void b32_one_sender_among_processes(void **state) {
    (void)state;
    b32_one_sender_gets_every_row_right(RIG_PROCESSES);
}

/* ---- Soak */

#define SOAK_WORLD 4
#define SOAK_BATCHES 24

struct soak {
    struct rig_batch expected[SOAK_BATCHES], batch[SOAK_BATCHES];
    int steps;
};

/* Every rank draws the same order of batches, and its own pauses. */
static void soak_body(struct rig_rank *rank, void *context) {
    struct soak *soak = context;
    struct rig_random order = rig_seed(550), pause = rig_seed(560 + (uint64_t)rank->rank);
    struct rig_options options = {0};
    mmoe_layer *layer;
    mmoe_saved *saved;
    RIG_OK(rank, mmoe_layer_create(rank->group, &soak->batch[0].layer, &layer));
    RIG_OK(rank, mmoe_saved_create(layer, MMOE_KEEP_PLAN, &saved));
    for (int step = 0; step < soak->steps; step++) {
        int64_t i = rig_below(&order, SOAK_BATCHES);
        if (rig_below(&pause, 8) == 0)
            usleep((useconds_t)rig_below(&pause, 2000));
        if (!rig_step(rank, layer, saved, &soak->batch[i], &options, 0xff))
            return;
        RIG_EXPECT(rank, rig_rank_same_bits(rank, &soak->expected[i], &soak->batch[i]), "wrong bits in step %d", step);
    }
    mmoe_saved_destroy(&saved);
    mmoe_layer_destroy(&layer);
}

static void soak_ranks(enum rig_kind kind, int calls) {
    static struct soak soak;
    struct rig_options options = {0};
    soak.steps = calls / 2; /* a forward and a backward each */
    for (int i = 0; i < SOAK_BATCHES; i++) {
        soak.expected[i] = encoded_batch(SOAK_WORLD, 8, 2, i);
        soak.batch[i] = encoded_batch(SOAK_WORLD, 8, 2, i);
    }
    struct rig_world world = rig_world_make(SOAK_WORLD, kind, 4, 8, 2, 4);
    rig_run(&world, soak.expected, SOAK_BATCHES, &options);
    for (int i = 0; i < SOAK_BATCHES; i++)
        rig_compare(&soak.expected[i], &options, RIG_EXACT);
    struct delays delays = delays_make(570, 100, 1000);
    world.hook = (struct mm_hook){sleep_now_and_then, &delays};
    world.seconds = 120;
    rig_world_run(&world, soak_body, &soak);
    for (int i = 0; i < SOAK_BATCHES; i++) {
        rig_batch_free(&soak.expected[i]);
        rig_batch_free(&soak.batch[i]);
    }
}

static void soak_of_2000_calls_among_threads(void **state) {
    (void)state;
    soak_ranks(RIG_THREADS, rig_scaled("calls", 2000, 200));
}

static void soak_among_processes(void **state) {
    (void)state;
    soak_ranks(RIG_PROCESSES, rig_scaled("calls", 600, 100));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b31_no_step_sees_another_among_threads),
        cmocka_unit_test(b31_no_step_sees_another_among_processes),
        cmocka_unit_test(b31_two_calls_in_flight_wait_for_each_other),
        cmocka_unit_test(b32_one_sender_among_threads),
        cmocka_unit_test(b32_one_sender_among_processes),
        cmocka_unit_test(soak_of_2000_calls_among_threads),
        cmocka_unit_test(soak_among_processes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
