"""megamoe's router against those of Hugging Face Transformers themselves, which return what the experts are called with."""

import megamoe
import pytest
import torch

transformers = pytest.importorskip("transformers", reason="not run: Transformers is not installed")

TOKENS, WIDE, EXPERTS, TOP_K = 40, 32, 12, 3
SIZES = {"hidden_size": WIDE, "num_experts_per_tok": TOP_K}


def qwen3_moe(**options):
    from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeTopKRouter
    return Qwen3MoeTopKRouter(transformers.Qwen3MoeConfig(num_experts=EXPERTS, **SIZES, **options))


def deepseek_v3(**options):
    from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3TopkRouter
    return DeepseekV3TopkRouter(transformers.DeepseekV3Config(n_routed_experts=EXPERTS, **SIZES, **options))


def deepseek_v2(**options):
    from transformers.models.deepseek_v2.modeling_deepseek_v2 import DeepseekV2TopkRouter
    return DeepseekV2TopkRouter(transformers.DeepseekV2Config(n_routed_experts=EXPERTS, **SIZES, **options))


@pytest.mark.parametrize(("router", "theirs", "ours"), [
    (qwen3_moe, {"norm_topk_prob": True}, {"normalise": True}),
    (qwen3_moe, {"norm_topk_prob": False}, {}),
    (deepseek_v3, {"n_group": 4, "topk_group": 2, "norm_topk_prob": True, "routed_scaling_factor": 2.5},
     {"score": "sigmoid", "groups": 4, "limited_groups": 2, "normalise": True, "scale": 2.5}),
    (deepseek_v2, {"topk_method": "greedy", "routed_scaling_factor": 16.0}, {"scale": 16.0}),
    (deepseek_v2, {"topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 2, "routed_scaling_factor": 1.0},
     {"groups": 4, "limited_groups": 2, "group_score": "top1"}),
])
def test_the_routers_of_transformers(router, theirs, ours):
    random = torch.Generator().manual_seed(0)
    module = router(**theirs)
    with torch.no_grad():
        module.weight.copy_(torch.randn(EXPERTS, WIDE, generator=random))
    bias = getattr(module, "e_score_correction_bias", None)
    if bias is not None:
        bias.copy_(0.3 * torch.randn(EXPERTS, generator=random))
    x = torch.randn(TOKENS, WIDE, generator=random)
    _, weights, ids = module(x)
    made = megamoe.Router(WIDE, EXPERTS, TOP_K, selection_bias=bias is not None, **ours)
    made.load_state_dict({"gate.weight": module.weight} | ({} if bias is None else {"bias": bias}))
    chosen, given = made(x)
    expected = torch.zeros(TOKENS, EXPERTS).scatter(-1, ids, weights)
    result = torch.zeros(TOKENS, EXPERTS).scatter(-1, chosen, given)
    assert torch.equal(result != 0, expected != 0)
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=0)
    factor = torch.randn(TOKENS, EXPERTS, generator=random)
    (expected * factor).sum().backward()
    (result * factor).sum().backward()
    torch.testing.assert_close(made.gate.weight.grad, module.weight.grad, rtol=1e-4, atol=1e-6)
