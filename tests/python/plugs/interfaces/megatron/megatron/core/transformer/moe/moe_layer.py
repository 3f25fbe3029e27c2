"""What the plug meets of Megatron Core's MoE layer: rebuilt from the public definition of NVIDIA/Megatron-LM's pull request
6572, megatron/core/transformer/moe/moe_layer.py and experts.py. Names, shapes and calls; no code of it.
"""

import torch
from megatron.core.transformer.moe.megakernel.factory import (build_megakernel_backend,
                                                              megakernel_shared_expert_init_context,
                                                              prepare_megakernel_shared_expert_config)
from torch import nn


class GroupedLinear(nn.Module):
    """Transformer Engine's: the weights of all experts in one tensor, or one for each."""

    def __init__(self, experts, out, inward, single):
        super().__init__()
        self.single_grouped_weight = single
        if single:
            self.weight = nn.Parameter(torch.empty(experts, out, inward))
        else:
            for expert in range(experts):
                self.register_parameter(f"weight{expert}", nn.Parameter(torch.empty(out, inward)))


class Experts(nn.Module):
    def __init__(self, experts, config):
        super().__init__()
        hidden, wide, single = config.hidden_size, 2 * config.moe_ffn_hidden_size, config.moe_single_grouped_weight
        self.linear_fc1 = GroupedLinear(experts, wide, hidden, single)
        self.linear_fc2 = GroupedLinear(experts, hidden, wide // 2, single)


class MoELayer(nn.Module):
    def __init__(self, config, ep_group, num_local_experts):
        super().__init__()
        self.experts, self.shared_experts = Experts(num_local_experts, config), None
        if config.moe_shared_expert_intermediate_size is not None:
            shared_config = prepare_megakernel_shared_expert_config(config)
            with megakernel_shared_expert_init_context(config):
                self.shared_experts = nn.Linear(shared_config.hidden_size, config.hidden_size, bias=False,
                                                dtype=torch.bfloat16)
        self.megakernel_experts = build_megakernel_backend(
            config=config, ep_group=ep_group, routed_experts=self.experts, shared_experts=self.shared_experts,
            num_local_experts=num_local_experts)
        self.route = None

    def forward(self, hidden_states):
        """hidden_states [S, B, H]."""
        probs, routing_map = self.route(hidden_states)
        return self.megakernel_experts(hidden_states, probs, routing_map), None
