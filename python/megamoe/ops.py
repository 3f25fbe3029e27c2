"""The ops that PyTorch sees: `megamoe::forward` and `megamoe::backward`, with fake versions and autograd.

They are collective: every rank of the layer's context calls them in the same order. `layer` is the handle of a layer.
Shapes of outputs follow from shapes of inputs, never from the routing, so compiled code stays valid whatever it is.
"""

from typing import Optional

import torch
from torch import Tensor

from megamoe.layer import by_handle

X, WEIGHTS, GATE, UP, DOWN = (1 << bit for bit in range(5))  # of `wanted`, in the order of the gradients


@torch.library.custom_op("megamoe::forward", mutates_args=())
def forward(x: Tensor, ids: Tensor, weights: Tensor, gate: Tensor, up: Optional[Tensor], down: Tensor, layer: int,
            keep: int) -> tuple[Tensor, Tensor]:
    """y [T, H] bf16, and the token [1] int64 of what is kept for the backward.

    x [T, H] bf16, ids [T, K] int32 or int64 (-1: not used), weights [T, K] fp32, gate and up [El, I, H], or both as
    gate [El, 2I, H] with up None, down [El, H, I], these in bf16 or fp32; keep is a KeepRule.
    """
    return by_handle(layer).forward(x, ids, weights, gate, up, down, keep)


@forward.register_fake
def _(x, ids, weights, gate, up, down, layer, keep):
    return x.new_empty(x.shape), torch.empty(1, dtype=torch.int64, device="cpu")


def new_gradients(x, gate, up, down, top_k, wanted):
    """Memory for dx, dweights, dgate, dup and ddown; of no elements for those that are not wanted."""
    shapes = [(x.shape, x.dtype), ((x.shape[0], top_k), torch.float32), (gate.shape, gate.dtype),
              ((0,), gate.dtype) if up is None else (up.shape, up.dtype), (down.shape, down.dtype)]
    return tuple(x.new_empty(shape if wanted & (1 << bit) else (0,), dtype=dtype)
                 for bit, (shape, dtype) in enumerate(shapes))


@torch.library.custom_op("megamoe::backward", mutates_args=())
def backward(dy: Tensor, token: Tensor, x: Tensor, gate: Tensor, up: Optional[Tensor], down: Tensor, layer: int,
             top_k: int, wanted: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """dx [T, H] bf16, dweights [T, K] fp32, dgate, dup and ddown like the weights; those not wanted are empty.

    dy [T, H] bf16 of any strides; the others as in the forward whose token this is.
    """
    made = by_handle(layer)
    with made.telling_peers("mmoe_refuse_backward"):
        gradients = new_gradients(x, gate, up, down, top_k, wanted)
    given = [gradient if wanted & (1 << bit) else None for bit, gradient in enumerate(gradients)]
    made.backward(dy, token, x, gate, up, down, given)
    return gradients


@backward.register_fake
def _(dy, token, x, gate, up, down, layer, top_k, wanted):
    return new_gradients(x, gate, up, down, top_k, wanted)


def keep_for_backward(ctx, inputs, output):
    x, ids, _, gate, up, down, ctx.layer, _ = inputs
    ctx.top_k = ids.shape[1]
    ctx.save_for_backward(output[1], x, gate, up, down)


def differentiate(ctx, dy, _):
    token, x, gate, up, down = ctx.saved_tensors
    needs_x, _, needs_weights, needs_gate, needs_up, needs_down = ctx.needs_input_grad[:6]
    needs = (needs_x, needs_weights, needs_gate, needs_up, needs_down)
    wanted = sum(1 << bit for bit, need in enumerate(needs) if need)
    gradients = torch.ops.megamoe.backward(dy, token, x, gate, up, down, ctx.layer, ctx.top_k, wanted)
    dx, dweights, dgate, dup, ddown = (gradient if need else None for gradient, need in zip(gradients, needs))
    return dx, None, dweights, dgate, dup, ddown, None, None


def refuse_second_derivative(*_):
    raise RuntimeError("megamoe has no second derivative: what went through a backward with create_graph=True can't be "
                       "differentiated again")


backward.register_autograd(refuse_second_derivative)
forward.register_autograd(differentiate, setup_context=keep_for_backward)
