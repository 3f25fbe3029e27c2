"""torchtitan: an override of its RoutedExperts.

    --override.imports 'megamoe.plugs.torchtitan.routed_experts={"max_tokens": 16384}'

Parameters keep their names, shapes and shardings, so checkpoints, FSDP and the load balance see what they know. The
factory runs before anything is built, the set-up when torchtitan parallelizes the model; forward is the op alone, which
a CUDA graph can hold under a fixed capacity.

torchtitan checks on its own that a model's dispatcher can be in a CUDA graph, and knows the names of its own ones only:
use --training.disable_cuda_graphs, or a model built for moe_comm_backend="minimal_async_ep" with a capacity.
"""

import functools
import warnings
from dataclasses import dataclass, field

import torch
from torchtitan.config.override import derive, override
from torchtitan.models.common.moe import GroupedExperts, RoutedExperts
from torchtitan.protocols.module import Module

from megamoe.errors import UnsupportedError
from megamoe.functional import local, moe
from megamoe.plugs._setup import Experts, first, layers


class MegaMoERoutedExperts(RoutedExperts):
    """RoutedExperts whose dispatch, compute and combine are one call."""

    @dataclass(kw_only=True, slots=True)
    class Config(RoutedExperts.Config):
        max_tokens: int
        keep: str = "auto"
        context: dict = field(default_factory=dict)

    def __init__(self, config):
        super().__init__(config)
        self.experts, self.keep = describe(config), config.keep
        self.context = {"max_tokens": config.max_tokens, **config.context}
        self.layer = None

    def parallelize(self, parallel_dims):
        """Shards the experts as RoutedExperts does; the dispatcher it has is not connected, the layer is."""
        Module.parallelize(self, parallel_dims)
        mesh = parallel_dims.get_optional_mesh("ep")
        self.connect(None if mesh is None else mesh.get_group())

    def connect(self, process_group):
        """The set-up: collective over the process group, None for this rank alone."""
        self.layer = layers({"routed experts": self.experts}, process_group, **self.context)["routed experts"]
        have = tuple(local(self.inner_experts.w1_EFD).shape)
        expected = (self.layer.local_experts, self.experts.intermediate, self.experts.hidden)
        if have != expected:
            raise UnsupportedError(f"this rank has w1_EFD of shape {have}, expected {expected}: the experts are sharded "
                                   "otherwise than over EP ranks, as by tensor parallelism")

    @functools.wraps(RoutedExperts.forward)  # torchtitan finds the shardings of inputs by their names
    def forward(self, x, scores, ids, _):
        if self.layer is None:
            raise RuntimeError("the routed experts are not connected, expected parallelize(parallel_dims) before forward")
        inner = self.inner_experts
        gate, up, down = inner.w1_EFD, inner.w3_EFD, inner.w2_EDF
        return moe(x.to(torch.bfloat16), ids, scores, gate, up, down, layer=self.layer, keep=self.keep).to(x.dtype)


@override(target=RoutedExperts.Config, description="Routed experts as one call of megamoe.")
def routed_experts(config, *, max_tokens=None, fallback=False, keep="auto", **context):
    """The config of MegaMoERoutedExperts for one of RoutedExperts.

    `max_tokens` is the most tokens of a rank in a forward; by default the dispatcher's num_max_tokens_per_rank, where
    it has one. Experts that the layer can't compute raise UnsupportedError, or with `fallback` stay as they are. The
    others are the options of `megamoe.moe` and `megamoe.Context`.
    """
    reason = describe(config).reason
    if reason is not None and not fallback:
        raise UnsupportedError(reason)
    if reason is not None:
        warnings.warn(f"megamoe leaves routed experts to torchtitan: {reason}", stacklevel=2)
        return config
    max_tokens = max_tokens or getattr(config.token_dispatcher, "num_max_tokens_per_rank", None)
    if not max_tokens:
        raise ValueError("max_tokens is not given, expected the most tokens of a rank in a forward: "
                         'megamoe.plugs.torchtitan.routed_experts={"max_tokens": 16384}')
    return derive(config, MegaMoERoutedExperts.Config, max_tokens=max_tokens, keep=keep, context=context)


def describe(config):
    """The Experts of a RoutedExperts.Config. What isn't its own GroupedExperts computes something else."""
    inner, dispatcher = config.inner_experts, config.token_dispatcher
    own = type(inner) is GroupedExperts.Config
    reason = first(
        (not own, f"inner_experts is {type(inner).__qualname__}, expected GroupedExperts.Config: no quantization, biases, "
                  "other activations or fused weights"),
        (getattr(config, "score_before_experts", False) or getattr(dispatcher, "score_before_experts", False),
         "score_before_experts is True, expected False"),
        (getattr(dispatcher, "pad_multiple", None), f"pad_multiple is {getattr(dispatcher, 'pad_multiple', None)}: rows "
                                                    "are padded for quantized products, expected none"))
    return Experts(getattr(inner, "dim", 0), getattr(inner, "hidden_dim", 0), dispatcher.num_experts, dispatcher.top_k,
                   reason=reason)
