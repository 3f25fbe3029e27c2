"""What the plug meets of torchtitan's MoE layer: rebuilt from the public definition of pytorch/torchtitan 0.3.0,
torchtitan/models/common/moe.py. Names, shapes and calls; no code of it.
"""

from dataclasses import dataclass

import torch
from torch import nn
from torchtitan.models.common.token_dispatcher import LocalTokenDispatcher
from torchtitan.protocols.module import Module


class GroupedExperts(Module):
    @dataclass(kw_only=True, slots=True)
    class Config(Module.Config):
        dim: int
        hidden_dim: int
        num_experts: int

    def __init__(self, config):
        super().__init__()
        self.num_experts = config.num_experts
        wide = (config.num_experts, config.hidden_dim, config.dim)
        self.w1_EFD = nn.Parameter(torch.empty(wide))
        self.w2_EDF = nn.Parameter(torch.empty(config.num_experts, config.dim, config.hidden_dim))
        self.w3_EFD = nn.Parameter(torch.empty(wide))


class RoutedExperts(Module):
    @dataclass(kw_only=True, slots=True)
    class Config(Module.Config):
        inner_experts: GroupedExperts.Config
        token_dispatcher: LocalTokenDispatcher.Config

    def __init__(self, config):
        super().__init__()
        self.inner_experts = config.inner_experts.build()
        self.token_dispatcher = config.token_dispatcher.build()

    def parallelize(self, parallel_dims):
        super().parallelize(parallel_dims)
        self.token_dispatcher.wire_meshes(ep_mesh=parallel_dims.get_optional_mesh("ep"))

    def forward(self, x_BLD, topk_scores_BLK, topk_expert_ids_BLK, num_local_tokens_per_expert_E):
        raise AssertionError("the experts of the trainer ran")
