"""Routers: which experts a token goes to, and with what weight. Plain PyTorch on each rank's own tokens.

A trainer keeps its own router; this one is for models that have none, and does what those of the trainers do:

    scores   softmax or sigmoid of the logits over all experts, in fp32; or "topk_softmax", over the chosen ones alone
    choice   the top_k highest scores, to which a bias may be added for the choice alone; with groups, experts of the best
             groups alone are eligible
    weights  the scores of the chosen experts, divided by their sum plus 1e-20 if `normalise`, times `scale`
"""

import warnings

import torch
from torch import nn

SCORES = ("softmax", "sigmoid", "topk_softmax")


def route(logits, top_k, *, score="softmax", normalise=False, scale=1.0, bias=None, groups=1, limited_groups=None,
          group_score="top2", ids=None):
    """ids [..., K] int64, the highest score first, and weights [..., K] fp32, from logits [..., E].

    `ids` [..., K] replays choices made elsewhere: weights are gathered at them, and gradients flow; -1 is a slot that is
    not used, of weight 0. `bias` [E] is added to scores for the choice. Of `groups` with E / groups experts each, the
    `limited_groups` best are eligible, by the sum of the two highest in each ("top2") or by the highest ("top1").

    Ids are distinct and in range whatever the logits are; NaN logits give NaN weights, which the layer refuses.
    """
    check_options(logits.shape[-1], top_k, score, normalise, groups, limited_groups, group_score)
    logits = logits.float()
    scores = {"softmax": lambda: logits.softmax(dim=-1), "sigmoid": logits.sigmoid, "topk_softmax": lambda: logits}
    scores = scores[score]()
    if ids is None:
        with torch.no_grad():
            eligible = scores if bias is None else scores + bias
            if groups > 1:
                eligible = limit_to_groups(eligible, groups, limited_groups, group_score)
            ids = eligible.topk(top_k, dim=-1).indices
    used = ids >= 0
    weights = scores.gather(-1, ids.clamp(min=0).long())
    if score == "topk_softmax":
        weights = weights.masked_fill(~used, torch.finfo(weights.dtype).min).softmax(dim=-1)
    weights = weights * used
    if normalise:
        weights = weights / (weights.sum(dim=-1, keepdim=True) + 1e-20)
    return ids, weights * scale


def limit_to_groups(scores, groups, limited_groups, group_score):
    """The scores [..., E] of experts in the best groups, minus infinity for the others."""
    grouped = scores.unflatten(-1, (groups, -1))
    highest = min(2 if group_score == "top2" else 1, grouped.shape[-1])
    best = grouped.topk(highest, dim=-1).values.sum(dim=-1).topk(limited_groups, dim=-1).indices
    out = torch.ones_like(grouped[..., 0], dtype=torch.bool).scatter(-1, best, False)
    return grouped.masked_fill(out.unsqueeze(-1), -torch.inf).flatten(-2)


def check_options(experts, top_k, score, normalise, groups, limited_groups, group_score):
    """Raises ValueError for options that mean nothing; warns of a router that could not learn."""
    if score not in SCORES:
        raise ValueError(f"score is {score!r}, expected one of {', '.join(map(repr, SCORES))}")
    if not 1 <= top_k <= experts:
        raise ValueError(f"top_k is {top_k}, expected 1 .. {experts}, the number of experts")
    if experts % groups != 0:
        raise ValueError(f"groups is {groups}, expected a divisor of the {experts} experts")
    if groups > 1 and not (limited_groups and 1 <= limited_groups <= groups):
        raise ValueError(f"limited_groups is {limited_groups}, expected 1 .. {groups}, the number of groups")
    if groups > 1 and top_k > limited_groups * (experts // groups):
        raise ValueError(f"top_k is {top_k}, expected at most the {limited_groups * (experts // groups)} experts of "
                         f"{limited_groups} groups")
    if group_score not in ("top1", "top2"):
        raise ValueError(f"group_score is {group_score!r}, expected 'top1' or 'top2'")
    if top_k == 1 and (normalise or score == "topk_softmax"):
        warnings.warn("with top_k 1 a normalised weight is always 1: the router gets no gradient", stacklevel=3)


class Router(nn.Module):
    """A linear gate [E, H] and `route`. The products of the gate are in fp32, whatever the dtypes.

    With `selection_bias` the buffer `bias` [E] fp32 is added to scores for the choice; who balances the load changes it.
    The other options are those of `route`.
    """

    def __init__(self, hidden, experts, top_k, *, selection_bias=False, device=None, dtype=torch.float32, **options):
        super().__init__()
        check_options(experts, top_k, *(options.get(name, default) for name, default in (
            ("score", "softmax"), ("normalise", False), ("groups", 1), ("limited_groups", None),
            ("group_score", "top2"))))
        self.top_k, self.options = top_k, options
        self.gate = nn.Linear(hidden, experts, bias=False, device=device, dtype=dtype)
        self.register_buffer("bias", torch.zeros(experts, device=device) if selection_bias else None)

    def forward(self, x, ids=None):
        """ids and weights [..., K] for x [..., H]; `ids` given are replayed."""
        with torch.autocast(x.device.type, enabled=False):
            logits = nn.functional.linear(x.float(), self.gate.weight.float())
        return route(logits, self.top_k, bias=self.bias, ids=ids, **self.options)
