/* SwiGLU and its gradient, an element at a time, from gate and up as they were rounded. */
#ifndef MM_KERNELS_ACTIVATION_CUH
#define MM_KERNELS_ACTIVATION_CUH

#include "kernels/isa.cuh"

/* g' = min(g, L), u' = clamp(u, -L, L), NaN kept. */
MM_DEVICE float clip_above(float value, float limit) {
    return value > limit ? limit : value;
}
MM_DEVICE float clip_both(float value, float limit) {
    return clip_above(value < -limit ? -limit : value, limit);
}

MM_DEVICE float sigmoid(float z) {
    return reciprocal_approx(1.0f + exp2_approx(-1.4426950408889634f * z));
}

MM_DEVICE float swiglu(float gate, float up) {
    return gate * sigmoid(gate) * up;
}

struct swiglu_gradient {
    float h, gate, up; /* h, and the factors of dA in dg and du */
};

/* From s = sigmoid(gate). The gate's factor is u (s + silu (1 - s)) = u s + h - h s. */
MM_DEVICE swiglu_gradient swiglu_gradient_of(float gate, float up, float s) {
    const float silu = gate * s, h = silu * up;
    return {h, (up * s + h) - h * s, silu};
}

#endif
