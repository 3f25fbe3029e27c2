"""The router against the trainers' formulas, rebuilt here from their public definitions, and by hand.

torchtitan and prime-rl (TokenChoiceTopKRouter) and Megatron-Core's softmax before selection are rebuilt; test_huggingface.py
has the routers of transformers themselves. Order of a token's slots is not compared: theirs is that of an unsorted topk.
"""

import megamoe
import pytest
import reference
import torch
from calls import both
from megamoe.router import Router
from setting import EXPERTS as EXPERTS_OF_LAYER
from setting import TOP_K as TOP_K_OF_LAYER
from setting import device_of

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


# Rows with which routers have gone wrong, by the values of their first logits; a single one is that of all.
BAD_ROWS = {"all NaN": [torch.nan], "one NaN": [0.5, torch.nan, 1.0], "all +Inf": [torch.inf],
            "two +Inf": [torch.inf, 0.0, torch.inf], "all -Inf": [-torch.inf]}
GOOD_ROWS = {"all equal": [1.0], "signed zeros": [0.0, -0.0, -0.0, 0.0, -0.0], "zeros": [-0.0]}


def special_rows(rows, experts, device):
    """A row of logits for each of `rows`, and one more of random ones."""
    made = logits(experts=experts)[:len(rows) + 1]
    for row, values in zip(made, rows.values()):
        row[:len(values) if len(values) > 1 else experts] = torch.tensor(values)
    return made.to(device)


SCORED = [{"score": "softmax"}, {"score": "sigmoid"}, {"score": "topk_softmax"},
          {"score": "softmax", "normalise": True}]
GROUPED = [{"groups": 4, "limited_groups": 2},
           {"groups": 4, "limited_groups": 3, "group_score": "top1", "score": "sigmoid"}]


@pytest.mark.parametrize("experts, top_k, options", [
    *((experts, top_k, options) for experts in (5, 8, 128, 129) for top_k in (1, 4, 8) if top_k <= experts
      for options in SCORED),
    *((experts, top_k, options) for experts in (8, 128) for top_k in (1, 4) for options in GROUPED)], ids=str)
@pytest.mark.filterwarnings("ignore:with top_k 1")
def test_ids_are_distinct_and_in_range_whatever_the_logits(experts, top_k, options):
    rows = special_rows(BAD_ROWS | GOOD_ROWS, experts, device_of())
    ids, weights = megamoe.route(rows, top_k, **options)
    assert ids.ge(0).all() and ids.lt(experts).all()
    assert all(len(set(row)) == top_k for row in ids.tolist())
    assert weights[len(BAD_ROWS):].isfinite().all()
    alone = megamoe.route(rows[-1:], top_k, **options)
    assert torch.equal(ids[-1], alone[0][0]) and torch.equal(weights[-1], alone[1][0])


@pytest.mark.parametrize("row", BAD_ROWS)
@pytest.mark.parametrize("score", ["softmax", "topk_softmax"])
def test_logits_that_are_no_numbers_are_told_by_the_layer(context, row, score):
    """A softmax over such a row is NaN: the call is refused, and the next one has the bits it had before."""
    layer = context.layer(intermediate=64)
    given = reference.problem(3, device=layer.device)
    expected = both(layer, given)["y"]
    ids, weights = megamoe.route(special_rows({row: BAD_ROWS[row]}, EXPERTS_OF_LAYER, layer.device), TOP_K_OF_LAYER,
                                 score=score)
    with pytest.raises(megamoe.InvalidArgumentError, match=r"weights at token 0, slot \d is -?nan, expected a finite"):
        megamoe.moe(given.x[:2], ids, weights, given.gate, given.up, given.down, layer=layer)
    assert torch.equal(both(layer, given)["y"], expected)


def exact_route(logits, top_k, score, normalise):
    """The weights in float64, of experts found by sorting."""
    scores = logits.sigmoid() if score == "sigmoid" else logits.softmax(dim=-1)
    weights = scores.gather(-1, logits.argsort(dim=-1, descending=True)[:, :top_k])
    return weights / weights.sum(dim=-1, keepdim=True) if normalise or score == "topk_softmax" else weights


@pytest.mark.parametrize("top_k", [1, 2, EXPERTS])
@pytest.mark.parametrize("score, normalise", [("softmax", False), ("softmax", True), ("sigmoid", False),
                                              ("sigmoid", True), ("topk_softmax", False)])
@pytest.mark.filterwarnings("ignore:with top_k 1")
def test_weights_and_gradients_are_those_of_the_formula(top_k, score, normalise):
    """In float64, and the gradients by its differences."""
    given = logits()[:4]
    ours, factor = given.clone().requires_grad_(), logits(seed=1)[:4, :top_k]
    ids, weights = megamoe.route(ours, top_k, score=score, normalise=normalise)
    exact = exact_route(given.double(), top_k, score, normalise)
    assert torch.equal(ids, given.argsort(dim=-1, descending=True)[:, :top_k])
    torch.testing.assert_close(weights.double(), exact, rtol=1e-6, atol=1e-7)
    (weights * factor).sum().backward()
    step = 1e-6 * torch.eye(EXPERTS, dtype=torch.float64)
    for token in range(4):
        moved = [(exact_route(given[token].double() + sign * step, top_k, score, normalise) * factor[token]).sum(dim=-1)
                 for sign in (1, -1)]
        torch.testing.assert_close(ours.grad[token].double(), (moved[0] - moved[1]) / 2e-6, rtol=1e-4, atol=1e-6)
    learns = top_k > 1 or not (normalise or score == "topk_softmax")
    assert (ours.grad.abs().max() > 1e-3) == learns


def test_weights_of_zero_leave_the_router_its_gradient(context):
    """Scores that a gate of zero has multiplied: the experts give nothing, and the gate still learns."""
    layer = context.layer(intermediate=64)
    given = reference.problem(6, device=layer.device, unused=0)
    gate = torch.zeros((), device=layer.device, requires_grad=True)
    ids, scores = megamoe.route(logits(experts=EXPERTS_OF_LAYER)[:6].to(layer.device), TOP_K_OF_LAYER, normalise=True)
    y = megamoe.moe(given.x, ids, gate * scores, given.gate, given.up, given.down, layer=layer)
    assert y.eq(0).all()
    y.backward(given.dy)
    assert gate.grad.isfinite() and gate.grad != 0


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
