"""What the plug meets of prime-rl's MoE layer: rebuilt from the public definition of PrimeIntellect-ai/prime-rl after its
pull request 3411 (v0.9), src/prime_rl/trainer/models/layers/moe.py. Names, shapes and calls; no code of it.
"""

import torch
from torch import nn


class Silu:
    @staticmethod
    def apply(gate, up):
        return nn.functional.silu(gate) * up


class Relu2:
    @staticmethod
    def apply(gate, up):
        return nn.functional.relu(gate).square() * up


class ExpertCompute:
    """Experts on rows in the order of experts, of each as many as counts says."""

    def __call__(self, experts, x, counts):
        rows = x.split(counts.tolist())
        return torch.cat([
            experts.activation.apply(each @ gate.t(), each @ up.t()) @ down.t() for each, gate, up, down in
            zip(rows, *experts.weights())])


class GroupedExperts(nn.Module):
    def __init__(self, dim, hidden_dim, num_experts, *, activation=Silu, expert_type="gated", bias=False, fused=False):
        super().__init__()
        self.num_experts, self.activation, self.compute = num_experts, activation, ExpertCompute()
        wide = (num_experts, hidden_dim, dim)
        gated = expert_type == "gated"
        self.gate_proj = nn.Parameter(torch.empty(wide)) if gated and not fused else None
        self.up_proj = nn.Parameter(torch.empty(wide)) if not fused else None
        self.gate_up_proj = nn.Parameter(torch.empty(num_experts, 2 * hidden_dim, dim)) if fused else None
        self.down_proj = nn.Parameter(torch.empty(num_experts, dim, hidden_dim))
        self.up_proj_bias = nn.Parameter(torch.empty(num_experts, hidden_dim)) if bias else None

    def weights(self):
        gate, up = (self.gate_proj, self.up_proj) if self.gate_up_proj is None else self.gate_up_proj.chunk(2, dim=1)
        return gate, up, self.down_proj

    def forward(self, x, num_tokens_per_expert):
        return self.compute(self, x, num_tokens_per_expert)


class LocalTokenDispatcher:
    def __init__(self, num_experts):
        self.num_experts = num_experts

    def run(self, x, top_scores, selected_experts_indices, experts, *, score_before_experts):
        flat = selected_experts_indices.flatten()
        order = flat.argsort(stable=True)
        rows = experts(x[order // selected_experts_indices.shape[1]], flat.bincount(minlength=self.num_experts))
        back = torch.empty_like(rows).index_copy(0, order, rows).view(*selected_experts_indices.shape, -1)
        return (back.float() * top_scores.unsqueeze(-1)).sum(dim=1).to(x.dtype)

    def synchronize(self):
        pass


class Router(nn.Module):
    """Returns what it was given, so that tests choose the routing."""

    def __init__(self, top_k):
        super().__init__()
        self.top_k, self.given = top_k, None

    def forward(self, x, routed_experts=None):
        ids, scores = self.given
        return scores, ids if routed_experts is None else routed_experts


class MoE(nn.Module):
    def __init__(self, experts, top_k, shared_expert=None, score_before_experts=False):
        super().__init__()
        self.router, self.experts, self.shared_expert = Router(top_k), experts, shared_expert
        self.score_before_experts = score_before_experts
        self.token_dispatcher = LocalTokenDispatcher(experts.num_experts)

    def set_token_dispatcher(self, token_dispatcher):
        self.token_dispatcher = token_dispatcher

    def forward(self, x, routed_experts=None):
        """x [batch, sequence, dim]."""
        rows = x.view(-1, x.shape[-1])
        scores, ids = self.router(rows, routed_experts)
        y = self.token_dispatcher.run(rows, scores, ids, self.experts, score_before_experts=self.score_before_experts)
        shared = None if self.shared_expert is None else self.shared_expert(rows)
        self.token_dispatcher.synchronize()
        return (y if shared is None else y + shared).view_as(x)
