"""The router against the trainers' formulas, rebuilt here from their public definitions, and by hand.

torchtitan and prime-rl (TokenChoiceTopKRouter) and Megatron-Core's softmax before selection are rebuilt; test_huggingface.py
has the routers of transformers themselves. Order of a token's slots is not compared: theirs is that of an unsorted topk.
"""

import megamoe
import pytest
import torch
from megamoe.router import Router

EXPERTS, TOKENS, TOP_K = 12, 40, 3


def logits(seed=0, experts=EXPERTS):
    return 2 * torch.randn(TOKENS, experts, generator=torch.Generator().manual_seed(seed))


def by_expert(ids, weights, experts=EXPERTS):
    """[T, E]: a token's weight of each expert."""
    return torch.zeros(ids.shape[0], experts).scatter(-1, ids, weights)


def token_choice(logits, top_k, score_func, bias, groups, limited, route_norm, route_scale):
    """torchtitan's and prime-rl's router: scores, biased choice within groups, gather, norm, scale."""
    scores = logits.sigmoid() if score_func == "sigmoid" else logits.softmax(dim=1)
    choice = scores if bias is None else scores + bias
    if groups > 1:
        grouped = choice.view(-1, groups, EXPERTS // groups)
        chosen = grouped.topk(2, dim=-1).values.sum(-1).topk(limited, dim=-1, sorted=False).indices
        mask = torch.ones(len(logits), groups, dtype=torch.bool).scatter(1, chosen, False)
        choice = grouped.masked_fill(mask.unsqueeze(-1), float("-inf")).view(-1, EXPERTS)
    ids = choice.topk(top_k, dim=-1, sorted=False).indices
    top = scores.gather(1, ids)
    if route_norm:
        top = top / (top.sum(dim=-1, keepdim=True) + 1e-20)
    return ids, top * route_scale


@pytest.mark.parametrize("score", ["softmax", "sigmoid"])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("groups, limited", [(1, None), (4, 2), (3, 1)])
@pytest.mark.parametrize("normalise, scale", [(False, 1.0), (True, 2.5)])
def test_token_choice(score, biased, groups, limited, normalise, scale):
    theirs, ours = (logits().requires_grad_() for _ in range(2))
    bias = torch.linspace(-0.4, 0.4, EXPERTS) if biased else None
    expected = by_expert(*token_choice(theirs, TOP_K, score, bias, groups, limited, normalise, scale))
    result = by_expert(*megamoe.route(ours, TOP_K, score=score, bias=bias, groups=groups, limited_groups=limited,
                                      normalise=normalise, scale=scale))
    assert torch.equal(result != 0, expected != 0)
    torch.testing.assert_close(result, expected, rtol=1e-6, atol=0)
    factor = logits(seed=1)
    (result * factor).sum().backward()
    (expected * factor).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-5, atol=1e-7)


def test_softmax_over_the_chosen_is_softmax_normalised():
    _, normalised = megamoe.route(logits(), TOP_K, normalise=True)
    ids, weights = megamoe.route(logits(), TOP_K, score="topk_softmax")
    assert torch.equal(weights, logits().gather(-1, ids).softmax(dim=-1))
    torch.testing.assert_close(weights, normalised, rtol=1e-5, atol=0)


@pytest.mark.parametrize("score", ["softmax", "sigmoid", "topk_softmax"])
def test_replay(score):
    """Given ids are taken as they are, twice the same or -1 too, and gradients reach the logits that they name."""
    chosen, weights = megamoe.route(logits(), TOP_K, score=score, normalise=True)
    ids, same = megamoe.route(logits(), TOP_K, score=score, normalise=True, ids=chosen.int())
    assert torch.equal(ids, chosen) and torch.equal(same, weights)
    other = logits().requires_grad_()
    given = torch.tensor([[0, 0, 0], [5, -1, 7], [-1, -1, -1]])
    _, weights = megamoe.route(other[:3], TOP_K, score=score, ids=given)
    assert weights[0].eq(weights[0, 0]).all() and weights[given < 0].eq(0).all() and weights[given >= 0].gt(0).all()
    (weights * torch.tensor([3.0, 2.0, 1.0])).sum().backward()
    assert other.grad.isfinite().all() and other.grad[2:].eq(0).all() and other.grad[1, 5] != 0


def test_values_by_hand():
    """K 1 and softmax first: the weight is not 1, and the router learns."""
    values = torch.tensor([[2.0, 0.0], [0.0, 1.0]], requires_grad=True)
    ids, weights = megamoe.route(values, 1)
    assert ids.tolist() == [[0], [1]]
    torch.testing.assert_close(weights, torch.tensor([[0.880797], [0.731059]]))
    weights[0, 0].backward()
    torch.testing.assert_close(values.grad, torch.tensor([[0.104994, -0.104994], [0.0, 0.0]]))
    with pytest.warns(UserWarning, match="with top_k 1 a normalised weight is always 1"):
        assert megamoe.route(values, 1, normalise=True)[1].eq(1).all()


@pytest.mark.parametrize("experts", [5, 8, 128, 129])
def test_ids_are_distinct_and_in_range_whatever_the_logits(experts):
    rows = logits(experts=experts)[:8]
    rows[0], rows[1, 2], rows[2], rows[3, :2], rows[4], rows[5], rows[6] = (
        torch.nan, torch.nan, torch.inf, torch.inf, -torch.inf, 1.0, -0.0)
    for score in ("softmax", "sigmoid"):
        ids, weights = megamoe.route(rows, 4, score=score)
        assert ids.ge(0).all() and ids.lt(experts).all()
        assert all(len(set(row)) == 4 for row in ids.tolist())
        assert torch.equal(weights[7], megamoe.route(rows[7:], 4, score=score)[1][0])


def test_weights_that_are_not_finite_are_refused_by_the_layer(context):
    layer = context.layer(intermediate=64)
    x = torch.zeros(1, 64, dtype=torch.bfloat16, device=layer.device)
    experts = megamoe.MegaMoE(layer)
    ids, weights = megamoe.route(torch.full((1, 8), torch.nan, device=layer.device), 2)
    with pytest.raises(megamoe.InvalidArgumentError, match="weights at token 0, slot 0 is nan"):
        experts(x, ids, weights)


@pytest.mark.parametrize("options, said", [
    ({"score": "relu"}, "score is 'relu', expected one of 'softmax', 'sigmoid', 'topk_softmax'"),
    ({"top_k": 13}, "top_k is 13, expected 1 .. 12, the number of experts"),
    ({"groups": 5}, "groups is 5, expected a divisor of the 12 experts"),
    ({"groups": 4}, "limited_groups is None, expected 1 .. 4, the number of groups"),
    ({"groups": 6, "limited_groups": 1}, "top_k is 3, expected at most the 2 experts of 1 groups"),
    ({"groups": 4, "limited_groups": 2, "group_score": "mean"}, "group_score is 'mean', expected 'top1' or 'top2'"),
])
def test_options_that_mean_nothing(options, said):
    with pytest.raises(ValueError, match=said):
        megamoe.route(logits(), **{"top_k": TOP_K} | options)
    with pytest.raises(ValueError, match=said):
        Router(16, EXPERTS, **{"top_k": TOP_K} | options)


def test_the_module():
    """Products in fp32 whatever the dtypes and under autocast; the bias is no parameter."""
    torch.manual_seed(0)
    router = Router(16, EXPERTS, TOP_K, selection_bias=True, score="sigmoid", normalise=True, dtype=torch.bfloat16)
    router.bias += torch.linspace(0, 1, EXPERTS)
    x = torch.randn(2, 5, 16).to(torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ids, weights = router(x)
    exact = x.float() @ router.gate.weight.float().t()
    expected = megamoe.route(exact, TOP_K, score="sigmoid", normalise=True, bias=router.bias)
    assert torch.equal(ids, expected[0]) and torch.equal(weights, expected[1]) and weights.dtype == torch.float32
    assert torch.equal(router(x, ids=ids)[1], weights)
    assert [name for name, _ in router.named_parameters()] == ["gate.weight"]
    weights.sum().backward()
    assert router.gate.weight.grad.isfinite().all()
