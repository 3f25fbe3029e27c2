/* What changes no bit of any result over several GPUs: the run, the budget, the number of GPUs, what is kept, how
 * gradients are wanted, how tensors lie. */
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "cuda/state.h"
#include "gpus.h"
#include "graphs.h"

static const struct rig_options keep_plan = {.keep = MMOE_KEEP_PLAN};
static const struct rig_options keep_rows = {.keep = MMOE_KEEP_ROWS};

/* ---- Runs, budgets, numbers of GPUs ---- */

struct repeat {
    struct rig_batch *first, *again;
    int runs;
};

/* With another number of multiprocessors left to others in each run, and on each rank. */
static void repeat_body(struct rig_rank *rank, void *context) {
    struct repeat *repeat = context;
    const int multiprocessors = gpu_of(rank)->device.multiprocessors;
    mmoe_layer *layer;
    mmoe_saved *saved;
    RIG_OK(rank, mmoe_layer_create(rank->group, &repeat->again->layer, &layer));
    RIG_OK(rank, mmoe_saved_create(layer, MMOE_KEEP_ROWS, &saved));
    for (int run = 0; run < repeat->runs; run++) {
        gpus_leave(rank, (13 * run + 5 * rank->rank) % multiprocessors);
        if (!rig_step(rank, layer, saved, repeat->again, &keep_rows, run % 2 ? 0x7f : 0xff))
            return;
        RIG_EXPECT(rank, rig_rank_same_bits(rank, repeat->first, repeat->again), "other bits in run %d", run);
    }
    mmoe_saved_destroy(&saved);
    mmoe_layer_destroy(&layer);
}

/* B28: in every run, with any budget, with rows kept or not, and on one GPU. */
static void b28_one_bit_pattern(void **state) {
    (void)state;
    static const enum rig_routing kinds[] = {RIG_ZIPF, RIG_DUPLICATES, RIG_HOLES};
    const int count = rig_scaled("kinds of routing", COUNT(kinds), 1);
    const bool tiny = rig_small() && gpus_most > 2;
    for
        GPUS_EACH_WORLD(world)
    for (int i = 0; i < count; i++) {
        int64_t tokens[MMOE_MAX_WORLD];
        const mmoe_layer_config layer = tiny ? rig_layer(64, 64, 2 * world, 3) : rig_layer(128, 192, 3 * world, 3);
        gpus_uneven_tokens(world, rig_scaled("tokens of a batch", 700, tiny ? 20 : 60), tokens);
        struct rig_batch first = rig_batch_make(&layer, world, tokens, kinds[i], 760);
        struct rig_batch again = rig_batch_make(&layer, world, tokens, kinds[i], 760);
        struct repeat repeat = {&first, &again, rig_scaled("runs of one batch", 100, tiny ? 1 : 3)};
        gpus_run(&first, 1, &keep_plan);
        struct rig_world ranks = rig_world_for(&again, 1, gpus_kind);
        rig_world_run(&ranks, repeat_body, &repeat);
        rig_batch_split(&again, 1, &first.total);
        gpus_run(&again, 1, &keep_plan);
        rig_same_bits(&first, &again, "on one GPU");
        rig_batch_free(&first);
        rig_batch_free(&again);
    }
}

/* ---- Forms ---- */

/* A batch, and once more: the first one has been run in the plainest form, and is right. */
struct pair {
    struct rig_batch plain, other;
    float *gradients[3]; /* copies of the plain one's dgate, dup, ddown */
};

static struct pair pair_make(int world) {
    int64_t tokens[MMOE_MAX_WORLD];
    const mmoe_layer_config layer = rig_layer(64, 64, 2 * world, 2);
    gpus_uneven_tokens(world, 21, tokens);
    struct pair pair = {rig_batch_make(&layer, world, tokens, RIG_HOLES, 750),
                        rig_batch_make(&layer, world, tokens, RIG_HOLES, 750),
                        {NULL}};
    gpus_run(&pair.plain, 1, &keep_plan);
    rig_compare(&pair.plain, &keep_plan, RIG_BOUND);
    const float *gradients[] = {pair.plain.dgate, pair.plain.dup, pair.plain.ddown};
    const size_t bytes = (size_t)rig_batch_stack(&pair.plain) * sizeof *gradients[0];
    for (int i = 0; i < COUNT(gradients); i++) {
        pair.gradients[i] = malloc(bytes);
        memcpy(pair.gradients[i], gradients[i], bytes);
    }
    return pair;
}

static void pair_free(struct pair *pair) {
    for (int i = 0; i < COUNT(pair->gradients); i++)
        free(pair->gradients[i]);
    rig_batch_free(&pair->plain);
    rig_batch_free(&pair->other);
}

static void expect_same(struct pair *pair, const struct rig_options *options, const char *what) {
    gpus_run(&pair->other, 1, options);
    rig_same_bits(&pair->plain, &pair->other, what);
}

/* What is added is added once, in fp32. */
static float in_form(float gradient, float start, const struct rig_options *options) {
    const float sum = options->accumulate ? start + gradient : gradient;
    return options->narrow_gradients ? mm_bf16_to_float(mm_bf16_from_float(sum)) : sum;
}

/* What the plain batch would have in another form. */
static void put_in_form(struct pair *pair, const struct rig_options *options) {
    float *gradients[] = {pair->plain.dgate, pair->plain.dup, pair->plain.ddown};
    const int64_t stack = rig_batch_stack(&pair->plain);
    for (int i = 0; i < COUNT(gradients); i++)
        for (int64_t j = 0; j < stack; j++)
            gradients[i][j] = in_form(pair->gradients[i][j], pair->plain.start[i * stack + j], options);
}

/* Gradients of weights in bf16 are those of fp32, rounded once. */
static void forms_of_gradients(void **state) {
    (void)state;
    gpus_two_at_small_size();
    for
        GPUS_EACH_WORLD(world) {
            struct pair pair = pair_make(world);
            for (int form = 1; form < 4; form++) {
                const struct rig_options options = {.keep = (mmoe_keep)(form % 2),
                                                    .narrow_gradients = form & 1,
                                                    .accumulate = form & 2,
                                                    .halves = form == 2};
                put_in_form(&pair, &options);
                expect_same(&pair, &options, "gradients of weights in another form");
                rig_compare(&pair.other, &options, RIG_BOUND);
            }
            pair_free(&pair);
        }
}

/* ---- Gradients that are left out ---- */

#define ALL_GRADIENTS (1u << RIG_DX | 1u << RIG_DWEIGHTS | 1u << RIG_DGATE | 1u << RIG_DUP | 1u << RIG_DDOWN)

static void copy_part(void *to, const void *from, int64_t first, int64_t count, size_t size) {
    memcpy((char *)to + (size_t)first * size, (const char *)from + (size_t)first * size, (size_t)count * size);
}

/* What a rank has left out is taken from the plain batch. */
static void fill_in(struct pair *pair, const struct rig_options *options) {
    const struct rig_batch *from = &pair->plain;
    struct rig_batch *to = &pair->other;
    const int64_t share = rig_batch_stack(from) / from->world;
    for (int r = 0; r < from->world; r++) {
        const int64_t first = rig_batch_first(from, r), hidden = from->layer.hidden, top_k = from->layer.top_k;
        const unsigned omit = options->omit[r];
        if (omit & 1u << RIG_DX)
            copy_part(to->dx, from->dx, first * hidden, from->tokens[r] * hidden, sizeof *to->dx);
        if (omit & 1u << RIG_DWEIGHTS)
            copy_part(to->dweights, from->dweights, first * top_k, from->tokens[r] * top_k, sizeof *to->dweights);
        if (omit & 1u << RIG_DGATE)
            copy_part(to->dgate, from->dgate, r * share, share, sizeof *to->dgate);
        if (omit & 1u << RIG_DUP)
            copy_part(to->dup, from->dup, r * share, share, sizeof *to->dup);
        if (omit & 1u << RIG_DDOWN)
            copy_part(to->ddown, from->ddown, r * share, share, sizeof *to->ddown);
    }
}

/* By even and by odd ranks: what the others want is as if nothing had been left out. */
static void each_rank_leaves_out_its_own(void **state) {
    (void)state;
    gpus_two_at_small_size();
    static const unsigned omits[][2] = {
        {1u << RIG_DX, 0},
        {ALL_GRADIENTS & ~(1u << RIG_DX), 1u << RIG_DWEIGHTS},
        {1u << RIG_DGATE, ALL_GRADIENTS},
        {ALL_GRADIENTS, ALL_GRADIENTS},
        {1u << RIG_DUP | 1u << RIG_DDOWN, ALL_GRADIENTS & ~(1u << RIG_DDOWN)},
        {0, ALL_GRADIENTS & ~(1u << RIG_DWEIGHTS)},
        {1u << RIG_DX | 1u << RIG_DWEIGHTS, ALL_GRADIENTS & ~(1u << RIG_DUP)},
    };
    const int count = rig_scaled("ways to leave gradients out", COUNT(omits), 4);
    for
        GPUS_EACH_WORLD(world) {
            struct pair pair = pair_make(world);
            for (int i = 0; i < count; i++) {
                struct rig_options options = {.keep = (mmoe_keep)(i % 2)};
                for (int r = 0; r < world; r++)
                    options.omit[r] = omits[i][r % 2];
                gpus_run(&pair.other, 1, &options);
                fill_in(&pair, &options);
                rig_same_bits(&pair.plain, &pair.other, "gradients left out");
            }
            pair_free(&pair);
        }
}

/* ---- Layouts ---- */

/* B18: tensors of tokens in any layout, weights and their gradients as halves of one tensor and by a pointer an expert,
 * either width of ids: the bits are those of contiguous ones. */
static void layouts(void **state) {
    (void)state;
    gpus_two_at_small_size();
    static const enum rig_layout layouts[] = {RIG_TRANSPOSED, RIG_SPREAD, RIG_OFFSET, RIG_SLICED, RIG_NEGATIVE};
    static const enum rig_operand rows[] = {RIG_X, RIG_Y, RIG_DY, RIG_DX},
                                  slots[] = {RIG_IDS, RIG_WEIGHTS, RIG_DWEIGHTS};
    const int count = rig_scaled("layouts of tokens", COUNT(layouts), 2);
    for
        GPUS_EACH_WORLD(world) {
            struct pair pair = pair_make(world);
            for (int i = 0; i < count; i++) {
                struct rig_options options = {.wide_ids = i % 2};
                for (int j = 0; j < COUNT(rows); j++)
                    options.layout[rows[j]] = layouts[(i + j / 2) % COUNT(layouts)];
                for (int j = 0; j < COUNT(slots); j++)
                    options.layout[slots[j]] = layouts[(i + 1) % COUNT(layouts)];
                expect_same(&pair, &options, "tokens in another layout");
            }
            struct rig_options options = {.halves = true, .wide_ids = true};
            expect_same(&pair, &options, "gate and up as halves");
            options.halves = false;
            for (int operand = RIG_GATE; operand < RIG_OPERANDS; operand++)
                if (operand <= RIG_DOWN || operand >= RIG_DGATE)
                    options.layout[operand] = RIG_SCATTERED;
            expect_same(&pair, &options, "a pointer an expert");
            pair_free(&pair);
        }
}

int main(void) {
    const struct CMUnitTest of_processes[] = {cmocka_unit_test(b28_one_bit_pattern)};
    const struct CMUnitTest of_threads[] = {
        cmocka_unit_test(b28_one_bit_pattern),
        cmocka_unit_test(forms_of_gradients),
        cmocka_unit_test(each_rank_leaves_out_its_own),
        cmocka_unit_test(layouts),
    };
    return gpus_main(2, GPUS_TESTS(of_processes), GPUS_TESTS(of_threads));
}
