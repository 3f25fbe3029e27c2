"""The layer as a function of tensors, with the rules for dtypes, autocast and distributed tensors."""

import torch

from megamoe.layer import KEEP_RULES, KeepRule, Layer


def moe(x, ids, weights, gate, up, down, *, layer, keep="auto"):
    """y[t] = sum over k of weights[t,k] * down_e(silu(gate_e x[t]) * (up_e x[t])), e = ids[t,k]; shape and device of x.

    Collective over the ranks of the layer's context. Shapes: x [..., H], ids and weights [..., K] (one row a token of
    x), gate and up [El, I, H], down [El, H, I] of this rank's own experts. With `up` None, gate is [El, 2I, H]: gate in
    the first half and up in the second. An id of -1 is a slot that is not used; ids are int32 or int64.

    Dtypes: products are of bf16 with sums in fp32. x is bf16, or under torch.autocast(dtype=torch.bfloat16) any
    floating type; y is bf16. Router weights are of any floating type and used in fp32. gate, up and down are bf16 or
    fp32; fp32 ones are rounded for the products. Each gradient has the dtype of its input; those of fp32 weights are
    never rounded to bf16.

    gate, up and down may be DTensors whose local part is that of this rank's experts.

    `keep`: what forwards keep for their backwards. "plan" is little, and backward computes gate and up again; "rows" is
    also the rows of x, gate and up; "auto" is rows where a checkpoint replays the forward, whose backward follows at
    once, and the plan elsewhere. `layer` is a Layer or its handle.
    """
    if keep not in KEEP_RULES:
        raise ValueError(f"keep is {keep!r}, expected one of {', '.join(map(repr, KEEP_RULES))}")
    gate, up, down = (local(weight) for weight in (gate, up, down))
    check_dtypes(x, ids, weights, {"gate": gate, "up": up, "down": down})
    tensors = (x, weights, gate, up, down)
    differentiable = torch.is_grad_enabled() and any(each is not None and each.requires_grad for each in tensors)
    rule = KEEP_RULES[keep] if differentiable else KeepRule.NOTHING
    y, _ = torch.ops.megamoe.forward(
        x.flatten(0, -2).to(torch.bfloat16), ids.flatten(0, -2), weights.flatten(0, -2).float(), gate, up, down,
        layer.handle if isinstance(layer, Layer) else layer, rule)
    return y.view(x.shape)


def local(weight):
    """This rank's part of a DTensor, whose gradient becomes one again; other tensors as they are."""
    return weight.to_local() if hasattr(weight, "to_local") else weight


def check_dtypes(x, ids, weights, experts):
    """Raises TypeError with the rule that is broken."""
    device = x.device.type
    autocast = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    if autocast not in (None, torch.bfloat16):
        raise TypeError(f"autocast is to {autocast}, expected torch.bfloat16: the layer computes in bf16")
    if not x.dtype.is_floating_point or (autocast is None and x.dtype != torch.bfloat16):
        raise TypeError(f"x is {x.dtype}, expected torch.bfloat16, or any floating type under "
                        "torch.autocast(dtype=torch.bfloat16)")
    if not weights.dtype.is_floating_point:
        raise TypeError(f"weights is {weights.dtype}, expected a floating type")
    if ids.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"ids is {ids.dtype}, expected torch.int32 or torch.int64")
    for name, weight in experts.items():
        if weight is not None and weight.dtype not in (torch.bfloat16, torch.float32):
            raise TypeError(f"{name} is {weight.dtype}, expected torch.bfloat16 or torch.float32")
