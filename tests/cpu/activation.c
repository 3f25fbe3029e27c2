/* The activation against libm in float64, its gradient, and that the place in a vector never matters. */
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/bf16.h"
#include "cpu/activation.h"
#include "rig/random.h"

static double exact_silu(double z) {
    return z / (1 + exp(-z));
}

/* Under this the result holds a subnormal exponential, whose own bits are too few for a bound in ulp. */
#define SUBNORMAL_REGION 0x1p-119

static void silu_is_within_its_bound_over_all_of_fp32(void **state) {
    (void)state;
    double worst = 0;
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 1021) { /* a prime: every exponent, all kinds of fractions */
        uint32_t word = (uint32_t)bits;
        float z, value;
        memcpy(&z, &word, sizeof z);
        mm_silu(1, &z, &value);
        double exact = exact_silu(z);
        if (isnan(exact)) {
            assert_true(isnan(value));
        } else if (isinf(exact)) {
            assert_true(isinf(value) && value > 0);
        } else if (fabs(exact) < SUBNORMAL_REGION) {
            assert_true(fabs(value - exact) <= MM_SILU_ULP * 0x1p-142);
        } else {
            float near = (float)fabs(exact);
            double error = fabs(value - exact) / (nextafterf(near, INFINITY) - near);
            worst = error > worst ? error : worst;
        }
    }
    printf("silu: at most %.2f ulp\n", worst);
    assert_true(worst <= MM_SILU_ULP);
}

static void special_values_of_silu(void **state) {
    (void)state;
    const float in[] = {INFINITY, -INFINITY, NAN, 3.4e38f, -3.4e38f, 0.0f, -0.0f};
    float out[7];
    mm_silu(7, in, out);
    assert_true(out[0] == INFINITY);
    assert_true(isnan(out[1])); /* as -Inf / (1 + exp(Inf)) is */
    assert_true(isnan(out[2]));
    assert_true(out[3] == 3.4e38f);
    assert_true(out[4] == 0 && out[5] == 0 && out[6] == 0);
    assert_true(signbit(out[4]) && !signbit(out[5]) && signbit(out[6]));
}

enum { COLS = 77 }; /* no multiple of any vector length */

struct row {
    uint16_t gate[COLS], up[COLS], dgate[COLS], dup[COLS], h[COLS];
    float da[COLS], dot;
};

static void random_row(struct row *row, uint64_t seed) {
    struct rig_random random = rig_seed(seed);
    for (int i = 0; i < COLS; i++) {
        row->gate[i] = mm_bf16_from_float((float)(3 * rig_normal(&random)));
        row->up[i] = mm_bf16_from_float((float)(2 * rig_normal(&random)));
        row->da[i] = (float)rig_normal(&random);
    }
}

static double clip(double value, double low, double high) {
    return fmin(fmax(value, low), high);
}

/* The value is the exact one, rounded to bf16 (half a unit, 2^-8 of the value at most) after an error of some fp32
 * units of `size`. */
static void assert_rounded(uint16_t value, double exact, double size) {
    double slack = fabs(exact) * 0x1p-8 + size * 0x1p-20;
    assert_true(fabs(mm_bf16_to_float(value) - exact) <= slack);
}

static void gradient_agrees_with_float64(void **state) {
    (void)state;
    const float limits[] = {0, 1.5f};
    for (int l = 0; l < 2; l++)
        for (uint64_t seed = 0; seed < 50; seed++) {
            struct row row;
            random_row(&row, seed);
            const double limit = l == 0 ? INFINITY : limits[l], weight = 0.625, h_scale = 1.75;
            row.dot = mm_swiglu_gradient(COLS, limits[l], (float)weight, (float)h_scale, row.gate, row.up, row.da,
                                         row.dgate, row.dup, row.h);
            uint16_t h_alone[COLS];
            mm_swiglu(COLS, limits[l], row.gate, row.up, h_alone);
            double dot = 0, size = 0;
            for (int i = 0; i < COLS; i++) {
                double g_in = mm_bf16_to_float(row.gate[i]), u_in = mm_bf16_to_float(row.up[i]);
                double g = fmin(g_in, limit), u = clip(u_in, -limit, limit), s = 1 / (1 + exp(-g));
                double d = weight * row.da[i], h = g * s * u;
                assert_rounded(row.dgate[i], g_in > limit ? 0 : d * u * s * (1 + g * (1 - s)), fabs(d * u) + fabs(h));
                assert_rounded(row.dup[i], fabs(u_in) > limit ? 0 : d * g * s, fabs(d * g));
                assert_rounded(row.h[i], h_scale * h, fabs(h));
                assert_rounded(h_alone[i], h, fabs(h));
                dot += (double)mm_bf16_to_float(h_alone[i]) * row.da[i]; /* the rounded h is what dw is made of */
                size += fabs(h * row.da[i]);
            }
            assert_true(fabs(row.dot - dot) <= size * 0x1p-21);
        }
}

static void the_gradient_passes_at_the_limit_and_not_past_it(void **state) {
    (void)state;
    const float limit = 2, past = 2 + 0x1p-6f; /* neighbours in bf16 */
    const uint16_t gate[] = {mm_bf16_from_float(limit), mm_bf16_from_float(past), mm_bf16_from_float(1),
                             mm_bf16_from_float(1),     mm_bf16_from_float(1),    mm_bf16_from_float(-past)};
    const uint16_t up[] = {mm_bf16_from_float(1),      mm_bf16_from_float(1),     mm_bf16_from_float(limit),
                           mm_bf16_from_float(-limit), mm_bf16_from_float(-past), mm_bf16_from_float(past)};
    const float da[] = {1, 1, 1, 1, 1, 1};
    uint16_t dgate[6], dup[6], h[6];
    mm_swiglu_gradient(6, limit, 1, 1, gate, up, da, dgate, dup, h);
    const int dgate_passes[] = {1, 0, 1, 1, 1, 1}, dup_passes[] = {1, 1, 1, 1, 0, 0};
    for (int i = 0; i < 6; i++) {
        assert_int_equal(dgate[i] != 0, dgate_passes[i]);
        assert_int_equal(dup[i] != 0, dup_passes[i]);
    }
}

/* Element by element gives the bits that vectors of any width give. */
static void bits_do_not_depend_on_the_place_in_a_row(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct row row, one;
        random_row(&row, seed);
        one = row;
        mm_swiglu_gradient(COLS, 2, 0.3f, 0.7f, row.gate, row.up, row.da, row.dgate, row.dup, row.h);
        for (int i = 0; i < COLS; i++)
            mm_swiglu_gradient(1, 2, 0.3f, 0.7f, one.gate + i, one.up + i, one.da + i, one.dgate + i, one.dup + i,
                               one.h + i);
        assert_memory_equal(row.dgate, one.dgate, sizeof row.dgate);
        assert_memory_equal(row.dup, one.dup, sizeof row.dup);
        assert_memory_equal(row.h, one.h, sizeof row.h);
        mm_swiglu(COLS, 2, row.gate, row.up, row.h);
        for (int i = 0; i < COLS; i++)
            mm_swiglu(1, 2, one.gate + i, one.up + i, one.h + i);
        assert_memory_equal(row.h, one.h, sizeof row.h);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(silu_is_within_its_bound_over_all_of_fp32),
        cmocka_unit_test(special_values_of_silu),
        cmocka_unit_test(gradient_agrees_with_float64),
        cmocka_unit_test(the_gradient_passes_at_the_limit_and_not_past_it),
        cmocka_unit_test(bits_do_not_depend_on_the_place_in_a_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
