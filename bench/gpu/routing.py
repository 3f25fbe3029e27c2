"""Random routing: distinct experts for each token, alike or unlike in demand."""

import torch


def popularity(experts, routing, shuffled=False):
    """A logit an expert. "zipf": like 1 / n^1.2, with the n of the experts in a fixed random order if asked."""
    if routing != "zipf":
        return torch.zeros(experts, device="cuda")
    number = torch.arange(1, experts + 1)
    if shuffled:
        number = number[torch.randperm(experts, generator=torch.Generator().manual_seed(3))]
    return -1.2 * number.cuda().log()


def draw(logits, tokens, top_k, generator=None):
    """[T, K] int64: the K largest of noisy logits."""
    uniform = torch.rand(tokens, logits.shape[0], device="cuda", generator=generator).clamp_(1e-9, 1 - 1e-7)
    return (logits - (-uniform.log()).log()).topk(top_k, -1).indices.contiguous()


def router_weights(tokens, top_k):
    """[T, K] fp32, a token's sum to 1."""
    weights = torch.rand(tokens, top_k, device="cuda") + 0.05
    return weights / weights.sum(-1, keepdim=True)
