"""The layer as its formula in plain PyTorch, token by token and slot by slot, with autograd; seeded problems for it."""

from dataclasses import dataclass

import torch

from setting import EXPERTS, HIDDEN, INTERMEDIATE, TOP_K


def layer(x, ids, weights, gate, up, down, limit=0.0, weight_on="output"):
    """y [T, H] in the inputs' dtype. No sorting, no padding, no grouping."""
    rows = []
    for t in range(x.shape[0]):
        row = torch.zeros_like(x[t])
        for k in range(ids.shape[1]):
            expert = int(ids[t, k])
            if expert >= 0:
                row = row + slot(x[t], weights[t, k], gate[expert], up[expert], down[expert], limit, weight_on)
        rows.append(row)
    return torch.stack(rows) if rows else x * weights.sum()


def slot(x, weight, gate, up, down, limit, weight_on):
    token = weight * x if weight_on == "input" else x
    g, u = gate @ token, up @ token
    if limit > 0:
        g, u = g.clamp(max=limit), u.clamp(-limit, limit)
    result = down @ (torch.nn.functional.silu(g) * u)
    return weight * result if weight_on == "output" else result


@dataclass
class Problem:
    """One layer's inputs, over all ranks: E experts, T tokens."""

    x: torch.Tensor
    ids: torch.Tensor
    weights: torch.Tensor
    gate: torch.Tensor
    up: torch.Tensor
    down: torch.Tensor
    dy: torch.Tensor

    def tensors(self):
        """The differentiable inputs by name."""
        return {name: getattr(self, name) for name in ("x", "weights", "gate", "up", "down")}


def problem(tokens, seed=0, *, device="cpu", hidden=HIDDEN, intermediate=INTERMEDIATE, experts=EXPERTS, top_k=TOP_K,
            unused=0.1, dtype=torch.bfloat16):
    """A problem with a tenth of the slots unused and some experts named twice in a token. Values are those of bf16."""
    random = torch.Generator().manual_seed(seed)

    def normal(*shape, scale=1.0):
        return (scale * torch.randn(shape, generator=random)).to(torch.bfloat16).to(device)

    ids = torch.randint(experts, (tokens, top_k), generator=random)
    ids[torch.rand(ids.shape, generator=random) < unused] = -1
    return Problem(
        normal(tokens, hidden), ids.to(device), torch.rand(tokens, top_k, generator=random).to(device),
        normal(experts, intermediate, hidden, scale=hidden ** -0.5).to(dtype),
        normal(experts, intermediate, hidden, scale=hidden ** -0.5).to(dtype),
        normal(experts, hidden, intermediate, scale=intermediate ** -0.5).to(dtype), normal(tokens, hidden))


def expected(given, **options):
    """y and the gradients by name, in float64 on the CPU."""
    inputs = {name: tensor.detach().cpu().double().requires_grad_() for name, tensor in given.tensors().items()}
    y = layer(inputs["x"], given.ids.cpu(), *(inputs[n] for n in ("weights", "gate", "up", "down")), **options)
    y.backward(given.dy.cpu().double())
    return {"y": y.detach()} | {f"d{name}": tensor.grad for name, tensor in inputs.items()}


def distance(value, exact):
    """The error's length as a share of the exact tensor's; the error's length where that is zero."""
    error, length = (value.cpu().double() - exact).norm(), exact.norm()
    return float(error / length if length > 0 else error)
