"""The plug for Hugging Face Transformers, on the package itself: a small Qwen3-MoE model of random weights."""

import cases
import megamoe
import pytest
import torch
from setting import EXPERTS, HIDDEN, INTERMEDIATE, TOP_K, device_of

transformers = pytest.importorskip("transformers", reason="not run: Transformers is not installed")
hugging_face = pytest.importorskip("megamoe.plugs.hugging_face")
sharded = pytest.importorskip("megamoe.plugs.sharded")

TOKENS = 20


def model_of(seed=0, rank=0, **changes):
    config = transformers.Qwen3MoeConfig(
        vocab_size=64, hidden_size=HIDDEN, intermediate_size=HIDDEN, moe_intermediate_size=INTERMEDIATE,
        num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, head_dim=32, num_experts=EXPERTS,
        num_experts_per_tok=TOP_K, norm_topk_prob=True, experts_implementation="eager", **changes)
    torch.manual_seed(seed)
    model = transformers.Qwen3MoeForCausalLM(config).to(torch.bfloat16).to(device_of(rank))
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.5 / weight.shape[-1] ** 0.5 if weight.dim() > 1 else 0.1).add_(weight.dim() == 1)
    return model


def experts_of(model, index=0):
    return model.model.layers[index].mlp.experts


def weights_of(experts):
    return {"gate_up": experts.gate_up_proj, "down": experts.down_proj}


def load(experts, given):
    with torch.no_grad():
        experts.gate_up_proj.copy_(cases.stacked(given))
        experts.down_proj.copy_(given.down)


def step(model, ids):
    """Loss and gradients of one step."""
    model.zero_grad()
    loss = model(input_ids=ids, labels=ids, use_cache=False).loss
    loss.backward()
    return {"loss": loss.detach()} | {name: cases.local(weight.grad) for name, weight in model.named_parameters()}


def tokens(rank=0):
    return torch.randint(64, (1, TOKENS), generator=torch.Generator().manual_seed(rank)).to(device_of(rank))


def test_experts_are_the_op(context):
    model, given = model_of(), cases.problem()
    hugging_face.attach(model, **cases.set_up())
    experts = experts_of(model)
    load(experts, given)
    cases.assert_is_op(cases.split(cases.results_of(experts, given, weights_of(experts))), given, context)


def test_a_model_learns_as_with_eager_experts():
    """Loss and gradients of a step are those with eager experts but for the roundings of two layers."""
    ours, eager = model_of(), model_of()
    names = list(ours.state_dict())
    assert hugging_face.attach(ours, **cases.set_up()) == [f"model.layers.{index}.mlp.experts" for index in range(2)]
    assert list(ours.state_dict()) == names and ours.config._experts_implementation == "megamoe"
    ours.load_state_dict(eager.state_dict())
    mine, theirs = step(ours, tokens()), step(eager, tokens())
    cases.assert_near(mine, {name: value.double().cpu() for name, value in theirs.items()}, bound=0.03)


def test_the_name_is_known_to_from_config():
    hugging_face.register()
    model = model_of()
    model.set_experts_implementation("megamoe")
    with pytest.raises(RuntimeError, match="attach.model, .... was not called"):
        step(model, tokens())
    hugging_face.attach(model, **cases.set_up())
    assert step(model, tokens())["loss"].isfinite()


def transposed(experts):
    experts.is_transposed = True


def interleaved(experts):
    experts.is_concatenated = False


def without_gate(experts):
    experts.has_gate = False


def with_bias(experts):
    experts.down_proj_bias = torch.nn.Parameter(torch.zeros(EXPERTS, HIDDEN))


def with_gelu(experts):
    experts.act_fn = torch.nn.GELU()


def with_lora(experts):
    experts.lora_A = torch.nn.Parameter(torch.zeros(EXPERTS, 4, HIDDEN))


def under_their_parallelism(experts):
    experts._is_expert_parallel = True


@pytest.mark.parametrize(("change", "sentence"), [
    (transposed, "is_transposed is True, expected weights"),
    (interleaved, "is_concatenated is False: gate and up are interleaved"),
    (without_gate, "has_gate is False"),
    (with_bias, r"the experts have biases \(down_proj_bias\), expected none"),
    (with_gelu, "activation is GELU, expected h = silu"),
    (with_lora, "LoRA on the experts, expected LoRA on other modules only"),
    (under_their_parallelism, "under Transformers' own expert parallelism"),
])
def test_refusals_name_the_option(change, sentence):
    model = model_of()
    change(experts_of(model, 1))
    with pytest.raises(megamoe.UnsupportedError, match=f"^model.layers.1.mlp.experts: .*{sentence}"):
        hugging_face.attach(model, **cases.set_up())
    assert model.config._experts_implementation == "eager"


def test_a_gate_with_limits_is_recognised():
    experts = experts_of(model_of())
    experts.act_fn = torch.nn.SiLU()
    assert hugging_face.describe(experts).limit == 0.0

    def clipped(gate_up):
        gate, up = gate_up.chunk(2, dim=-1)
        return torch.nn.functional.silu(gate.clamp(max=7)) * up.clamp(-7, 7)

    experts._apply_gate = clipped
    assert hugging_face.describe(experts).limit == 7.0 and hugging_face.describe(experts).reason is None
    experts._apply_gate = lambda gate_up: clipped(gate_up) + gate_up.chunk(2, dim=-1)[0]
    assert "expected h = silu(gate) * up, which may be clipped" in hugging_face.describe(experts).reason


def test_fallback_by_layer():
    model, given = model_of(), cases.problem()
    with_lora(experts_of(model, 1))
    with pytest.warns(UserWarning, match="model.layers.1.mlp.experts: LoRA on the experts"):
        assert hugging_face.attach(model, fallback="eager", **cases.set_up()) == ["model.layers.0.mlp.experts"]
    other = model_of()
    for each in (experts_of(model, 0), experts_of(model, 1), experts_of(other, 1)):
        load(each, given)
    results = [cases.results_of(each, given, weights_of(each)) for each in
               (experts_of(model, 0), experts_of(model, 1), experts_of(other, 1))]
    cases.assert_is_formula(cases.split(results[0]), given)
    cases.assert_same_bits(results[1], results[2])


def test_a_model_without_experts():
    with pytest.raises(megamoe.UnsupportedError, match="Linear has no experts that Transformers can dispatch"):
        hugging_face.attach(torch.nn.Linear(2, 2), **cases.set_up())


def experts_of_a_mesh(rank):
    """Experts over two ranks compute what one rank alone does, and parameters keep their shapes."""
    mesh = cases.mesh_of(2)["ep"]
    alone, shared = model_of(rank=rank), model_of(rank=rank)
    hugging_face.attach(alone, **cases.set_up(rank))
    whole = cases.problem(2 * TOKENS, rank=rank)
    for model in (alone, shared):
        load(experts_of(model), whole)
    hugging_face.attach(shared, mesh=mesh, **cases.set_up(rank))
    shapes = [{name: value.shape for name, value in model.state_dict().items()} for model in (alone, shared)]
    assert shapes[0] == shapes[1] and cases.local(experts_of(shared).down_proj).shape[0] == EXPERTS // 2
    one = cases.results_of(experts_of(alone), whole, weights_of(experts_of(alone)))
    mine = cases.part_of(whole, mesh.get_local_rank(), TOKENS)
    two = cases.results_of(experts_of(shared), mine, weights_of(experts_of(shared)))
    cases.assert_part_is(two, one, mesh.get_local_rank(), 2, TOKENS)


@cases.over_two_ranks
def test_experts_over_two_ranks(processes):
    processes.run(experts_of_a_mesh)


def training_over_a_mesh(rank, folder):
    """Averaged and clipped gradients are those of one rank with the tokens of both, and what is saved is what was."""
    mesh = cases.mesh_of(2)["ep"]
    alone, shared = model_of(rank=rank), model_of(rank=rank)
    weights = {name: value.cpu() for name, value in alone.state_dict().items()}
    hugging_face.attach(alone, **cases.set_up(rank))
    hugging_face.attach(shared, mesh=mesh, **cases.set_up(rank))
    first = rank - mesh.get_local_rank()
    both = torch.cat([tokens(first), tokens(first + 1)]).to(device_of(rank))
    expected = step(alone, both)  # clipped in place
    norm = torch.nn.utils.clip_grad_norm_(alone.parameters(), 0.5 * float(sharded.clip_grad_norm_(alone, 1e9)))
    step(shared, tokens(rank))
    sharded.average_gradients(shared)
    found = sharded.clip_grad_norm_(shared, 0.5 * float(norm))
    assert abs(found / norm - 1) < 0.01
    assert abs(sharded.clip_grad_norm_(shared, 1e9) / (0.5 * norm) - 1) < 0.01
    halves = {name: cases.local(weight.grad) for name, weight in shared.named_parameters() if "experts" not in name}
    cases.assert_near(halves, {name: expected[name].double().cpu() for name in halves}, bound=0.03)
    whole = sharded.whole_state_dict(shared)
    if mesh.get_local_rank() > 0:
        return whole == {}
    assert all(torch.equal(whole[name], value) for name, value in weights.items())
    if rank > 0:
        return True
    shared.save_pretrained(folder, state_dict=whole)
    loaded = transformers.Qwen3MoeForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).state_dict()
    return all(torch.equal(loaded[name], value) for name, value in weights.items())


@cases.over_two_ranks
def test_training_over_two_ranks(processes, tmp_path):
    assert all(processes.run(training_over_a_mesh, str(tmp_path)))
