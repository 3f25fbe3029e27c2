"""bf16 in NumPy, and the layer in float64, written with NumPy from its formula."""

import numpy as np


def from_bf16(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def to_bf16(values):
    bits = np.asarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def silu(z):
    return z / (1 + np.exp(-z))


def layer(tensors):
    """y, dx, dw, dW1, dW2, dW3 from x, dy, ids, w, W1, W2, W3, weights on the output, no limit."""
    x, dy, w1, w2, w3 = (from_bf16(tensors[name]) for name in ("x", "dy", "W1", "W2", "W3"))
    ids, w = tensors["ids"], tensors["w"].astype(np.float64)
    out = {"y": np.zeros_like(x), "dx": np.zeros_like(x), "dw": np.zeros_like(w), "dW1": np.zeros_like(w1),
           "dW2": np.zeros_like(w2), "dW3": np.zeros_like(w3)}
    for (t, k), e in np.ndenumerate(ids):
        if e < 0:
            continue
        g, u = w1[e] @ x[t], w3[e] @ x[t]
        h, s = silu(g) * u, 1 / (1 + np.exp(-g))
        out["y"][t] += w[t, k] * (w2[e] @ h)
        dh = dy[t] @ w2[e]
        out["dw"][t, k] = h @ dh
        dh = w[t, k] * dh
        dg, du = dh * u * s * (1 + g * (1 - s)), dh * silu(g)
        out["dx"][t] += dg @ w1[e] + du @ w3[e]
        out["dW1"][e] += np.outer(dg, x[t])
        out["dW3"][e] += np.outer(du, x[t])
        out["dW2"][e] += np.outer(w[t, k] * dy[t], h)
    return out


def relative_error(value, reference):
    return np.linalg.norm(value - reference) / np.linalg.norm(reference)
