/* SwiGLU; see activation.h. One exponential of a negative number an element, in plain arithmetic, so that the
 * compiler turns the loops into vector code and every machine gives the same bits. */
#include <math.h>

#include "base/bf16.h"
#include "base/bits.h"
#include "cpu/activation.h"
#include "cpu/clones.h"

static inline float power_of_two(int32_t n) {
    return mm_float_of_bits((uint32_t)(n + 127) << 23);
}

/* exp(-a) for 0 <= a <= 110 (where it is 0 in fp32), NaN for NaN. exp(-a) = 2^n exp(r), |r| <= ln(2) / 2; the
 * polynomial is the Taylor series, whose first missing term is under 1e-8. */
static inline float exp_of_minus(float a) {
    const float round_to_int = 0x1.8p23f; /* added, it pushes the fraction out of the significand */
    float shifted = -a * 0x1.715476p0f + round_to_int;
    float n = shifted - round_to_int;
    float r = (-a - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f; /* ln(2) in two parts; the first product is exact */
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    int32_t exponent = (int32_t)(mm_bits_of_float(shifted) - mm_bits_of_float(round_to_int));
    int32_t normal = exponent > -100 ? exponent : -100; /* in two steps: 2^n alone may be too small for fp32 */
    return p * power_of_two(normal) * power_of_two(exponent - normal);
}

/* `yes` or `no` without a branch, which would keep the loop from becoming vector code. */
static inline float select(int condition, float yes, float no) {
    uint32_t mask = -(uint32_t)(condition != 0);
    return mm_float_of_bits((mm_bits_of_float(yes) & mask) | (mm_bits_of_float(no) & ~mask));
}

/* sigmoid(z), and sigmoid(-z) in *other. */
static inline float sigmoid(float z, float *other) {
    float a = mm_float_of_bits(mm_bits_of_float(z) & 0x7fffffffu);
    float e = exp_of_minus(select(a > 110.0f, 110.0f, a));
    float large = 1.0f / (1.0f + e), small = e * large;
    *other = select(z >= 0.0f, small, large);
    return select(z >= 0.0f, large, small);
}

static inline float silu(float z) {
    float other;
    return z * sigmoid(z, &other);
}

static inline float clip_above(float value, float limit) {
    return select(value > limit, limit, value);
}
static inline float clip_below(float value, float limit) {
    return select(value < limit, limit, value);
}

static float limit_or_none(float limit) {
    return limit > 0.0f ? limit : INFINITY;
}

MM_CLONES void mm_silu(int64_t n, const float *restrict z, float *restrict out) {
    for (int64_t i = 0; i < n; i++)
        out[i] = silu(z[i]);
}

MM_CLONES static void swiglu(int64_t n, float limit, float scale, const uint16_t *restrict gate,
                             const uint16_t *restrict up, uint16_t *restrict h) {
    for (int64_t i = 0; i < n; i++) {
        float g = clip_above(mm_bf16_to_float(gate[i]), limit);
        float u = clip_below(clip_above(mm_bf16_to_float(up[i]), limit), -limit);
        h[i] = mm_bf16_from_float(scale * (silu(g) * u));
    }
}

void mm_swiglu(int64_t n, float limit, const uint16_t *gate, const uint16_t *up, uint16_t *h) {
    swiglu(n, limit_or_none(limit), 1.0f, gate, up, h);
}

void mm_swiglu_scaled(int64_t n, float limit, float h_scale, const uint16_t *gate, const uint16_t *up,
                      uint16_t *h_scaled) {
    swiglu(n, limit_or_none(limit), h_scale, gate, up, h_scaled);
}

MM_CLONES static void swiglu_gradient(int64_t n, float limit, float da_scale, float h_scale,
                                      const uint16_t *restrict gate, const uint16_t *restrict up,
                                      const float *restrict da, uint16_t *restrict dgate, uint16_t *restrict dup,
                                      uint16_t *restrict h_scaled, float *restrict products) {
    for (int64_t i = 0; i < n; i++) {
        float g_in = mm_bf16_to_float(gate[i]), u_in = mm_bf16_to_float(up[i]);
        float g = clip_above(g_in, limit);
        float u = clip_below(clip_above(u_in, limit), -limit);
        float other, s = sigmoid(g, &other);
        float a = g * s, h = a * u;
        float d = da_scale * da[i];
        float dg = d * u * (s * (1.0f + g * other)), du = d * a;
        dgate[i] = mm_bf16_from_float(select(g_in > limit, 0.0f, dg));
        dup[i] = mm_bf16_from_float(select((u_in > limit) | (u_in < -limit), 0.0f, du));
        h_scaled[i] = mm_bf16_from_float(h_scale * h);
        products[i] = mm_bf16_to_float(mm_bf16_from_float(h)) * da[i];
    }
}

/* Partial sums side by side, then pairwise: the order is the same whatever the vector width. */
enum { LANES = 16 };

MM_CLONES static float sum(int64_t n, const float *restrict values) {
    float lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            lane[j] += values[i + j];
    for (int j = 0; i + j < n; j++)
        lane[j] += values[i + j];
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int j = 0; j < width; j++)
            lane[j] += lane[j + width];
    return lane[0];
}

float mm_swiglu_gradient(int64_t n, float limit, float da_scale, float h_scale, const uint16_t *gate,
                         const uint16_t *up, const float *da, uint16_t *dgate, uint16_t *dup, uint16_t *h_scaled) {
    float products[MM_GRAD_COLS];
    swiglu_gradient(n, limit_or_none(limit), da_scale, h_scale, gate, up, da, dgate, dup, h_scaled, products);
    return sum(n, products);
}

MM_CLONES static void multiply_widened(int64_t n, const uint16_t *restrict x, const float *restrict y,
                                       float *restrict products) {
    for (int64_t i = 0; i < n; i++)
        products[i] = mm_bf16_to_float(x[i]) * y[i];
}

float mm_dot_widened(int64_t n, const uint16_t *x, const float *y) {
    float products[MM_GRAD_COLS];
    multiply_widened(n, x, y, products);
    return sum(n, products);
}
