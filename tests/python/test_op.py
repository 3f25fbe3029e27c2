"""The op on one rank: results against the formula in float64, and everything that autograd may ask of it."""

import copy
import gc

import megamoe
import pytest
import reference
import torch
from calls import assert_same_bits, both, forward, gradients, leaves
from megamoe._tensors import for_copy_engine, is_for_copy_engine
from megamoe.layer import KeepRule
from setting import DEVICE, HIDDEN, INTERMEDIATE, TOP_K, context_options, device_of

BF16, F32, F16 = torch.bfloat16, torch.float32, torch.float16
BOUND = 6e-3  # of a tensor's length: three roundings to bf16 on the way, and one at the end


@pytest.fixture
def layer(context):
    return context.layer(intermediate=INTERMEDIATE)


def problem(tokens=24, seed=1, **options):
    return reference.problem(tokens, seed, device=device_of(), **options)


def assert_near(results, exact, bound=BOUND):
    for name, value in exact.items():
        assert reference.distance(results[name], value) < bound, name


@pytest.mark.parametrize("keep", ["auto", "plan", "rows"])
def test_results_are_those_of_the_formula(layer, keep):
    for tokens in (24, 1, 37):  # fewer and more than before
        given = problem(tokens, seed=tokens)
        results = both(layer, given, keep=keep)
        assert_near(results, reference.expected(given))
        for name, tensor in given.tensors().items():
            assert results[f"d{name}"].dtype == tensor.dtype and results[f"d{name}"].shape == tensor.shape
        assert results["dweights"][given.ids < 0].eq(0).all()
        assert results["y"][given.ids.lt(0).all(dim=1)].eq(0).all()


def test_gate_and_up_in_one_tensor_give_the_same_bits(layer):
    given = problem()
    inputs = leaves(given)
    fused = torch.cat([given.gate, given.up], dim=1).requires_grad_()
    y = megamoe.moe(inputs["x"], given.ids, inputs["weights"], fused, None, inputs["down"], layer=layer)
    y.backward(given.dy)
    inputs["gate"].grad, inputs["up"].grad = fused.grad.chunk(2, dim=1)
    assert_same_bits({"y": y.detach()} | gradients(inputs), both(layer, given))


def limit_between_values(given):
    """A limit that clips some values of gate and up, and is near none of them: rounding moves none across it."""
    x, gate, up = given.x.cpu().double(), given.gate.cpu().double(), given.up.cpu().double()
    products = torch.cat([torch.einsum("th,eih->tei", x, each).abs().flatten() for each in (gate, up)]).sort().values
    tail = products[-200:-20]
    widest = (tail[1:] / tail[:-1]).argmax()
    assert tail[widest + 1] / tail[widest] > 1 + 2 ** -7
    return float((tail[widest] + tail[widest + 1]) / 2)


def assert_option_counts(context, given, **options):
    results = both(context.layer(intermediate=INTERMEDIATE, **options), given)
    assert_near(results, reference.expected(given, **options))
    assert not torch.equal(results["y"], both(context.layer(intermediate=INTERMEDIATE), given)["y"])


def test_a_limit(context):
    given = problem()
    assert_option_counts(context, given, limit=limit_between_values(given))


@pytest.mark.skipif(DEVICE == "cuda", reason="the CUDA backend weighs outputs, which unsupported_reason says")
def test_weights_on_inputs(context):
    assert_option_counts(context, problem(), weight_on="input")


def test_a_layer_is_made_once(context):
    assert context.layer(intermediate=INTERMEDIATE) is context.layer(intermediate=INTERMEDIATE, hidden=HIDDEN)
    assert context.layer(intermediate=INTERMEDIATE) is not context.layer(intermediate=INTERMEDIATE, limit=1.0)


@pytest.mark.parametrize("frozen", [("x",), ("weights",), ("gate",), ("up", "down"), ("gate", "up", "down"),
                                    ("x", "weights"), ("x", "weights", "gate", "up")], ids="-".join)
def test_frozen_inputs_have_no_gradient_and_change_no_other(layer, frozen):
    given = problem()
    whole = both(layer, given)
    assert_same_bits(both(layer, given, frozen), whole | {f"d{name}": None for name in frozen})


def test_nothing_is_kept_where_no_backward_follows(layer):
    given = problem()
    expected = both(layer, given)["y"]
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            y = forward(layer, given, leaves(given))
        assert torch.equal(y, expected)
    assert torch.equal(forward(layer, given, given.tensors()), expected)
    gc.collect()
    assert not layer.states.pending


def test_gradients_of_any_layout(layer):
    given = problem()
    tokens = given.x.shape[0]
    wide = torch.zeros(tokens, 3 * HIDDEN, dtype=BF16, device=device_of())
    turned = torch.zeros(HIDDEN, tokens, dtype=BF16, device=device_of())
    shifted = torch.zeros(tokens * HIDDEN + 1, dtype=BF16, device=device_of())
    one = torch.ones((), dtype=BF16, device=device_of())
    for dy in (wide[:, HIDDEN:2 * HIDDEN], turned.t(), shifted[1:].view(tokens, HIDDEN)):
        dy.copy_(given.dy)
        inputs = leaves(given)
        forward(layer, given, inputs).backward(dy)
        assert_same_bits(gradients(inputs), {n: g for n, g in both(layer, given).items() if n != "y"})
    inputs, same = leaves(given), leaves(given)
    forward(layer, given, inputs).sum().backward()
    forward(layer, given, same).backward(torch.ones_like(given.dy))
    assert_same_bits(gradients(inputs), gradients(same))
    inputs, same = leaves(given), leaves(given)
    forward(layer, given, inputs).backward(one.expand(tokens, HIDDEN))
    forward(layer, given, same).backward(torch.ones_like(given.dy))
    assert_same_bits(gradients(inputs), gradients(same))


class Unused(torch.autograd.Function):
    """Passes a tensor on, and no gradient back."""

    @staticmethod
    def forward(_, y):
        return y.clone()

    @staticmethod
    def backward(_, __):
        return None


def test_no_gradient_is_a_gradient_of_zero(layer):
    """The backward is made all the same, since peers wait for it."""
    given = problem()
    inputs = leaves(given)
    Unused.apply(forward(layer, given, inputs)).sum().backward()
    assert all(gradient.eq(0).all() for gradient in gradients(inputs).values())
    gc.collect()
    assert not layer.states.pending


def test_an_output_that_is_not_used(layer):
    given = problem()
    inputs = leaves(given)
    forward(layer, given, inputs)
    inputs["x"].sum().backward()
    assert inputs["gate"].grad is None
    gc.collect()
    assert not layer.states.pending


# Places of a tensor's values in a larger one, as a view with other strides or another first address.
LAYOUTS = {
    "spread": lambda t: t.new_zeros(*t.shape, 2)[..., 0],
    "offset": lambda t: t.new_zeros(t.numel() + 1)[1:].view(t.shape),
    "transposed": lambda t: t.new_zeros(*t.shape[:-2], t.shape[-1], t.shape[-2]).transpose(-1, -2),
    "sliced": lambda t: t.new_zeros(*t.shape[:-1], t.shape[-1] + 3)[..., 2:-1],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_inputs_of_any_layout(layer, layout):
    """Every input in turn."""
    given = problem()
    expected = both(layer, given)
    for name in ("x", "ids", "weights", "gate", "up", "down"):
        placed = LAYOUTS[layout](getattr(given, name)).copy_(getattr(given, name))
        changed = reference.Problem(**{**vars(given), name: placed})
        inputs = {key: tensor.detach().requires_grad_() for key, tensor in changed.tensors().items()}
        y = forward(layer, changed, inputs)
        y.backward(given.dy)
        assert_same_bits({"y": y.detach()} | gradients(inputs), expected)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_weights_as_a_gpu_takes_them(layout):
    """A copy of those that it doesn't, a contiguous one at an odd address too; the others themselves."""
    weight = problem().gate
    placed = LAYOUTS[layout](weight).copy_(weight)
    taken = for_copy_engine(placed)
    assert torch.equal(taken, weight) and is_for_copy_engine(taken) and not is_for_copy_engine(placed)
    assert for_copy_engine(weight) is weight and for_copy_engine(weight[2:, 8:]).data_ptr() == weight[2:, 8:].data_ptr()


def test_ids_of_int32(layer):
    given = problem()
    expected = both(layer, given)
    given.ids = given.ids.int()
    assert_same_bits(both(layer, given), expected)


@pytest.mark.skipif(DEVICE == "cuda", reason="the CUDA backend takes multiples of 64, which test_library.py proves")
@pytest.mark.parametrize("hidden", [1, 5, 7, 8, 9, 1025])
def test_odd_sizes(hidden):
    given = problem(6, hidden=hidden, intermediate=17)
    for name in ("x", "gate", "up", "down", "dy"):  # no sum cancels, so that the bound holds for few numbers
        getattr(given, name).abs_()
    with megamoe.Context(device=device_of(), **context_options(hidden=hidden)) as made:
        layer = made.layer(intermediate=17)
        results = both(layer, given)
        assert_near(results, reference.expected(given))
        for place in LAYOUTS.values():
            changed = reference.Problem(**{name: place(t).copy_(t) for name, t in vars(given).items()})
            assert_same_bits(both(layer, changed), results)


def test_leading_dimensions(layer):
    given = problem(24)
    expected = both(layer, given)["y"]
    inputs = leaves(given)
    y = megamoe.moe(inputs["x"].view(2, 3, 4, HIDDEN), given.ids.view(2, 3, 4, TOP_K),
                    inputs["weights"].view(2, 3, 4, TOP_K), inputs["gate"], inputs["up"], inputs["down"], layer=layer)
    assert y.shape == (2, 3, 4, HIDDEN) and torch.equal(y.view(24, HIDDEN), expected)


@pytest.mark.parametrize("tokens", [0, 3])
def test_calls_without_rows(layer, tokens):
    """No token at all, and none of its slots used: zeros everywhere, and every gradient there."""
    given = problem(tokens)
    given.ids.fill_(-1)
    results = both(layer, given)
    for name, tensor in {"y": given.x, **{f"d{n}": t for n, t in given.tensors().items()}}.items():
        assert results[name].shape == tensor.shape and results[name].eq(0).all(), name


def test_experts_without_rows_have_zero_gradients(layer):
    given = problem()
    given.ids.copy_(torch.where(given.ids >= 4, given.ids - 4, given.ids))
    results = both(layer, given)
    for name in ("dgate", "dup", "ddown"):
        assert results[name][4:].eq(0).all() and results[name][:4].ne(0).any()


def test_one_backward_twice(layer):
    given = problem()
    inputs = leaves(given)
    y = forward(layer, given, inputs)
    y.backward(given.dy, retain_graph=True)
    once = {name: gradient.clone() for name, gradient in gradients(inputs).items()}
    y.backward(given.dy)
    assert_same_bits(gradients(inputs), {name: 2 * gradient for name, gradient in once.items()})


def test_forwards_before_their_backwards(layer):
    """In any order of the backwards; the saved states are used again afterwards."""
    problems = [problem(seed=seed) for seed in range(3)]
    expected = [both(layer, each) for each in problems]
    for order in ((0, 1, 2), (2, 1, 0), (1, 0, 2)):
        inputs = [leaves(each) for each in problems]
        ys = [forward(layer, each, tensors) for each, tensors in zip(problems, inputs)]
        for n in order:
            ys[n].backward(problems[n].dy)
        for n in order:
            assert_same_bits({"y": ys[n].detach()} | gradients(inputs[n]), expected[n])
        del ys
        gc.collect()
        assert not layer.states.pending
    made = len(layer.states.made)
    for each in problems:
        both(layer, each)
    assert len(layer.states.made) == made


def test_gradient_accumulation(layer):
    """Two microbatches add up to their sum, with no factor: plain SGD would show one that Adam hides."""
    first, second = problem(seed=1), problem(seed=2)
    inputs = leaves(first)
    forward(layer, first, inputs).backward(first.dy)
    for name in ("x", "weights"):
        inputs[name] = getattr(second, name).clone().requires_grad_()
    forward(layer, second, inputs).backward(second.dy)
    second = reference.Problem(**{**vars(second), "gate": first.gate, "up": first.up, "down": first.down})
    one, two = both(layer, first), both(layer, second)
    for name in ("gate", "up", "down"):
        assert torch.equal(inputs[name].grad, one[f"d{name}"] + two[f"d{name}"])


def test_weights_in_fp32_get_gradients_in_fp32(layer):
    """Bits of the products are those of the weights in bf16; the gradients are closer than bf16 could hold."""
    given, rounded = problem(dtype=F32), problem()
    results, same = both(layer, given), both(layer, rounded)
    assert all(torch.equal(results[name], same[name]) for name in ("y", "dx", "dweights"))
    for name in ("dgate", "dup", "ddown"):
        assert results[name].dtype == F32 and torch.equal(results[name].to(BF16), same[name])
        assert not torch.equal(results[name], same[name].float())


@pytest.mark.parametrize("autocast", [None, BF16, F16], ids=str)
def test_dtypes(layer, autocast):
    """Every triple of dtypes gives y in bf16 and gradients in their inputs' dtypes, or one sentence."""
    for x in (BF16, F32, F16):
        for weights in (BF16, F32, F16):
            for experts in (BF16, F32, F16):
                given = problem(4)
                inputs = leaves(given)
                dtypes = {"x": x, "weights": weights, "gate": experts, "up": experts, "down": experts}
                inputs = {name: t.detach().to(dtypes[name]).requires_grad_() for name, t in inputs.items()}
                good = autocast != F16 and experts != F16 and (x == BF16 or autocast == BF16)
                with torch.autocast(DEVICE, dtype=autocast or BF16, enabled=autocast is not None):
                    if not good:
                        with pytest.raises(TypeError, match=" is .*torch.float(16|32), expected torch.bfloat16"):
                            forward(layer, given, inputs)
                        continue
                    y = forward(layer, given, inputs)
                assert y.dtype == BF16
                y.backward(given.dy)
                assert all(t.grad.dtype == dtypes[name] and t.grad.isfinite().all() for name, t in inputs.items())


def test_refusals_name_what_is_wrong(layer):
    given = problem(4)
    inputs = leaves(given)
    given.ids[2, 1] = 8
    with pytest.raises(megamoe.InvalidArgumentError, match="ids at token 2, slot 1 is 8, expected -1 or 0 .. 7"):
        forward(layer, given, inputs)
    given.ids[2, 1] = 2 ** 32 + 1
    with pytest.raises(megamoe.InvalidArgumentError, match="ids at token 2, slot 1 is 4294967297"):
        forward(layer, given, inputs)
    given.ids[2, 1] = 0
    with pytest.raises(megamoe.InvalidArgumentError, match=r"down has shape \[7, 64, 64\], expected \[8, 64, 64\]"):
        forward(layer, given, inputs | {"down": inputs["down"][:7]})
    with pytest.raises(megamoe.InvalidArgumentError, match="x has 49 tokens, expected at most the group's max_tokens"):
        forward(layer, (large := problem(49)), leaves(large))
    with pytest.raises(TypeError, match="ids is torch.float32, expected torch.int32 or torch.int64"):
        megamoe.moe(given.x, given.ids.float(), given.weights, given.gate, given.up, given.down, layer=layer)
    with pytest.raises(ValueError, match=f"gate is on meta, expected {layer.device}, the device of the context"):
        layer.check_tensors(x=given.x, up=None, gate=given.gate.to("meta"))
    with pytest.raises(ValueError, match="keep is 'all', expected one of 'auto', 'plan', 'rows'"):
        forward(layer, given, inputs, keep="all")
    assert_near(both(layer, given), reference.expected(given))


def test_a_changed_weight_is_found_out(layer):
    given = problem(4)
    inputs = leaves(given)
    y = forward(layer, given, inputs)
    with torch.no_grad():
        inputs["gate"].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward(given.dy)


def test_saved_tensors_that_were_moved_are_found_out(layer):
    given = problem(4)
    inputs = leaves(given)
    with torch.autograd.graph.saved_tensors_hooks(torch.clone, lambda copy: copy):
        y = forward(layer, given, inputs)
    with pytest.raises(RuntimeError, match="the saved state of forward .* is no longer there"):
        y.backward(given.dy)


def test_a_second_derivative_is_refused(layer):
    given = problem(4)
    inputs = leaves(given)
    dx, = torch.autograd.grad(forward(layer, given, inputs), inputs["x"], given.dy.clone().requires_grad_(),
                              create_graph=True)
    with pytest.raises(RuntimeError, match="megamoe has no second derivative"):
        dx.sum().backward()


def test_a_closed_context():
    given = problem(4)
    inputs = leaves(given)
    made = megamoe.Context(device=device_of(), max_tokens=8, hidden=HIDDEN, top_k=TOP_K, experts=8, threads=1)
    layer = made.layer(intermediate=INTERMEDIATE)
    y = forward(layer, given, inputs)
    made.check()
    made.close()
    made.close()
    with pytest.raises(RuntimeError, match="the saved state of forward 1 is no longer there|handle of a layer whose"):
        y.backward(given.dy)
    with pytest.raises(RuntimeError, match="expected the handle of a layer whose context is open"):
        forward(layer, given, inputs)
    with pytest.raises(megamoe.MegaMoEError, match="layer is NULL"):
        layer.forward(given.x, given.ids, given.weights, given.gate, given.up, given.down, KeepRule.NOTHING)
    with pytest.raises(RuntimeError, match="the context is closed"):
        made.layer(intermediate=INTERMEDIATE)


def test_a_fixed_capacity():
    given = problem(8)
    given.ids.fill_(0)
    with megamoe.Context(device=device_of(), max_tokens=8, hidden=HIDDEN, top_k=TOP_K, experts=8, threads=1,
                         capacity=12, drop=True) as made:
        results = both(made.layer(intermediate=INTERMEDIATE), given)
    given.ids.view(-1)[12:] = -1
    with megamoe.Context(device=device_of(), max_tokens=8, hidden=HIDDEN, top_k=TOP_K, experts=8, threads=1,
                         capacity=12) as made:
        assert_same_bits(results, both(made.layer(intermediate=INTERMEDIATE), given))
        given.ids.fill_(0)
        if DEVICE == "cpu":  # a GPU tells later
            with pytest.raises(megamoe.CapacityError, match="16 rows.*12"):
                both(made.layer(intermediate=INTERMEDIATE), given)


def test_the_ops_keep_pytorchs_rules(layer):
    given = problem(4)
    inputs = leaves(given)
    rules = ("test_schema", "test_autograd_registration", "test_faketensor")
    arguments = (inputs["x"], given.ids, inputs["weights"], inputs["gate"], inputs["up"], inputs["down"])
    torch.library.opcheck(torch.ops.megamoe.forward.default, (*arguments, layer.handle, 2), test_utils=rules)
    _, token = torch.ops.megamoe.forward(*arguments, layer.handle, 2)
    plain = [tensor.detach() for tensor in inputs.values()]
    torch.library.opcheck(torch.ops.megamoe.backward.default,
                          (given.dy, token, plain[0], *plain[2:], layer.handle, TOP_K, 31), test_utils=rules)


@pytest.mark.parametrize("fused", [False, True])
def test_the_module(layer, fused):
    torch.manual_seed(0)
    module = megamoe.MegaMoE(layer, fused=fused, dtype=F32)
    given = problem()
    y = module(given.x, given.ids, given.weights)
    y.backward(given.dy)
    gate, up = module.gate_up.chunk(2, dim=1) if fused else (module.gate, module.up)
    exact = reference.expected(reference.Problem(
        given.x, given.ids, given.weights, *(w.detach().to(BF16) for w in (gate, up, module.down)), given.dy))
    assert_near({"y": y.detach(), "ddown": module.down.grad}, {n: exact[n] for n in ("y", "ddown")})
    assert all(weight.grad.isfinite().all() and weight.grad.ne(0).any() for weight in module.parameters())
    copied = copy.deepcopy(module)
    assert copied.layer is layer and torch.equal(copied(given.x, given.ids, given.weights), y)
    assert repr(module).startswith("MegaMoE(hidden=64, intermediate=64, experts=8, local_experts=8, top_k=2")
