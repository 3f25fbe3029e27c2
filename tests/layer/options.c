/* Every option of a layer and of a call, against the oracle and against the plain call. */
#include "proof.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"

#define HIDDEN 40
#define INNER 36
#define EXPERTS 4
#define TOP_K 2
#define TOKENS 100 /* of a rank, at most */

/* ---- All combinations */

enum stacks { SEPARATE, HALVES, POINTERS, STACKS };

static struct rig_options stacks_as(enum stacks stacks) {
    struct rig_options options = {.halves = stacks == HALVES};
    for (int operand = RIG_GATE; stacks == POINTERS && operand < RIG_OPERANDS; operand++)
        if (operand <= RIG_DOWN || operand >= RIG_DGATE)
            options.layout[operand] = RIG_SCATTERED;
    return options;
}

/* Bits of `form`: weight on input, limit, fixed capacity, rows kept, wide ids, narrow gradients, accumulation. */
#define FORMS 128

static void prove_form(int form, enum stacks stacks) {
    mmoe_layer_config layer = rig_layer(HIDDEN, INNER, EXPERTS, TOP_K);
    layer.weight_on = form & 1 ? MMOE_WEIGHT_ON_INPUT : MMOE_WEIGHT_ON_OUTPUT;
    layer.limit = form & 2 ? 0.75f : 0;
    layer.capacity_policy = form & 4 ? MMOE_CAPACITY_FIXED : MMOE_CAPACITY_GROW;
    layer.capacity = form & 4 ? 2 * TOKENS * TOP_K : 0;
    struct rig_options options = stacks_as(stacks);
    options.keep = form & 8 ? MMOE_KEEP_ROWS : MMOE_KEEP_PLAN;
    options.wide_ids = form & 16;
    options.narrow_gradients = form & 32;
    options.accumulate = form & 64;
    prove_layer(&layer, 2, RIG_THREADS, TOKENS, EITHER_SIGN, &options);
}

static void every_combination_of_options(void **state) {
    (void)state;
    int stride = rig_scaled("every n-th combination of options", 1, 17);
    for (int i = 0; i < FORMS * STACKS; i += stride)
        prove_form(i / STACKS, i % STACKS);
}

static void options_over_processes(void **state) {
    (void)state;
    int stride = rig_scaled("every n-th combination of options over processes", 19, 67);
    for (int i = 0; i < FORMS * STACKS; i += stride) {
        int form = i / STACKS;
        mmoe_layer_config layer = rig_layer(HIDDEN, INNER, EXPERTS, TOP_K);
        layer.weight_on = form & 1 ? MMOE_WEIGHT_ON_INPUT : MMOE_WEIGHT_ON_OUTPUT;
        struct rig_options options = stacks_as(i % STACKS);
        options.keep = form & 8 ? MMOE_KEEP_ROWS : MMOE_KEEP_PLAN;
        options.accumulate = form & 64;
        prove_layer(&layer, 4, RIG_PROCESSES, TOKENS, EITHER_SIGN, &options);
    }
}

/* ---- Gradients left out */

#define ALL_GRADIENTS (1u << RIG_DX | 1u << RIG_DWEIGHTS | 1u << RIG_DGATE | 1u << RIG_DUP | 1u << RIG_DDOWN)

static void prove_omission(unsigned first, unsigned second) {
    int stride = rig_scaled("every n-th form of a call without a gradient", 1, 3);
    for (int keep = MMOE_KEEP_PLAN; keep <= MMOE_KEEP_ROWS; keep++)
        for (int form = 0; form < 4; form += stride) {
            mmoe_layer_config layer = rig_layer(HIDDEN, INNER, EXPERTS, TOP_K);
            layer.weight_on = form & 1 ? MMOE_WEIGHT_ON_INPUT : MMOE_WEIGHT_ON_OUTPUT;
            struct rig_options options = {
                .keep = keep, .halves = form & 2, .accumulate = form & 2, .omit = {first, second}};
            prove_layer(&layer, 2, RIG_THREADS, TOKENS, EITHER_SIGN, &options);
        }
}

static void any_gradient_may_be_left_out(void **state) {
    (void)state;
    for (int gradient = RIG_DX; gradient <= RIG_DDOWN; gradient++) {
        prove_omission(1u << gradient, 1u << gradient);
        prove_omission(ALL_GRADIENTS & ~(1u << gradient), ALL_GRADIENTS & ~(1u << gradient));
    }
    prove_omission(ALL_GRADIENTS, ALL_GRADIENTS);
}

static void each_rank_leaves_out_its_own(void **state) {
    (void)state;
    for (int gradient = RIG_DX; gradient <= RIG_DDOWN; gradient++) {
        prove_omission(1u << gradient, 0);
        prove_omission(ALL_GRADIENTS, 1u << gradient);
    }
}

/* A part of this rank's segment as it was. */
struct part {
    const unsigned char *memory;
    unsigned char *before;
    size_t bytes;
};

static struct part part_of(const struct rig_rank *rank, size_t first, size_t end) {
    struct part part = {rank->group->segment[rank->rank] + first, malloc(end - first), end - first};
    memcpy(part.before, part.memory, part.bytes);
    return part;
}

static bool part_changed(struct part *part) {
    bool changed = memcmp(part->memory, part->before, part->bytes) != 0;
    free(part->before);
    return changed;
}

struct unsent {
    struct rig_batch *batch;
    unsigned omit;
};

/* A forward, then two backwards: once all have met for the second, all have ended the first, and what nobody wanted may
 * not have come into this rank's slots. What is wanted must have. */
static void unsent_body(struct rig_rank *rank, void *context) {
    struct unsent *unsent = context;
    struct rig_options options = {.omit = {unsent->omit, unsent->omit}};
    mmoe_layer *layer;
    mmoe_saved *saved;
    RIG_OK(rank, mmoe_layer_create(rank->group, &unsent->batch->layer, &layer));
    RIG_OK(rank, mmoe_saved_create(layer, MMOE_KEEP_PLAN, &saved));
    struct rig_call call = rig_call_make(rank, unsent->batch, &options, saved, 0xff);
    RIG_OK(rank, mmoe_forward(layer, &call.forward));
    const struct mm_layout *layout = &rank->group->layout;
    struct part rows = part_of(rank, layout->combine, layout->dw), dw = part_of(rank, layout->dw, layout->bytes);
    for (int i = 0; i < 2; i++)
        RIG_OK(rank, mmoe_backward(layer, &call.backward));
    RIG_EXPECT(rank, part_changed(&rows) == !(unsent->omit >> RIG_DX & 1), "rows of dx: omitted %x", unsent->omit);
    RIG_EXPECT(rank, part_changed(&dw) == !(unsent->omit >> RIG_DWEIGHTS & 1), "dw: omitted %x", unsent->omit);
    rig_call_free(&call);
    mmoe_saved_destroy(&saved);
    mmoe_layer_destroy(&layer);
}

static void absent_gradients_are_not_sent(void **state) {
    (void)state;
    static const unsigned omits[] = {0, 1u << RIG_DX, 1u << RIG_DWEIGHTS, 1u << RIG_DX | 1u << RIG_DWEIGHTS};
    const int64_t tokens[2] = {20, 13};
    for (int form = 0; form < 8; form++) {
        mmoe_layer_config layer = rig_layer(HIDDEN, INNER, EXPERTS, TOP_K);
        layer.weight_on = form & 4 ? MMOE_WEIGHT_ON_INPUT : MMOE_WEIGHT_ON_OUTPUT;
        struct rig_batch batch = rig_batch_make(&layer, 2, tokens, RIG_UNIFORM, 402);
        struct unsent unsent = {&batch, omits[form % 4]};
        struct rig_world world = rig_world_for(&batch, 1, RIG_THREADS);
        rig_world_run(&world, unsent_body, &unsent);
        rig_batch_free(&batch);
    }
}

/* The saved state is not consumed by a backward. */
static void backward_twice_body(struct rig_rank *rank, void *context) {
    struct rig_batch *batches = context;
    for (int keep = MMOE_KEEP_PLAN; keep <= MMOE_KEEP_ROWS; keep++) {
        struct rig_options options = {.keep = keep};
        mmoe_layer *layer;
        mmoe_saved *saved;
        RIG_OK(rank, mmoe_layer_create(rank->group, &batches[0].layer, &layer));
        RIG_OK(rank, mmoe_saved_create(layer, keep, &saved));
        if (!rig_step(rank, layer, saved, &batches[0], &options, 0xff))
            return;
        struct rig_call again = rig_call_make(rank, &batches[1], &options, saved, 0x7f);
        RIG_OK(rank, mmoe_backward(layer, &again.backward));
        if (!rig_call_take_backward(rank, &again, &batches[1]))
            return;
        rig_call_free(&again);
        mmoe_saved_destroy(&saved);
        mmoe_layer_destroy(&layer);
    }
}

static void backward_does_not_consume_the_saved_state(void **state) {
    (void)state;
    mmoe_layer_config layer = rig_layer(HIDDEN, INNER, EXPERTS, TOP_K);
    const int64_t tokens[2] = {20, 13};
    struct rig_batch batches[2];
    for (int i = 0; i < 2; i++)
        batches[i] = rig_batch_make(&layer, 2, tokens, RIG_HOLES, 401);
    struct rig_world world = rig_world_for(batches, 2, RIG_THREADS);
    rig_world_run(&world, backward_twice_body, batches);
    memcpy(batches[1].y, batches[0].y, (size_t)rig_batch_values(&batches[0]) * sizeof *batches[0].y);
    rig_same_bits(&batches[0], &batches[1], "a second backward");
    rig_batch_free(&batches[0]);
    rig_batch_free(&batches[1]);
}

/* ---- Strides: the bits of the contiguous call */

static void run(struct rig_batch *batch, const struct rig_options *options) {
    struct rig_world world = rig_world_for(batch, 1, RIG_THREADS);
    rig_run(&world, batch, 1, options);
}

static bool is_stack(int operand) {
    return (operand >= RIG_GATE && operand <= RIG_DOWN) || operand >= RIG_DGATE;
}

static void check_layouts(struct rig_batch *plain, struct rig_batch *other, mmoe_keep keep) {
    struct rig_options contiguous = {.keep = keep};
    run(plain, &contiguous);
    for (int operand = 0; operand < RIG_OPERANDS; operand++)
        for (int layout = RIG_OFFSET; layout <= RIG_SCATTERED; layout++) {
            if (layout == RIG_REPEATED_ROW || layout == RIG_REPEATED || (layout == RIG_SCATTERED && !is_stack(operand)))
                continue;
            struct rig_options options = {.keep = keep};
            options.layout[operand] = layout;
            run(other, &options);
            char what[48];
            snprintf(what, sizeof what, "operand %d in layout %d", operand, layout);
            rig_same_bits(plain, other, what);
        }
}

static void b18_every_operand_in_every_layout(void **state) {
    (void)state;
    const int64_t tokens[2] = {7, 4};
    for (int keep = MMOE_KEEP_PLAN; keep <= MMOE_KEEP_ROWS; keep++) {
        mmoe_layer_config layer = rig_layer(HIDDEN, 8, EXPERTS, TOP_K);
        struct rig_batch plain = rig_batch_make(&layer, 2, tokens, RIG_HOLES, 411);
        struct rig_batch other = rig_batch_make(&layer, 2, tokens, RIG_HOLES, 411);
        check_layouts(&plain, &other, keep);
        rig_batch_free(&plain);
        rig_batch_free(&other);
    }
}

/* Everything in the same odd layout at once, halves included, accumulated in bf16. */
static void b18_all_operands_in_one_layout(void **state) {
    (void)state;
    static const int64_t sizes[] = {1, 5, 8, 1025};
    for (int layout = RIG_OFFSET; layout <= RIG_NEGATIVE; layout++)
        for (int size = 0; size < 4; size++) {
            struct rig_options options = {.narrow_gradients = true, .accumulate = true, .halves = size % 2};
            for (int operand = 0; operand < RIG_OPERANDS; operand++)
                options.layout[operand] = layout;
            mmoe_layer_config wide = rig_layer(sizes[size], 8, EXPERTS, TOP_K);
            prove_layer(&wide, 2, RIG_THREADS, 30, POSITIVE, &options);
        }
}

/* A gradient, tokens, ids or weights expanded from one row or one number, as autograd and tests hand them over. */
static void stride_zero_inputs(void **state) {
    (void)state;
    const int64_t tokens[2] = {7, 7};
    mmoe_layer_config layer = rig_layer(HIDDEN, INNER, EXPERTS, TOP_K);
    for (int layout = RIG_REPEATED_ROW; layout <= RIG_REPEATED; layout++)
        for (int operand = 0; operand < 4; operand++) {
            struct rig_batch batch = rig_batch_make(&layer, 2, tokens, RIG_UNIFORM, 421);
            rig_batch_positive(&batch);
            struct rig_options options = {0};
            enum rig_operand operands[4] = {RIG_DY, RIG_X, RIG_IDS, RIG_WEIGHTS};
            options.layout[operands[operand]] = layout;
            for (int64_t t = 0; t < batch.total; t++) {
                for (int64_t h = 0; operand < 2 && h < HIDDEN; h++)
                    (operand == 0 ? batch.dy : batch.x)[t * HIDDEN + h] =
                        mm_bf16_from_float(layout == RIG_REPEATED ? 1 : (float)(h + 1) / 8);
                for (int64_t k = 0; operand >= 2 && k < TOP_K; k++) {
                    if (operand == 2)
                        batch.ids[t * TOP_K + k] = layout == RIG_REPEATED ? 2 : 3 * k;
                    else
                        batch.weights[t * TOP_K + k] = layout == RIG_REPEATED ? 0.5f : 0.25f + (float)k;
                }
            }
            run(&batch, &options);
            rig_compare(&batch, &options, RIG_BOUND);
            rig_batch_free(&batch);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_combination_of_options),
        cmocka_unit_test(options_over_processes),
        cmocka_unit_test(any_gradient_may_be_left_out),
        cmocka_unit_test(each_rank_leaves_out_its_own),
        cmocka_unit_test(absent_gradients_are_not_sent),
        cmocka_unit_test(backward_does_not_consume_the_saved_state),
        cmocka_unit_test(b18_every_operand_in_every_layout),
        cmocka_unit_test(b18_all_operands_in_one_layout),
        cmocka_unit_test(stride_zero_inputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
