/* The size of gradients and of activations: nothing is divided by W, T or K, and nothing overflows in between. */
#include "proof.h"

#include <math.h>
#include <string.h>

#include "base/bf16.h"

#define TOKENS 8

static double norm(const float *values, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)values[i] * values[i];
    return sum;
}

/* The norm that a trainer clips by, over the gradients of all experts. */
static double global_norm(const struct rig_batch *batch) {
    int64_t stack = rig_batch_stack(batch);
    return sqrt(norm(batch->dgate, stack) + norm(batch->dup, stack) + norm(batch->ddown, stack));
}

static void b27_gradients_do_not_depend_on_the_number_of_ranks(void **state) {
    (void)state;
    static const int64_t splits[3][4] = {{8}, {4, 4}, {2, 2, 2, 2}};
    mmoe_layer_config layer = rig_layer(16, 12, 4, 2);
    struct rig_options options = {0};
    struct rig_batch batches[3];
    for (int i = 0; i < 3; i++) {
        batches[i] = rig_batch_make(&layer, 1 << i, splits[i], RIG_UNIFORM, 211);
        struct rig_world world = rig_world_for(&batches[i], 1, RIG_PROCESSES);
        rig_run(&world, &batches[i], 1, &options);
        rig_compare(&batches[i], &options, RIG_BOUND);
        rig_same_bits(&batches[0], &batches[i], "another number of ranks");
        assert_true(global_norm(&batches[i]) == global_norm(&batches[0]));
    }
    for (int i = 0; i < 3; i++)
        rig_batch_free(&batches[i]);
}

/* ---- Two microbatches */

/* The tokens first .. first+count-1 of `whole`, with its weights. */
static struct rig_batch microbatch(const struct rig_batch *whole, int world, int64_t first, int64_t count) {
    int64_t tokens[2] = {count, 0};
    if (world == 2)
        tokens[0] = tokens[1] = count / 2;
    const mmoe_layer_config *layer = &whole->layer;
    int64_t hidden = layer->hidden, top_k = layer->top_k;
    struct rig_batch part = rig_batch_make(layer, world, tokens, RIG_UNIFORM, 221);
    memcpy(part.x, whole->x + first * hidden, (size_t)(count * hidden) * sizeof *part.x);
    memcpy(part.dy, whole->dy + first * hidden, (size_t)(count * hidden) * sizeof *part.dy);
    memcpy(part.ids, whole->ids + first * top_k, (size_t)(count * top_k) * sizeof *part.ids);
    memcpy(part.weights, whole->weights + first * top_k, (size_t)(count * top_k) * sizeof *part.weights);
    size_t bytes = (size_t)rig_batch_stack(whole) * sizeof *part.gate;
    memcpy(part.gate, whole->gate, bytes);
    memcpy(part.up, whole->up, bytes);
    memcpy(part.down, whole->down, bytes);
    return part;
}

static void run_one(struct rig_batch *batch, const struct rig_options *options) {
    struct rig_world world = rig_world_for(batch, 1, RIG_THREADS);
    rig_run(&world, batch, 1, options);
}

/* What one step of plain SGD moves a weight by, against what the whole batch moves it by: the ratio must be 1, and
 * the gradients equal to rounding. */
static void check_moves(const float *moved, const float *whole, int64_t n) {
    double product = 0, square = 0, error = 0;
    for (int64_t i = 0; i < n; i++) {
        product += (double)moved[i] * whole[i];
        square += (double)whole[i] * whole[i];
        error += ((double)moved[i] - whole[i]) * ((double)moved[i] - whole[i]);
    }
    assert_true(fabs(product / square - 1) < 1e-6);
    assert_true(sqrt(error / square) < 1e-6);
}

static void b27_two_microbatches_are_one_of_twice_the_size(void **state) {
    (void)state;
    mmoe_layer_config layer = rig_layer(16, 12, 4, 2);
    struct rig_options overwrite = {0}, accumulate = {.accumulate = true};
    for (int world = 1; world <= 2; world++) {
        const int64_t tokens[2] = {TOKENS / world, TOKENS / 2};
        struct rig_batch whole = rig_batch_make(&layer, world, tokens, RIG_UNIFORM, 222);
        struct rig_batch first = microbatch(&whole, world, 0, TOKENS / 2);
        struct rig_batch second = microbatch(&whole, world, TOKENS / 2, TOKENS / 2);
        run_one(&whole, &overwrite);
        run_one(&first, &overwrite);
        int64_t stack = rig_batch_stack(&whole);
        const float *parts[3] = {first.dgate, first.dup, first.ddown};
        for (int i = 0; i < 3; i++)
            memcpy(second.start + i * stack, parts[i], (size_t)stack * sizeof *second.start);
        run_one(&second, &accumulate);
        check_moves(second.dgate, whole.dgate, stack);
        check_moves(second.dup, whole.dup, stack);
        check_moves(second.ddown, whole.ddown, stack);
        rig_batch_free(&whole);
        rig_batch_free(&first);
        rig_batch_free(&second);
    }
}

/* ---- B25: a gate of 300 times an up of 300 is past the largest fp16 */

static void b25_large_products_stay_finite(void **state) {
    (void)state;
    const int64_t tokens[2] = {2, 1};
    struct rig_options options = {0};
    for (int form = 0; form < 2; form++) {
        struct rig_batch batch = exact_batch(8, 4, 1, 2, tokens, RIG_UNIFORM, 231);
        for (int64_t i = 0; i < rig_batch_stack(&batch); i++)
            if (batch.gate[i])
                batch.gate[i] = mm_bf16_from_float(300);
        for (int64_t t = 0; t < batch.total; t++)
            for (int64_t h = 1; h < 8; h++)
                batch.x[t * 8 + h] = mm_bf16_from_float(form ? -300 : 300);
        run_one(&batch, &options);
        rig_compare(&batch, &options, RIG_BOUND);
        assert_true(fabs(rig_reference_of(&batch)->y[1]) >= 300 * 300 / 64);
        rig_batch_free(&batch);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b27_gradients_do_not_depend_on_the_number_of_ranks),
        cmocka_unit_test(b27_two_microbatches_are_one_of_twice_the_size),
        cmocka_unit_test(b25_large_products_stay_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
