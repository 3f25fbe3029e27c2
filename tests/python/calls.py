"""One forward and backward through the package, as tests call it."""

import megamoe
import torch


def leaves(given, frozen=()):
    """The differentiable inputs by name, as leaves of autograd."""
    return {name: tensor.detach().clone().requires_grad_(name not in frozen)
            for name, tensor in given.tensors().items()}


def forward(layer, given, inputs, **options):
    return megamoe.moe(inputs["x"], given.ids, inputs["weights"], inputs["gate"], inputs["up"], inputs["down"],
                       layer=layer, **options)


def gradients(inputs):
    return {f"d{name}": tensor.grad for name, tensor in inputs.items()}


def both(layer, given, frozen=(), **options):
    """y and the gradients by name."""
    inputs = leaves(given, frozen)
    y = forward(layer, given, inputs, **options)
    y.backward(given.dy)
    return {"y": y.detach()} | gradients(inputs)


def assert_same_bits(results, expected):
    assert results.keys() == expected.keys()
    for name, value in expected.items():
        if value is None:
            assert results[name] is None, name
        else:
            assert results[name].dtype == value.dtype and torch.equal(results[name], value), name
