"""Checkpoints, torch.compile and CUDA graphs: the same bits, and the calls that are due."""

import gc

import megamoe
import pytest
import reference
import torch
from calls import assert_same_bits, both, gradients, leaves
from model import BACKWARD, CALLS, CHECKPOINTS, PLAN, Model, recorded, step
from setting import DEVICE, INTERMEDIATE, MAX_TOKENS, TOP_K, context_options, device_of
from torch._dynamo.testing import CompileCounterWithBackend


@pytest.fixture
def layer(context):
    return context.layer(intermediate=INTERMEDIATE)


def inputs(tokens=24, seed=0):
    given = reference.problem(tokens, seed, device=device_of())
    return given.x, given.dy


@pytest.mark.parametrize("kind", CHECKPOINTS)
def test_checkpoints_change_no_bit(layer, kind):
    expected = step(Model(layer), *inputs())
    with recorded(layer) as calls:
        assert_same_bits(step(Model(layer, kind), *inputs()), expected)
    assert calls == CALLS[kind]
    gc.collect()
    assert not layer.states.pending


@pytest.mark.parametrize("kind", ["none", "full", "selective"])
def test_compiled_models_change_no_bit(layer, kind):
    """One graph and no recompilation whatever the routing: one for a number of tokens that changes, one for none."""
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    model = Model(layer, kind)
    compiled = torch.compile(model, fullgraph=True, backend=counter)
    for tokens, seed, frames in ((12, 0, 1), (12, 1, 1), (17, 2, 2), (9, 3, 2), (24, 4, 2), (0, 5, 3)):
        x, dy = inputs(tokens, seed)
        expected = step(model, x, dy)
        with recorded(layer) as calls:
            results = step(compiled, x, dy)
        assert_same_bits({name.removeprefix("_orig_mod."): value for name, value in results.items()}, expected)
        assert counter.frame_count == frames, (tokens, seed)
        assert calls == CALLS[kind]


def test_compiled_calls_of_any_routing(layer):
    """Given ids: an expert without rows, no used slot, no token; results and gradients of the call that is not compiled.

    PyTorch compiles a size of 0 for itself, so that there is one recompilation for T that changes and one for none.
    """
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")

    @torch.compile(fullgraph=True, backend=counter)
    def compiled(x, ids, weights, gate, up, down):
        return megamoe.moe(x, ids, weights, gate, up, down, layer=layer)

    def without_expert_0(ids):
        return ids.masked_fill(ids == 0, 1)

    for tokens, change, frames in ((4, without_expert_0, 1), (5, without_expert_0, 2), (3, lambda ids: ids * 0 - 1, 2),
                                   (5, lambda ids: ids * 0, 2), (0, lambda ids: ids, 3), (4, without_expert_0, 3)):
        given = reference.problem(tokens, device=device_of())
        given.ids = change(given.ids)
        inputs = leaves(given)
        y = compiled(inputs["x"], given.ids, *(inputs[name] for name in ("weights", "gate", "up", "down")))
        y.backward(given.dy)
        assert_same_bits({"y": y.detach()} | gradients(inputs), both(layer, given))
        assert counter.frame_count == frames, tokens
        if change is without_expert_0:
            assert all(inputs[name].grad[0].eq(0).all() for name in ("gate", "up", "down"))
        if given.ids.lt(0).all():
            assert y.eq(0).all() and all(gradient.eq(0).all() for gradient in gradients(inputs).values())


@pytest.mark.skipif(DEVICE == "cpu", reason="streams are of GPUs")
def test_the_current_stream(layer):
    """Work before and after on the same stream needs no wait of the host."""
    x, dy = inputs()
    model = Model(layer)
    expected = step(model, x, dy)
    for _ in range(20):
        stream = torch.cuda.Stream()
        late = torch.zeros_like(x)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.cuda._sleep(2_000_000)
            late.copy_(x)
            results = step(model, late, dy)
        torch.cuda.current_stream().wait_stream(stream)
        assert_same_bits(results, expected)


@pytest.mark.skipif(DEVICE == "cpu", reason="CUDA graphs are of GPUs")
def test_a_captured_step():
    """With a fixed capacity a graph holds forwards and backwards; each replay takes what is in its inputs then."""

    def results_of(model, x, dy):
        y = model(x)
        return [y, *torch.autograd.grad(y, [x, *model.parameters()], dy)]

    with megamoe.Context(device=device_of(), capacity=MAX_TOKENS * TOP_K, **context_options()) as made:
        model = Model(made.layer(intermediate=INTERMEDIATE))
        x, dy = inputs()
        x.requires_grad_()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            results_of(model, x, dy)
        torch.cuda.current_stream().wait_stream(stream)
        gc.collect()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = results_of(model, x, dy)
        for seed in range(4):
            with torch.no_grad():
                x.copy_(inputs(seed=seed)[0])
            graph.replay()
            assert all(torch.equal(*pair) for pair in zip(captured, results_of(model, x, dy)))
        made.check()
