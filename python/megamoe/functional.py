"""The layer as a function of tensors, with the rules for dtypes, autocast and distributed tensors."""

from contextlib import nullcontext

import torch
from torch.autograd.forward_ad import unpack_dual

from megamoe.layer import KEEP_RULES, KeepRule, Layer, by_handle


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

    A rank that can't make its call raises, and the others' calls raise what it said; in compiled code, which is checked
    when it is traced, this holds for the op alone and not for what memory its inputs' conversion takes.
    """
    handle = layer if isinstance(layer, int) else check_layer(layer).handle
    compiling = torch.compiler.is_compiling()
    with nullcontext() if compiling else by_handle(handle).telling_peers("mmoe_refuse_forward"):
        if keep not in KEEP_RULES:
            raise ValueError(f"keep is {keep!r}, expected one of {', '.join(map(repr, KEEP_RULES))}")
        gate, up, down = (local(weight) for weight in (gate, up, down))
        tensors = {"x": x, "ids": ids, "weights": weights, "gate": gate, "up": up, "down": down}
        check_places(tensors, forward_mode=not compiling)
        check_rows(x, ids, weights)
        check_dtypes(x, ids, weights, {"gate": gate, "up": up, "down": down})
        differentiable = torch.is_grad_enabled() and any(
            each is not None and each.requires_grad for each in tensors.values())
        rule = KEEP_RULES[keep] if differentiable else KeepRule.NOTHING
        rows = x.flatten(0, -2).to(torch.bfloat16), ids.flatten(0, -2), weights.flatten(0, -2).float()
    y, _ = torch.ops.megamoe.forward(*rows, gate, up, down, handle, rule)
    return y.view(x.shape)


def check_layer(layer):
    """The layer; TypeError when it is something else, such as its context."""
    if not isinstance(layer, Layer):
        raise TypeError(f"layer is a {type(layer).__name__}, expected what Context.layer(...) returns")
    return layer


def local(weight):
    """This rank's part of a DTensor, whose gradient becomes one again; other tensors as they are."""
    return weight.to_local() if hasattr(weight, "to_local") else weight


def check_places(tensors, forward_mode):
    """Raises for what is no tensor, or not on the device of x: among them tensors on "meta", PyTorch would compute
    nothing at all. With `forward_mode` also for tangents, which the op would drop."""
    for name, tensor in tensors.items():
        if tensor is None and name == "up":
            continue
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name} is a {type(tensor).__name__}, expected a tensor")
        if tensor.device != tensors["x"].device:
            raise ValueError(f"{name} is on {tensor.device}, expected {tensors['x'].device}, where x is")
        if forward_mode and unpack_dual(tensor).tangent is not None:
            raise RuntimeError(f"{name} has a tangent: megamoe has no forward-mode derivative, expected a backward")


def check_rows(x, ids, weights):
    """Raises where x, ids and weights don't have a row a token, or have them in another order."""
    for name, tensor, last in (("x", x, "H"), ("ids", ids, "K"), ("weights", weights, "K")):
        if tensor.dim() < 2:
            raise ValueError(f"{name} has shape {list(tensor.shape)}, expected [..., {last}], a row for each token")
        if tensor.dim() > 2 and x.dim() > 2 and tensor.shape[:-1] != x.shape[:-1]:
            raise ValueError(f"{name} has shape {list(tensor.shape)} and x {list(x.shape)}, expected them to differ in "
                             "the last number alone")


def check_dtypes(x, ids, weights, experts):
    """Raises TypeError with the rule that is broken."""
    device = x.device.type
    autocasts = device != "meta" and torch.is_autocast_enabled(device)
    autocast = torch.get_autocast_dtype(device) if autocasts else None
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
