"""The plug for Megatron Core, on its interface as rebuilt in interfaces/: released versions have no megakernel backends."""

import importlib
from types import SimpleNamespace

import cases
import megamoe
import pytest
import reference
import torch
from rebuilt import imported_from
from setting import EXPERTS, HIDDEN, INTERMEDIATE, TOP_K, device_of
from torch import nn

PLUG = "megamoe.plugs.megatron"
TOKENS = 24


def megatron(**options):
    """The modules of Megatron that the plug meets, with it installed, and the plug."""
    moe = "megatron.core.transformer.moe"
    names = {"layer": f"{moe}.moe_layer", "factory": f"{moe}.megakernel.factory", "plug": PLUG}
    found = SimpleNamespace(**{name: importlib.import_module(module) for name, module in names.items()})
    found.plug.install(**cases.SET_UP, **options)
    return found


@pytest.fixture
def trainer():
    with imported_from("megatron", "megatron", PLUG):
        yield megatron(device=device_of())


def config_of(**changes):
    """The options of a TransformerConfig that the plug looks at."""
    return SimpleNamespace(**{
        "moe_megakernel_backend": "megamoe", "hidden_size": HIDDEN, "moe_ffn_hidden_size": INTERMEDIATE,
        "num_moe_experts": EXPERTS, "moe_router_topk": TOP_K, "gated_linear_unit": True,
        "activation_func": nn.functional.silu, "activation_func_clamp_value": None, "add_bias_linear": False,
        "moe_mlp_glu_interleave_size": None, "moe_pad_expert_input_to_capacity": False, "moe_latent_size": None,
        "fp8": None, "fp4": None, "moe_apply_probs_on_input": False, "expert_tensor_parallel_size": 1,
        "moe_router_padding_for_quantization": False, "glu_linear_offset": 0.0, "moe_single_grouped_weight": True,
        "moe_shared_expert_intermediate_size": None, **changes})


def problem(tokens, rank=0):
    """Experts of a token are distinct, as on a map of Megatron's; every third token has one less."""
    given = cases.problem(tokens, rank=rank)
    given.ids[:, 1] = (given.ids[:, 0] + 1 + given.ids[:, 1] % (EXPERTS - 1)) % EXPERTS
    given.ids[::3, 1] = -1
    return given


def load(experts, given):
    """The weights of a problem, of as many experts as it has; the parameters of both linears."""
    parameters = []
    for linear, value in ((experts.linear_fc1, cases.stacked(given)), (experts.linear_fc2, given.down)):
        names = ["weight"] if linear.single_grouped_weight else [f"weight{expert}" for expert in range(len(value))]
        for name, part in zip(names, [value] if linear.single_grouped_weight else value):
            weight = getattr(linear, name)
            weight.data = part.clone()
            parameters.append(weight)
    return parameters


def dense(ids, scores):
    """Megatron's probs and routing map [T, E]."""
    used = ids >= 0
    places = torch.zeros(ids.shape[0], EXPERTS, device=ids.device)
    probs = places.scatter(1, ids.clamp(min=0), scores * used) + 0 * scores.sum()
    return probs, places.scatter_add(1, ids.clamp(min=0), used.float()).bool()


def results_of(layer, given):
    """Results with the gradients of all experts' weights put together."""
    parameters = {f"{index}": parameter for index, parameter in enumerate(layer.experts.parameters())}

    def run(x, ids, scores):
        layer.route = lambda _: dense(ids, scores)
        return layer(x.view(-1, 2, HIDDEN))[0]

    results = cases.results_of(run, given, parameters)
    grads = [results.pop(f"d{name}") for name in parameters]
    half = len(grads) // 2
    whole = [each[0] if each[0].dim() == 3 else torch.stack(each) for each in (grads[:half], grads[half:])]
    return cases.split(results | {"dgate_up": whole[0], "ddown": whole[1]})


def layer_of(trainer, given, ep_group=None, **changes):
    layer = trainer.layer.MoELayer(config_of(**changes), ep_group, len(given.gate)).to(given.x.device)
    load(layer.experts, given)
    return layer


@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize("shared", [None, INTERMEDIATE])
def test_a_layer_is_the_op(trainer, single, shared, context):
    given = problem(TOKENS)
    layer = layer_of(trainer, given, moe_single_grouped_weight=single, moe_shared_expert_intermediate_size=shared)
    results, exact = results_of(layer, given), reference.expected(given)
    if not shared:
        cases.assert_is_op(results, given, context)
    else:
        weight = layer.shared_experts.weight.detach().cpu().double()
        exact["y"] = exact["y"] + given.x.cpu().double() @ weight.t()
        exact["dx"] = exact["dx"] + given.dy.cpu().double() @ weight
        cases.assert_near(results, exact)


def test_parameters_and_checkpoints_are_megatrons(trainer):
    layer = layer_of(trainer, problem(TOKENS), moe_shared_expert_intermediate_size=INTERMEDIATE)
    names = ["experts.linear_fc1.weight", "experts.linear_fc2.weight", "shared_experts.weight"]
    assert list(layer.state_dict()) == names and [name for name, _ in layer.named_parameters()] == names
    assert layer.load_state_dict(layer.state_dict()).missing_keys == []
    backend = layer.megakernel_experts
    assert backend.sharded_state_dict() == {}
    assert [name for name, _ in backend.named_parameters()] == ["linear_fc1_weight", "linear_fc2_weight"]
    assert backend.linear_fc1_weight is layer.experts.linear_fc1.weight


def test_a_map_becomes_ids_and_weights(trainer):
    probs = torch.tensor([[0.0, 0.5, 0.0, 0.25], [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]], requires_grad=True)
    on_map = torch.tensor([[False, True, False, True], [False, False, True, False], [False] * 4])
    ids, weights = trainer.plug.compact(probs, on_map, 2)
    assert ids.tolist() == [[1, 3], [2, -1], [-1, -1]] and weights.tolist() == [[0.5, 0.25], [1.0, 0.0], [0.0, 0.0]]
    (weights * torch.tensor([2.0, 3.0])).sum().backward()
    assert probs.grad.tolist() == [[0, 2, 0, 3], [0, 0, 2, 0], [0, 0, 0, 0]]


def test_a_clipped_activation(trainer):
    assert trainer.plug.describe(config_of(activation_func_clamp_value=7.0), nn.Identity()).limit == 7.0


@pytest.mark.parametrize(("changes", "sentence"), [
    ({"add_bias_linear": True}, "add_bias_linear is True, expected it off"),
    ({"moe_mlp_glu_interleave_size": 32}, "moe_mlp_glu_interleave_size is 32"),
    ({"moe_pad_expert_input_to_capacity": True}, "moe_pad_expert_input_to_capacity is True"),
    ({"moe_latent_size": 16}, "moe_latent_size is 16"),
    ({"fp8": "hybrid"}, "fp8 is 'hybrid'"),
    ({"gated_linear_unit": False}, "gated_linear_unit is False, expected True"),
    ({"activation_func": nn.functional.gelu}, "activation_func is gelu, expected silu"),
    ({"glu_linear_offset": 1.0}, "glu_linear_offset is 1.0"),
    ({"expert_tensor_parallel_size": 2}, "expert_tensor_parallel_size is 2, expected 1"),
])
def test_refusals_name_the_option(trainer, changes, sentence):
    with pytest.raises(megamoe.UnsupportedError, match=f"^MoE layer: .*{sentence}"):
        layer_of(trainer, problem(TOKENS), **changes)


def test_other_backends_are_megatrons(trainer):
    trainer.plug.install(**cases.SET_UP)
    with pytest.raises(ValueError, match="Unsupported MoE megakernel backend: 'mok'"):
        layer_of(trainer, problem(TOKENS), moe_megakernel_backend="mok")
    with pytest.raises(megamoe.UnsupportedError, match="the experts are Identity, expected grouped linears"):
        trainer.factory.build_megakernel_backend(config=config_of(), ep_group=None, routed_experts=nn.Identity(),
                                                 shared_experts=None, num_local_experts=EXPERTS)


def two_ranks(rank):
    """Experts over two ranks compute what one rank alone does, bit by bit."""
    mesh = cases.mesh_of(2)["ep"]
    whole, ep_rank = problem(2 * TOKENS, rank=rank), mesh.get_local_rank()
    own = slice(ep_rank * EXPERTS // 2, (ep_rank + 1) * EXPERTS // 2)
    mine = cases.part_of(whole, ep_rank, TOKENS)
    mine.gate, mine.up, mine.down = (each[own] for each in (whole.gate, whole.up, whole.down))
    with imported_from("megatron", "megatron", PLUG):
        trainer = megatron(device=device_of(rank))
        one = results_of(layer_of(trainer, whole), whole)
        two = results_of(layer_of(trainer, mine, mesh.get_group()), mine)
    cases.assert_part_is(two, one, ep_rank, 2, TOKENS)


@cases.over_two_ranks
def test_experts_over_two_ranks(processes):
    processes.run(two_ranks)
