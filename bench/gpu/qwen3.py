"""Qwen3-30B-A3B in plain PyTorch, one sequence at a time, its experts left open.

The layers compute what Transformers' Qwen3MoeDecoderLayer does, which a test compares; router weights stay in fp32.
They are written here so that both paths of the experts get the same lean model at any version of Transformers: fused
norms, attention that knows groups of queries, and a loss without logits of the whole sequence.
"""

from contextlib import nullcontext
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from megamoe import route
from torch import nn
from torch.nn.attention import sdpa_kernel

EPSILON = 1e-6  # of norms
DEVIATION = 0.02  # of weights at the start


@dataclass(frozen=True)
class Sizes:
    hidden: int = 2048
    heads: int = 32
    kv_heads: int = 4
    head_dim: int = 128
    experts: int = 128
    top_k: int = 8
    intermediate: int = 768  # of an expert
    vocabulary: int = 151936
    most_layers: int = 48
    rope_base: float = 1e6
    tokens: int = 16384  # of a sequence, of which each rank has one
    chunk: int = 2048  # tokens whose logits exist at once


TRUE = Sizes()
TINY = Sizes(hidden=64, heads=4, kv_heads=2, head_dim=16, experts=16, intermediate=64, vocabulary=512, most_layers=2,
             tokens=64, chunk=16)


# ---- A decoder layer


def rotation_of(sizes, device, dtype):
    """cos and sin [T, D] of the angles by which positions turn queries and keys."""
    frequencies = sizes.rope_base ** -(torch.arange(0, sizes.head_dim, 2, device=device) / sizes.head_dim)
    angles = torch.arange(sizes.tokens, device=device)[:, None] * frequencies
    angles = torch.cat([angles, angles], -1)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotated(x, rotation):
    """x [..., T, D]."""
    cos, sin = rotation
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


def attend(q, k, v, kernel):
    """Causal; q [1, N, T, D], k and v [1, M, T, D] with N a multiple of M. `kernel`: an SDPBackend, or None for any."""
    with sdpa_kernel(kernel) if kernel is not None else nullcontext():
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


class Attention(nn.Module):
    def __init__(self, sizes, kernel, factory):
        super().__init__()
        self.head_dim, self.kernel = sizes.head_dim, kernel
        wide, narrow = sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
        self.q, self.k, self.v = (nn.Linear(sizes.hidden, width, bias=False, **factory)
                                  for width in (wide, narrow, narrow))
        self.o = nn.Linear(wide, sizes.hidden, bias=False, **factory)
        self.q_norm, self.k_norm = (nn.RMSNorm(sizes.head_dim, EPSILON, **factory) for _ in range(2))

    def forward(self, x, rotation):
        """[T, H] of x [T, H]."""
        q, k, v = (each(x).unflatten(-1, (-1, self.head_dim)) for each in (self.q, self.k, self.v))
        q, k, v = (each.transpose(0, 1)[None] for each in (self.q_norm(q), self.k_norm(k), v))
        y = attend(rotated(q, rotation), rotated(k, rotation), v, self.kernel)
        return self.o(y[0].transpose(0, 1).flatten(1))


class Block(nn.Module):
    """`experts(x, ids, weights)`: [T, H] of x [T, H], ids and router weights [T, K]."""

    def __init__(self, sizes, kernel, experts, timeline, factory):
        super().__init__()
        self.top_k, self.timeline = sizes.top_k, timeline
        self.attention_norm, self.experts_norm = (nn.RMSNorm(sizes.hidden, EPSILON, **factory) for _ in range(2))
        self.attention = Attention(sizes, kernel, factory)
        self.router = nn.Linear(sizes.hidden, sizes.experts, bias=False, **factory)
        self.experts = experts

    def forward(self, x, rotation):
        x = x + self.attention(self.attention_norm(x), rotation)
        normed = self.experts_norm(x)
        ids, weights = route(self.router(normed), self.top_k, normalise=True)
        return x + self.timeline.left(self.experts(self.timeline.entered(normed), ids, weights))


# ---- The model


class Model(nn.Module):
    """`make_experts()` makes the experts of a layer, `checkpointed(block, x, rotation)` calls a layer."""

    def __init__(self, sizes, layers, kernel, make_experts, checkpointed, timeline, device):
        super().__init__()
        factory = {"device": device, "dtype": torch.bfloat16}
        self.sizes, self.checkpointed, self.timeline = sizes, checkpointed, timeline
        self.rotation = rotation_of(sizes, **factory)
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.hidden, **factory)
        self.blocks = nn.ModuleList(Block(sizes, kernel, make_experts(), timeline, factory) for _ in range(layers))
        self.norm = nn.RMSNorm(sizes.hidden, EPSILON, **factory)
        self.head = nn.Linear(sizes.hidden, sizes.vocabulary, bias=False, **factory)

    @property
    def of_experts(self):
        """The weights of this rank's experts."""
        return [weight for block in self.blocks for weight in block.experts.parameters()]

    @property
    def dense(self):
        """All other weights, equal on all ranks."""
        own = set(self.of_experts)
        return [weight for weight in self.parameters() if weight not in own]

    @torch.no_grad()
    def reset(self, rank):
        """The same weights whatever computes the experts."""
        device = self.head.weight.device
        for seed, weights in ((1, self.dense), (100 + rank, self.of_experts)):
            generator = torch.Generator(device).manual_seed(seed)
            for weight in weights:
                weight.fill_(1.0) if weight.dim() == 1 else weight.normal_(0.0, DEVIATION, generator=generator)

    def backward(self, tokens, scale):
        """Gradients of `scale` times the sum of the losses of tokens[1:], each told from those before it; that loss."""
        x = self.embedding(tokens[:-1])
        for block in self.blocks:
            x = self.checkpointed(block, x, self.rotation)
        hidden = self.norm(x)
        self.timeline.passed("dense", "forward")
        loss, gradient = self.loss(hidden.detach(), tokens[1:], scale)
        self.timeline.passed("loss and head")
        hidden.backward(gradient)
        self.timeline.passed("dense", "backward")
        return loss

    def loss(self, hidden, targets, scale):
        """The loss and its gradient for hidden [T, H], a chunk of logits at a time; adds the gradient of the head."""
        total, gradients = 0.0, []
        for rows, wanted in zip(hidden.split(self.sizes.chunk), targets.split(self.sizes.chunk)):
            rows.requires_grad_()
            loss = scale * F.cross_entropy(self.head(rows).float(), wanted, reduction="sum")
            loss.backward()
            total = total + loss.detach()
            gradients.append(rows.grad)
        return total, torch.cat(gradients)
