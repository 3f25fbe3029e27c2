/* The gated activation h = silu(g) * u and its gradient, on one row.
 *
 * With a limit L: g' = min(g, L) and u' = clamp(u, -L, L) take the places of g and u, and the gradient is 0 where that
 * changed the value; at g == L or |u| == L nothing was changed, so the gradient passes. */
#ifndef MM_CPU_ACTIVATION_H
#define MM_CPU_ACTIVATION_H

#include <stdint.h>

/* z / (1 + exp(-z)), within MM_SILU_ULP of exact; NaN for NaN and for -Inf. */
#define MM_SILU_ULP 4
void mm_silu(int64_t n, const float *z, float *out);

/* h[i] = bf16(silu(g') * u'). `limit` 0: none. */
void mm_swiglu(int64_t n, float limit, const uint16_t *gate, const uint16_t *up, uint16_t *h);

/* h_scaled[i] = bf16(h_scale * silu(g') * u'), from the unrounded h. */
void mm_swiglu_scaled(int64_t n, float limit, float h_scale, const uint16_t *gate, const uint16_t *up,
                      uint16_t *h_scaled);

/* From da, the gradient of h before the row's weight: dgate and dup rounded from da_scale * da * d h / d g and / d u,
 * and h_scaled as above. Returns sum over i of bf16(h[i]) * da[i], in an order that n alone fixes. n is at most
 * MM_GRAD_COLS. */
#define MM_GRAD_COLS 384
float mm_swiglu_gradient(int64_t n, float limit, float da_scale, float h_scale, const uint16_t *gate,
                         const uint16_t *up, const float *da, uint16_t *dgate, uint16_t *dup, uint16_t *h_scaled);

/* sum over i of x[i] * y[i], in an order that n alone fixes. n is at most MM_GRAD_COLS. */
float mm_dot_widened(int64_t n, const uint16_t *x, const float *y);

#endif
