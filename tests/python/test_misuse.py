"""What a user may get wrong on one rank, or ask in an unusual way: one sentence that says so, or the right result."""

import copy
import multiprocessing
import os
import pickle

import megamoe
import pytest
import reference
import torch
from calls import both, forward, leaves
from setting import DEVICE, HIDDEN, INTERMEDIATE, TOP_K, context_options, device_of


@pytest.fixture
def layer(context):
    return context.layer(intermediate=INTERMEDIATE)


def problem(tokens=12):
    return reference.problem(tokens, 1, device=device_of())


def call(layer, given, **changes):
    named = {name: getattr(given, name) for name in ("x", "ids", "weights", "gate", "up", "down")} | changes
    return megamoe.moe(*named.values(), layer=layer)


@pytest.mark.parametrize("name, change, sentence", [
    ("x", lambda x: x[0], r"x has shape \[64\], expected \[..., H\], a row for each token"),
    ("ids", lambda ids: ids[:, 0], r"ids has shape \[12\], expected \[..., K\], a row for each token"),
    ("weights", lambda weights: weights.view(4, 3, TOP_K), r"weights has shape \[4, 3, 2\] and x \[3, 4, 64\], expected "
                                                          "them to differ in the last number alone"),
    ("gate", lambda gate: gate.to("meta"), "gate is on meta, expected .*, where x is"),
    ("down", lambda down: None, "down is a NoneType, expected a tensor"),
    ("x", lambda x: x.float().cpu().numpy(), "x is a ndarray, expected a tensor"),
], ids=["x of one dimension", "ids of one dimension", "rows in another order", "meta", "none", "array"])
def test_wrong_tensors(layer, name, change, sentence):
    given = problem()
    x = given.x.view(3, 4, HIDDEN) if name == "weights" else given.x
    with pytest.raises((ValueError, TypeError), match=f"^{sentence}$"):
        call(layer, given, **{"x": x, name: change(getattr(given, name))})


def test_tensors_that_the_op_has_no_name_for(layer):
    given = problem()
    tensors = (given.x, given.ids, given.weights, given.gate, given.up, given.down)
    for place, wrong, sentence in ((0, given.x.half(), "x is torch.float16, expected one of torch.bfloat16"),
                                   (3, given.gate[None], "gate has 4 dimensions, expected at most 3")):
        with pytest.raises((TypeError, ValueError), match=sentence):
            torch.ops.megamoe.forward(*tensors[:place], wrong, *tensors[place + 1:], layer.handle, 0)


def test_a_context_in_the_place_of_a_layer(context):
    given = problem()
    for use in (lambda: call(context, given), lambda: megamoe.MegaMoE(context)):
        with pytest.raises(TypeError, match=r"layer is a Context, expected what Context.layer\(...\) returns"):
            use()


def test_shapes_on_meta(layer):
    given = problem()
    tensors = {name: getattr(given, name).to("meta") for name in ("x", "ids", "weights", "gate", "up", "down")}
    assert call(layer, given, **tensors).shape == given.x.shape


def test_copies_share_and_pickles_are_refused(context, layer):
    module = megamoe.MegaMoE(layer)
    assert copy.copy(layer) is layer and copy.deepcopy(context) is context and copy.deepcopy(module).layer is layer
    for each in (context, layer, module):
        with pytest.raises(TypeError, match=r"belongs to its process and can't be pickled: save the state_dict\(\)"):
            pickle.dumps(each)
    assert copy.deepcopy(module).load_state_dict(module.state_dict(), strict=True)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_a_tangent_is_refused(layer):
    given = problem()
    with pytest.raises(RuntimeError, match="x has a tangent: megamoe has no forward-mode derivative"):
        torch.func.jvp(lambda x: call(layer, given, x=x), (given.x,), (given.x,))


def test_gradients_asked_one_by_one(layer):
    """Of one graph that is kept, in any order, and with a hook that changes one."""
    given = problem()
    expected, inputs = both(layer, given), leaves(given)
    y = forward(layer, given, inputs)
    for name in ("gate", "weights", "x", "down", "up"):
        gradient, = torch.autograd.grad(y, inputs[name], given.dy, retain_graph=True)
        assert torch.equal(gradient, expected[f"d{name}"]), name
    inputs["x"].register_hook(lambda gradient: 2 * gradient)
    y.backward(given.dy)
    assert torch.equal(inputs["x"].grad, 2 * expected["dx"]) and torch.equal(inputs["up"].grad, expected["dup"])


@pytest.mark.parametrize("first", [True, False])
def test_requires_grad_that_changes_before_the_backward(layer, first):
    """Frozen after the forward, or no longer frozen: no gradient, and the others as ever."""
    given = problem()
    expected, inputs = both(layer, given), leaves(given, frozen=() if first else ("gate",))
    y = forward(layer, given, inputs)
    inputs["gate"].requires_grad_(not first)
    y.backward(given.dy)
    assert inputs["gate"].grad is None
    assert all(torch.equal(inputs[name].grad, expected[f"d{name}"]) for name in ("x", "weights", "up", "down"))


def test_inputs_that_backward_does_not_read_may_change(layer):
    given = problem()
    expected, inputs = both(layer, given), leaves(given)
    ids, weights = given.ids.clone(), inputs["weights"].clone()
    y = megamoe.moe(inputs["x"], ids, weights, inputs["gate"], inputs["up"], inputs["down"], layer=layer)
    with torch.no_grad():
        ids.zero_()
        weights.zero_()
        y.zero_()
    y.backward(given.dy)
    assert all(torch.equal(tensor.grad, expected[f"d{name}"]) for name, tensor in inputs.items())


def test_no_process_group_among_several_ranks(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.warns(UserWarning, match="process_group is None and WORLD_SIZE is 2: this context is of this rank alone"):
        megamoe.Context(torch.distributed.group.WORLD, device=device_of(), **context_options()).close()


@pytest.mark.skipif(DEVICE == "cuda", reason="CUDA works in no forked process")
def test_a_forked_process_leaves_its_parents_context_alone():
    """It can't compute, and ends: the library's threads are not there to be waited for."""
    given = problem()

    def child():
        with pytest.raises(RuntimeError, match="expected the handle of a layer whose context is open in this process"):
            call(layer, given)
        made.close()
        os._exit(7)

    with megamoe.Context(device=device_of(), **context_options(threads=2)) as made:
        layer = made.layer(intermediate=INTERMEDIATE)
        expected = call(layer, given)
        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        process.join(20)
        process.kill()
        assert process.exitcode == 7
        assert torch.equal(call(layer, given), expected)
