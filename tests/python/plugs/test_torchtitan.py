"""The plug for torchtitan: on the package where torchtitan 0.3 can be imported, which takes Triton too, and always on its
interface as rebuilt in interfaces/.
"""

import importlib
import inspect
from dataclasses import dataclass
from types import SimpleNamespace

import cases
import megamoe
import pytest
from rebuilt import forget, imported_from
from setting import EXPERTS, HIDDEN, INTERMEDIATE, TOP_K, device_of
from torch import nn
from torch.distributed.tensor import Shard, distribute_tensor

PLUG = "megamoe.plugs.torchtitan"
TOKENS = 24


def titan():
    """The modules of torchtitan that are importable now, and the plug on them."""
    names = {"moe": "torchtitan.models.common.moe", "dispatchers": "torchtitan.models.common.token_dispatcher",
             "override": "torchtitan.config.override", "module": "torchtitan.protocols.module", "plug": PLUG}
    return SimpleNamespace(**{name: importlib.import_module(module) for name, module in names.items()})


@pytest.fixture(scope="module", params=["rebuilt", "package"])
def trainer(request):
    if request.param == "rebuilt":
        with imported_from("torchtitan", "torchtitan", PLUG):
            yield titan()
        return
    forget(PLUG)
    try:
        found = titan()
    except ImportError as error:
        pytest.skip(f"not run on the package: {error}")
    yield found
    found.override.clear_overrides()
    forget(PLUG)


def config_of(trainer, experts=None, dispatcher=None):
    experts = experts or trainer.moe.GroupedExperts.Config(dim=HIDDEN, hidden_dim=INTERMEDIATE, num_experts=EXPERTS)
    dispatcher = dispatcher or trainer.dispatchers.LocalTokenDispatcher.Config(num_experts=EXPERTS, top_k=TOP_K)
    return trainer.moe.RoutedExperts.Config(inner_experts=experts, token_dispatcher=dispatcher)


def overridden(trainer, config, **options):
    """The config after --override.imports of the plug's name."""

    @dataclass(kw_only=True, slots=True)
    class Root(trainer.module.Module.Config):
        routed_experts: object

    root = Root(routed_experts=config)
    trainer.override.apply_overrides(trainer.override.OverrideConfig(imports=[(f"{PLUG}.routed_experts", options)]), root)
    return root.routed_experts


def module_of(trainer, given, **options):
    """Routed experts that hold a problem's weights, before they are parallelized."""
    module = overridden(trainer, config_of(trainer), **{"device": device_of(), **cases.SET_UP, **options}).build()
    for name, value in zip(("w1_EFD", "w3_EFD", "w2_EDF"), (given.gate, given.up, given.down)):
        setattr(module.inner_experts, name, nn.Parameter(value.clone()))
    return module


def results_of(module, given, leading=()):
    inner = module.inner_experts

    def run(x, ids, scores):
        return module(*(each.view(*leading, *each.shape) for each in (x, scores, ids)), None)

    return cases.results_of(run, given, {"gate": inner.w1_EFD, "up": inner.w3_EFD, "down": inner.w2_EDF})


@pytest.mark.parametrize("leading", [(), (1,)])
def test_routed_experts_are_the_op(trainer, leading, context):
    """With [T, D] as at its head, and [B, L, D] as in 0.3.0."""
    given = cases.problem(TOKENS)
    module = module_of(trainer, given)
    module.parallelize(cases.ParallelDims())
    cases.assert_is_op(results_of(module, given, leading), given, context)


def test_what_torchtitan_sees_is_unchanged(trainer):
    config = config_of(trainer)
    config.sharding_config = None
    ours, stock = overridden(trainer, config, max_tokens=8), config
    assert isinstance(ours, trainer.moe.RoutedExperts.Config)
    assert (ours.inner_experts, ours.token_dispatcher) == (stock.inner_experts, stock.token_dispatcher)
    shapes = [{name: value.shape for name, value in each.build().state_dict().items()} for each in (ours, stock)]
    assert shapes[0] == shapes[1]
    assert inspect.signature(type(ours.build()).forward) == inspect.signature(trainer.moe.RoutedExperts.forward)


def test_max_tokens(trainer):
    with pytest.raises(ValueError, match="max_tokens is not given, expected the most tokens of a rank"):
        overridden(trainer, config_of(trainer))
    dispatcher = trainer.dispatchers.MinimalAsyncEPTokenDispatcher.Config(num_experts=EXPERTS, top_k=TOP_K,
                                                                          num_max_tokens_per_rank=77)
    assert overridden(trainer, config_of(trainer, dispatcher=dispatcher)).max_tokens == 77


def test_refusals_name_the_option(trainer):
    @dataclass(kw_only=True, slots=True)
    class QuantizedConfig(trainer.moe.GroupedExperts.Config):
        pass

    quantized = QuantizedConfig(dim=HIDDEN, hidden_dim=INTERMEDIATE, num_experts=EXPERTS)
    padded = trainer.dispatchers.TorchAOTokenDispatcher.Config(num_experts=EXPERTS, top_k=TOP_K, pad_multiple=16)
    for config, sentence in ((config_of(trainer, experts=quantized), "inner_experts is .*QuantizedConfig, expected"),
                             (config_of(trainer, dispatcher=padded), "pad_multiple is 16: rows are padded")):
        with pytest.raises(megamoe.UnsupportedError, match=sentence):
            overridden(trainer, config, max_tokens=8)
        with pytest.warns(UserWarning, match=f"leaves routed experts to torchtitan: {sentence}"):
            assert overridden(trainer, config, max_tokens=8, fallback=True) is config


def test_sizes_and_shards_that_do_not_fit_are_refused_at_set_up(trainer):
    given = cases.problem(TOKENS)
    module = module_of(trainer, given)
    module.inner_experts.w1_EFD = nn.Parameter(given.gate[:, : INTERMEDIATE // 2].clone())
    with pytest.raises(megamoe.UnsupportedError, match=r"w1_EFD of shape \(8, 32, 64\), expected \(8, 64, 64\)"):
        module.parallelize(cases.ParallelDims())
    with pytest.raises(RuntimeError, match="not connected, expected parallelize.parallel_dims. before forward"):
        results_of(module_of(trainer, given), given)


def test_layers_share_a_context(trainer):
    one, two = (module_of(trainer, cases.problem(TOKENS)) for _ in range(2))
    for module in (one, two):
        module.parallelize(cases.ParallelDims())
    assert one.layer is two.layer


def two_ranks(rank):
    """Experts over two ranks compute what one rank alone does, bit by bit."""
    mesh = cases.mesh_of(2)["ep"]
    whole = cases.problem(2 * TOKENS, rank=rank)
    with imported_from("torchtitan", "torchtitan", PLUG):
        trainer = titan()
        alone, shared = (module_of(trainer, whole, device=device_of(rank)) for _ in range(2))
        for name, weight in list(shared.inner_experts.named_parameters(recurse=False)):
            setattr(shared.inner_experts, name, nn.Parameter(distribute_tensor(weight.detach(), mesh, [Shard(0)])))
        alone.parallelize(cases.ParallelDims())
        shared.parallelize(cases.ParallelDims(mesh))
        one = results_of(alone, whole)
        two = results_of(shared, cases.part_of(whole, mesh.get_local_rank(), TOKENS))
    cases.assert_part_is(two, one, mesh.get_local_rank(), 2, TOKENS)


@cases.over_two_ranks
def test_experts_over_two_ranks(processes):
    processes.run(two_ranks)
