"""The plug for prime-rl, on the two forms of its interface rebuilt in interfaces/: the package itself can't be installed
with less than its inference engine.
"""

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

pydantic = pytest.importorskip("pydantic", reason="not run: pydantic is not installed")
prime_rl = pytest.importorskip("megamoe.plugs.prime_rl")

TOKENS = 24
SIZES = (HIDDEN, INTERMEDIATE, EXPERTS)


def trainer_of(form, **options):
    """prime-rl in one of its forms with the plug installed: its modules, and the names that differ."""
    configs, moe, model = (importlib.import_module(f"prime_rl.{name}") for name in
                           ("configs.trainer", "trainer.models.layers.moe", "trainer.model"))
    assert prime_rl.install(**options) == form
    return SimpleNamespace(configs=configs, moe=moe, model=model)


@pytest.fixture
def dispatch():
    with imported_from("prime_rl_dispatch", "prime_rl", "prime_rl"):
        yield trainer_of("dispatch")


@pytest.fixture
def flat():
    with imported_from("prime_rl_flat", "prime_rl", "prime_rl"):
        yield trainer_of("flat", **cases.SET_UP)


def config_of(trainer, **dispatch):
    """A ModelConfig of the form with a dispatch table."""
    return trainer.configs.ModelConfig(
        seq_len=2 * TOKENS, moe={"dispatch": {"type": "megamoe", **dispatch}})


def load(experts, given):
    """The weights of a problem in an experts module; {name: parameter} in the order of weights."""
    if hasattr(experts, "w1"):
        values = {"w1": given.gate, "w3": given.up, "w2": given.down}
    elif experts.gate_up_proj is not None:
        values = {"gate_up_proj": cases.stacked(given), "down_proj": given.down}
    else:
        values = {"gate_proj": given.gate, "up_proj": given.up, "down_proj": given.down}
    for name, value in values.items():
        setattr(experts, name, nn.Parameter(value.clone()))


def weights_of(moe):
    experts = moe.experts
    if hasattr(experts, "w1"):
        return {"gate": experts.w1, "up": experts.w3, "down": experts.w2}
    if experts.gate_up_proj is not None:
        return {"gate_up": experts.gate_up_proj, "down": experts.down_proj}
    return {"gate": experts.gate_proj, "up": experts.up_proj, "down": experts.down_proj}


def moe_of(trainer, given, shared=None, score_before_experts=False, **options):
    experts = trainer.moe.GroupedExperts(*SIZES, **options)
    load(experts, given)
    return trainer.moe.MoE(experts, TOP_K, shared, score_before_experts)


def results_of(moe, given):
    def run(x, ids, scores):
        moe.router.given = (ids, scores)
        return moe(x.view(1, *x.shape))

    results = cases.results_of(run, given, weights_of(moe))
    return cases.split(results) if "dgate_up" in results else results


def test_install_twice_is_install_once(dispatch):
    wrapped_once = dispatch.model.configure_moe_runtime
    assert prime_rl.install() == "dispatch" and dispatch.model.configure_moe_runtime is wrapped_once


def test_the_trainers_module_runs_after_install(tmp_path, monkeypatch, capsys):
    """What `python -m megamoe.plugs.prime_rl MODULE ARGUMENT` does."""
    (tmp_path / "train.py").write_text(
        "import sys\nfrom prime_rl.configs.trainer import ModelConfig\n"
        "dispatch = {'type': 'megamoe'}\n"
        "print(__name__, *sys.argv[1:], ModelConfig(moe={'dispatch': dispatch}).moe.dispatch.type)\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("sys.argv", ["prime_rl", "train", "@", "sft.toml"])
    with imported_from("prime_rl_dispatch", "prime_rl", "prime_rl"):
        prime_rl.main()
    assert capsys.readouterr().out == "__main__ @ sft.toml megamoe\n"
    monkeypatch.setattr("sys.argv", ["prime_rl"])
    with pytest.raises(SystemExit, match="usage: python -m megamoe.plugs.prime_rl MODULE"):
        prime_rl.main()


def test_the_dispatch_config(dispatch):
    """It is read in every config that holds the table, and what others are read as is unchanged."""
    ours = {"moe": {"dispatch": {"type": "megamoe", "keep": "rows", "max_tokens_per_rank": 7}}, "ep": 2}
    for config in (dispatch.configs.TrainerConfig, dispatch.configs.SFTConfig):
        read = config.model_validate({"model": ours}).model.moe.dispatch
        assert (read.type, read.keep, read.max_tokens_per_rank, read.fallback) == ("megamoe", "rows", 7, False)
        assert config.model_validate({"model": {"moe": {"dispatch": {"type": "deepep"}}}}).model.moe.dispatch.num_sms == 20
        assert config().model.moe.dispatch.type == "torch"
        assert config.model_validate_json(config.model_validate({"model": ours}).model_dump_json()).model.ep == 2
        for wrong in ({"type": "mega_moe"}, {"type": "megamoe", "keep": "all"}, {"type": "torch", "keep": "rows"}):
            with pytest.raises(pydantic.ValidationError, match="dispatch"):
                config.model_validate({"model": {"moe": {"dispatch": wrong}}})


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_a_moe_is_the_op(dispatch, fused, shared, context):
    given = cases.problem(TOKENS)
    extra = nn.Linear(HIDDEN, HIDDEN, bias=False, dtype=torch.bfloat16, device=device_of()) if shared else None
    model = nn.ModuleDict({"mlp": moe_of(dispatch, given, extra, fused=fused)})
    layout = {name: value.shape for name, value in model.state_dict().items()}
    dispatch.model.setup_model(model, config_of(dispatch), cases.ParallelDims())
    assert {name: value.shape for name, value in model.state_dict().items()} == layout
    results, exact = results_of(model["mlp"], given), reference.expected(given)
    if not shared:
        cases.assert_is_op(results, given, context)
    else:
        exact["y"] = exact["y"] + given.x.cpu().double() @ extra.weight.detach().cpu().double().t()
        exact["dx"] = exact["dx"] + given.dy.cpu().double() @ extra.weight.detach().cpu().double()
        cases.assert_near(results, exact)


def test_replayed_ids_of_padding(dispatch):
    """Rows of zeros name expert 0 in every slot: all of its rows are one expert's, and count."""
    given = cases.problem(TOKENS)
    given.ids[4:] = 0
    moe = moe_of(dispatch, given)
    dispatch.model.setup_model(moe, config_of(dispatch), cases.ParallelDims())
    cases.assert_is_formula(results_of(moe, given), given)


@pytest.mark.skipif(device_of().type == "cuda", reason="the CUDA backend weighs outputs, and is refused there")
def test_scores_before_experts(dispatch):
    given = cases.problem(TOKENS)
    moe = moe_of(dispatch, given, score_before_experts=True)
    dispatch.model.setup_model(moe, config_of(dispatch), cases.ParallelDims())
    cases.assert_is_formula(results_of(moe, given), given, weight_on="input")
    moe.score_before_experts = False
    with pytest.raises(ValueError, match="score_before_experts is False, expected True as at set-up"):
        results_of(moe, given)


def test_scores_before_experts_where_the_backend_has_none(dispatch, monkeypatch):
    monkeypatch.setattr("megamoe.plugs._setup.unsupported_reason", lambda **_: "weight_on is 1 (the expert's input)")
    moe = moe_of(dispatch, cases.problem(TOKENS), score_before_experts=True)
    with pytest.raises(megamoe.UnsupportedError, match="mlp: score_before_experts: weight_on is 1"):
        dispatch.model.setup_model(nn.ModuleDict({"mlp": moe}), config_of(dispatch), cases.ParallelDims())


def test_a_clipped_activation(dispatch):
    class Clipped:
        @staticmethod
        def apply(gate, up):
            return nn.functional.silu(gate.clamp(max=10)) * up.clamp(-10, 10)

    assert prime_rl.describe(moe_of(dispatch, cases.problem(TOKENS), activation=Clipped)).limit == 10.0


def adapted(trainer):
    moe = moe_of(trainer, cases.problem(TOKENS))
    moe.experts.base_layer = nn.Identity()
    return moe


@pytest.mark.parametrize(("change", "sentence"), [
    (lambda t: moe_of(t, cases.problem(TOKENS), bias=True), r"biases \(up_proj_bias\), expected none"),
    (lambda t: moe_of(t, cases.problem(TOKENS), activation=t.moe.Relu2), "activation is Relu2, expected h = silu"),
    (lambda t: t.moe.MoE(t.moe.GroupedExperts(*SIZES, expert_type="non_gated"), TOP_K), "has no gate"),
    (adapted, "LoRA on the experts"),
])
def test_refusals_name_the_option(dispatch, change, sentence):
    model = nn.ModuleDict({"good": moe_of(dispatch, cases.problem(TOKENS)), "mlp": change(dispatch)})
    with pytest.raises(megamoe.UnsupportedError, match=f"^mlp: .*{sentence}"):
        dispatch.model.setup_model(model, config_of(dispatch), cases.ParallelDims())


@pytest.mark.parametrize(("changes", "sentence"), [
    ({"compute": {"type": "mxfp8"}}, "model.moe.compute.type is 'mxfp8', expected 'bf16'"),
    ({"compute": {"type": "bf16", "backend": "sonicmoe"}}, "model.moe.compute.backend is 'sonicmoe', expected 'torch'"),
    ({"dispatch": {"type": "megamoe", "transport": "mxfp8"}}, "model.moe.dispatch.transport is 'mxfp8'"),
])
def test_configs_that_are_refused(dispatch, changes, sentence):
    config = dispatch.configs.ModelConfig(moe={"dispatch": {"type": "megamoe"}, **changes})
    with pytest.raises(megamoe.UnsupportedError, match=sentence):
        dispatch.model.setup_model(moe_of(dispatch, cases.problem(TOKENS)), config, cases.ParallelDims())


def test_lora_on_experts_in_the_config(dispatch):
    config = config_of(dispatch).model_copy(update={"lora": dispatch.configs.LoRAConfig(target_modules=["experts"])})
    with pytest.raises(megamoe.UnsupportedError, match="model.lora.target_modules has 'experts'"):
        dispatch.model.setup_model(moe_of(dispatch, cases.problem(TOKENS)), config, cases.ParallelDims())


def test_fallback_by_layer(dispatch):
    """The layer that is left computes as it did, the other one with the op."""
    given = cases.problem(TOKENS)
    model = nn.ModuleList([moe_of(dispatch, given), moe_of(dispatch, given, activation=dispatch.moe.Relu2)])
    before = results_of(model[1], given)
    with pytest.warns(UserWarning, match="leaves these layers to the trainer's own experts: 1: activation is Relu2"):
        dispatch.model.setup_model(model, config_of(dispatch, fallback=True), cases.ParallelDims())
    cases.assert_same_bits(results_of(model[1], given), before)
    cases.assert_is_formula(results_of(model[0], given), given)


def test_other_dispatches_are_left_alone(dispatch):
    given = cases.problem(TOKENS)
    moe = moe_of(dispatch, given)
    before = results_of(moe, given)
    dispatch.model.setup_model(moe, dispatch.configs.ModelConfig(), cases.ParallelDims())
    cases.assert_same_bits(results_of(moe, given), before)


def test_a_whole_graph(dispatch):
    """torch.compile takes a MoE in one graph, and no other count of rows of an expert makes another."""
    given = cases.problem(TOKENS)
    moe = moe_of(dispatch, given)
    dispatch.model.setup_model(moe, config_of(dispatch), cases.ParallelDims())
    expected = results_of(moe, given)
    traced = []

    def backend(graph, _):
        traced.append(graph)
        return graph.forward

    torch._dynamo.reset()
    compiled = torch.compile(lambda x, ids, scores: moe.token_dispatcher.run(
        x, scores, ids, moe.experts, score_before_experts=False), backend=backend, fullgraph=True)
    for seed in (1, 2):
        given = cases.problem(TOKENS, seed=seed)
        results = cases.results_of(compiled, given, weights_of(moe))
        if seed == 1:
            cases.assert_same_bits(results, expected)
    assert len(traced) == 1


def test_the_flat_config(flat):
    read = flat.configs.TrainerConfig.model_validate({"model": {"ep": 2, "ep_comm_backend": "megamoe"}}).model
    assert read.ep_comm_backend == "megamoe" and flat.configs.ModelConfig().ep_comm_backend == "torch"
    with pytest.raises(pydantic.ValidationError, match="requires model.ep > 1"):
        flat.configs.ModelConfig(ep_comm_backend="megamoe")
    with pytest.raises(pydantic.ValidationError, match="ep_comm_backend"):
        flat.configs.ModelConfig(ep=2, ep_comm_backend="mega_moe")


@pytest.mark.parametrize(("change", "sentence"), [
    (lambda t: t.moe.NonGatedGroupedExperts(*SIZES), "NonGatedGroupedExperts has no gate"),
    (lambda t: t.moe.GptOssGroupedExperts(*SIZES), "GptOssGroupedExperts has interleaved gate_up_proj"),
    (lambda t: t.moe.MultiLoRAGroupedExperts(t.moe.GroupedExperts(*SIZES)), "LoRA on the experts"),
    (lambda t: t.moe.GroupedExperts(*SIZES, fp8=True), "quantization is fp8, expected experts in bf16"),
])
def test_flat_refusals_name_the_option(flat, change, sentence):
    model = nn.ModuleDict({"mlp": flat.moe.MoE(change(flat), TOP_K)})
    with pytest.raises(megamoe.UnsupportedError, match=f"^mlp: .*{sentence}"):
        prime_rl.attach(model, cases.ParallelDims(), **cases.SET_UP)


def test_flat_configs_that_are_refused(flat):
    config = flat.configs.ModelConfig(ep=2, ep_comm_backend="megamoe", quantization={})
    with pytest.raises(megamoe.UnsupportedError, match="model.quantization.enable_grouped_gemm is true"):
        prime_rl.after_apply_ep({}, nn.Identity(), config, cases.ParallelDims())
    with pytest.raises(megamoe.UnsupportedError, match="fallback is true, expected false"):
        prime_rl.after_apply_ep({"fallback": True}, nn.Identity(), config.model_copy(update={"quantization": None}),
                                cases.ParallelDims())


def wrapped(moe, mesh):
    """The experts as an FSDP unit of their own, as prime-rl makes them: fp32 weights, bf16 in forward and backward."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    for name, weight in list(moe.experts.named_parameters(recurse=False)):
        moe.experts.register_parameter(name, nn.Parameter(weight.detach().float()))
    fully_shard(moe.experts, mesh=mesh, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))


def two_ranks(rank, form, under_fsdp):
    """Experts over two ranks, two such groups, compute what one rank alone does, bit by bit."""
    mesh = cases.mesh_of(2)
    dims, ep_rank = cases.ParallelDims(mesh["ep"]), mesh["ep"].get_local_rank()
    whole = cases.problem(2 * TOKENS, rank=rank)
    with imported_from(f"prime_rl_{form}", "prime_rl", "prime_rl"):
        trainer = trainer_of(form)
        shared = moe_of(trainer, whole)
        if form == "dispatch":
            config = config_of(trainer)
            config.ep = 2
            alone = moe_of(trainer, whole)
            trainer.model.setup_model(alone, config_of(trainer), cases.ParallelDims())
        else:
            config = trainer.configs.ModelConfig(ep=2, ep_comm_backend="megamoe", seq_len=2 * TOKENS)
            alone = moe_of(trainer, whole)
            prime_rl.attach(alone, cases.ParallelDims(), **cases.SET_UP)
        trainer.model.setup_model(shared, config, dims)
        one = results_of(alone, whole)
        if under_fsdp:
            wrapped(shared, mesh["dp"])
        two = results_of(shared, cases.part_of(whole, ep_rank, TOKENS))
    if under_fsdp:
        two = {name: full_over_dp(value, mesh["dp"]) for name, value in two.items()}
        two = {name: value.to(one[name].dtype) for name, value in two.items()}
    cases.assert_part_is(two, one, ep_rank, 2, TOKENS)


def full_over_dp(value, mesh):
    """A gradient that FSDP has scattered over a mesh, whole again: this rank's experts."""
    if not hasattr(value, "to_local"):
        return value
    parts = [torch.empty_like(value.to_local()) for _ in range(mesh.size())]
    torch.distributed.all_gather(parts, value.to_local().contiguous(), group=mesh.get_group())
    return torch.cat(parts)


@cases.over_two_ranks
@pytest.mark.parametrize(("form", "under_fsdp"), [("dispatch", False), ("dispatch", True), ("flat", False)])
def test_experts_over_two_ranks(processes, form, under_fsdp):
    processes.run(two_ranks, form, under_fsdp)
