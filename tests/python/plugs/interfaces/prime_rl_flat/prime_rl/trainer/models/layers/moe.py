"""What the plug meets of prime-rl's MoE layer: rebuilt from the public definition of PrimeIntellect-ai/prime-rl at
559b44772 (v0.8.1.dev67), src/prime_rl/trainer/models/layers/moe.py. Names, shapes and calls; no code of it.
"""

import torch
from torch import nn


class GroupedExperts(nn.Module):
    def __init__(self, dim, hidden_dim, num_experts, fp8=False):
        super().__init__()
        self.num_experts, self.fp8, self.ep_comm_backend = num_experts, fp8, "torch"
        self.w1 = nn.Parameter(torch.empty(num_experts, hidden_dim, dim))
        self.w2 = nn.Parameter(torch.empty(num_experts, dim, hidden_dim))
        self.w3 = nn.Parameter(torch.empty(num_experts, hidden_dim, dim))

    def forward(self, x, num_tokens_per_expert):
        raise AssertionError("the experts of the trainer ran")


class NonGatedGroupedExperts(GroupedExperts):
    def __init__(self, dim, hidden_dim, num_experts):
        super().__init__(dim, hidden_dim, num_experts)
        self.w3 = nn.Parameter(torch.empty(0))


class GptOssGroupedExperts(nn.Module):
    def __init__(self, dim, hidden_dim, num_experts):
        super().__init__()
        self.num_experts = num_experts
        self.gate_up_proj = nn.Parameter(torch.empty(num_experts, dim, 2 * hidden_dim))
        self.down_proj = nn.Parameter(torch.empty(num_experts, hidden_dim, dim))


class MultiLoRAGroupedExperts(nn.Module):
    def __init__(self, base_layer):
        super().__init__()
        self.base_layer, self.num_experts = base_layer, base_layer.num_experts


class Router(nn.Module):
    """Returns what it was given, so that tests choose the routing."""

    def __init__(self, top_k):
        super().__init__()
        self.top_k, self.given = top_k, None

    def forward(self, x):
        return self.given


class MoE(nn.Module):
    def __init__(self, experts, top_k, shared_expert=None, score_before_experts=False):
        super().__init__()
        self.router, self.experts, self.shared_expert = Router(top_k), experts, shared_expert
        self.score_before_experts, self.ep_comm_backend, self.fused_kernel = score_before_experts, "torch", None

    def set_ep_comm_backend(self, backend):
        self.ep_comm_backend = backend

    def _run_fused_routed_experts(self, x, selected_experts_indices, top_scores):
        raise AssertionError("the fused kernel of the trainer ran")

    def forward(self, x):
        """x [batch, sequence, dim]."""
        rows = x.view(-1, x.shape[-1])
        ids, scores = self.router(rows)
        if self.ep_comm_backend == "deepep":
            raise AssertionError("DeepEP ran")
        if not self.fused_kernel:
            return self.experts(rows, None)
        y = self._run_fused_routed_experts(rows, ids, scores)
        return (y if self.shared_expert is None else y + self.shared_expert(rows)).view_as(x)
