"""A training step of Qwen3-30B-A3B on this rank: forward, backward, all-reduce of what all ranks hold, AdamW.

Experts are computed by the package or by the unfused layer, from weights of the same layout and values. Each layer is
under a checkpoint, which replays it in the backward; one that saves the op replays all but the experts.
"""

import functools
import gc

import layer
import megamoe
import torch
import torch.distributed as dist
import unfused
from merged_training import SAVED, STOCK
from qwen3 import Model
from timeline import Timeline
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

RATE, BETAS, DECAY = 1e-5, (0.9, 0.95), 0.1


class Stock(nn.Module):
    """The unfused layer with weights as those of megamoe.MegaMoE. `add`: its weighted sum over several ranks."""

    def __init__(self, sizes, world, add, device):
        super().__init__()
        self.world, self.add = world, add
        local = sizes.experts // world
        for name, shape in (("gate_up", (2 * sizes.intermediate, sizes.hidden)),
                            ("down", (sizes.hidden, sizes.intermediate))):
            weight = torch.empty(local, *shape, dtype=torch.bfloat16, device=device)
            self.register_parameter(name, nn.Parameter(weight))

    def forward(self, x, ids, weights):
        if self.world == 1:
            return layer.unfused(x, ids, weights, self.gate_up, self.down)
        return unfused.forward(x, ids, weights, self.gate_up, self.down, self.add, self.world)


def save_the_op(_, op, *args, **kwargs):
    saved = op == torch.ops.megamoe.forward.default
    return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE


def checkpointed_by(variant):
    how = {"use_reentrant": False, "preserve_rng_state": False}  # nothing in a layer is random
    if variant == SAVED:
        how["context_fn"] = functools.partial(create_selective_checkpoint_contexts, save_the_op)
    return functools.partial(checkpoint, **how)


class Trainer:
    """Steps on random tokens, others in each step and on each rank, the same for all variants.

    `place` is the rank with the model's sizes; `loss`: this rank's part of the last step's.
    """

    def __init__(self, place, variant, layers):
        self.place, self.number, self.loss = place, 0, None
        self.timeline = Timeline(place.device)
        self.context = None if variant == STOCK else self.context_of_ranks()
        self.model = Model(place.sizes, layers, place.kernel, self.experts, checkpointed_by(variant), self.timeline,
                           place.device)
        self.model.reset(place.rank.number)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=RATE, betas=BETAS, weight_decay=DECAY,
                                           fused=True)

    def context_of_ranks(self):
        sizes, world = self.place.sizes, self.place.rank.world
        return megamoe.Context(dist.group.WORLD if world > 1 else None, max_tokens=sizes.tokens, hidden=sizes.hidden,
                               top_k=sizes.top_k, experts=sizes.experts, device=self.place.device)

    def experts(self):
        """Of one layer."""
        place = self.place
        if self.context is None:
            return Stock(place.sizes, place.rank.world, unfused.SUMS[place.sum_name], place.device)
        return megamoe.MegaMoE(self.context.layer(intermediate=place.sizes.intermediate), fused=True)

    def next_tokens(self):
        sizes, device = self.place.sizes, self.place.device
        generator = torch.Generator(device).manual_seed(1000 * self.number + self.place.rank.number)
        self.number += 1
        return torch.randint(sizes.vocabulary, (sizes.tokens + 1,), device=device, generator=generator)

    def gradients(self):
        """Those of the mean loss over the tokens of all ranks: what ranks have in common is summed, and a rank's
        experts have seen the tokens of all."""
        world = self.place.rank.world
        self.loss = self.model.backward(self.next_tokens(), 1.0 / (world * self.place.sizes.tokens))
        if world > 1:
            for work in [dist.all_reduce(weight.grad, async_op=True) for weight in self.model.dense]:
                work.wait()
            self.timeline.passed("all-reduce")

    def update(self):
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.timeline.passed("optimizer")

    def step(self):
        self.gradients()
        self.update()

    def end(self):
        """All ranks leave together: a context that is closed leaves its peers."""
        self.place.settle()
        if self.context is not None:
            self.context.close()


def make_room():
    """Memory of trainers that are no longer there is free for the next one."""
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
