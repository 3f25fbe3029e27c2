"""A small model of MoE blocks, and what its layer was called for."""

import functools
from contextlib import contextmanager

import megamoe
import torch
from setting import EXPERTS, HIDDEN, TOP_K
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts


class Block(nn.Module):
    """x + experts(norm(x)), its router as plain as can be."""

    def __init__(self, layer):
        super().__init__()
        self.norm = nn.RMSNorm(HIDDEN, dtype=torch.bfloat16)
        self.router = nn.Linear(HIDDEN, EXPERTS, bias=False, dtype=torch.bfloat16)
        self.experts = megamoe.MegaMoE(layer)

    def forward(self, x):
        normed = self.norm(x)
        weights, ids = self.router(normed).float().softmax(dim=-1).topk(TOP_K, dim=-1)
        return x + self.experts(normed, ids, weights)


def save_the_op(_, op, *args, **kwargs):
    """A selective checkpoint that saves what the layer returns and computes everything else again."""
    saved = op == torch.ops.megamoe.forward.default
    return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE


CHECKPOINTS = {
    "none": lambda block, x: block(x),
    "full": functools.partial(checkpoint, use_reentrant=False),
    "reentrant": functools.partial(checkpoint, use_reentrant=True),
    "selective": functools.partial(checkpoint, use_reentrant=False, context_fn=functools.partial(
        create_selective_checkpoint_contexts, save_the_op)),
}

# What each layer of two blocks is called for, with what its forward keeps.
PLAN, ROWS, NOTHING, BACKWARD = "forward, plan", "forward, rows", "forward, nothing", "backward"
CALLS = {
    "none": [PLAN, PLAN, BACKWARD, BACKWARD],
    "full": [PLAN, PLAN, ROWS, BACKWARD, ROWS, BACKWARD],
    "reentrant": [NOTHING, NOTHING, ROWS, BACKWARD, ROWS, BACKWARD],
    "selective": [PLAN, PLAN, BACKWARD, BACKWARD],
}


class Model(nn.Module):
    """Two blocks, each under a checkpoint of CHECKPOINTS."""

    def __init__(self, layer, kind="none", seed=0):
        super().__init__()
        self.kind = kind
        self.blocks = nn.ModuleList(Block(layer) for _ in range(2)).to(layer.device)
        random = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for weight in self.parameters():
                scale = weight.shape[-1] ** -0.5 if weight.dim() > 1 else 1.0
                weight.copy_(scale * torch.randn(weight.shape, generator=random))

    def forward(self, x):
        for block in self.blocks:
            x = CHECKPOINTS[self.kind](block, x)
        return x


@contextmanager
def recorded(layer):
    """The list of the layer's calls while the context lasts."""
    calls, forward, backward = [], layer.forward, layer.backward

    def recording_forward(*arguments):
        y, token = forward(*arguments)
        saved = layer.states.pending.get(token.item())
        calls.append(f"forward, {saved.keep.name.lower() if saved else 'nothing'}")
        return y, token

    def recording_backward(*arguments):
        calls.append("backward")
        backward(*arguments)

    layer.forward, layer.backward = recording_forward, recording_backward
    try:
        yield calls
    finally:
        del layer.forward, layer.backward


def step(model, x, dy):
    """The output and all gradients of one step, by name."""
    x = x.detach().clone().requires_grad_()
    model.zero_grad()
    y = model(x)
    y.backward(dy)
    grads = {name: weight.grad.clone() for name, weight in model.named_parameters()}
    return {"y": y.detach(), "dx": x.grad} | grads
