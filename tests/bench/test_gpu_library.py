"""The library behind the GPU benchmarks, on the simulated GPU: every product and the layer, against NumPy."""

import ctypes
import os
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(os.environ["MMOE_SOURCE"]) / "bench/gpu"))

from gpu_memory import Memory, narrow, rounded, wide  # noqa: E402
from library import KEEP_PLAN, KEEP_ROWS, Failure, Group, Layer, Library, Products  # noqa: E402

HIDDEN, INNER, ROWS = 64, 128, [3, 0, 130]
EXPERTS = len(ROWS)
BF16, FP32 = 4e-3, 1e-5  # relative errors


@pytest.fixture(scope="module")
def library():
    return Library(os.environ["MMOE_BENCH_LIBRARY"])


@pytest.fixture(scope="module")
def memory(library):
    return Memory()


def close(value, expected, bound):
    assert np.linalg.norm(value - expected) <= bound * np.linalg.norm(expected)


def sigmoid(value):
    return 1 / (1 + np.exp(-value))


class Operands:
    """Random operands, on the host and on the device; outputs are NaN."""

    def __init__(self, memory, first_rows):
        random = np.random.default_rng(5)
        total = first_rows[-1]
        used = np.zeros(total, dtype=bool)
        for first, count in zip(first_rows, ROWS):
            used[first:first + count] = True
        self.memory = memory
        self.host = {
            "x": random.standard_normal((total, HIDDEN)) * used[:, None],
            "dy": random.standard_normal((total, HIDDEN)) * used[:, None],
            "w13": random.standard_normal((EXPERTS, 2 * INNER, HIDDEN)) / HIDDEN**0.5,
            "w2": random.standard_normal((EXPERTS, HIDDEN, INNER)) / INNER**0.5,
        }
        self.host = {name: rounded(value) for name, value in self.host.items()}
        self.weight = (random.random(total) * used).astype(np.float32)
        self.shapes = {"out": (total, HIDDEN), "gate_up": (total, 2 * INNER), "dgrad": (total, 2 * INNER),
                       "h": (total, INNER)}
        self.address = {name: memory.put(narrow(value)) for name, value in self.host.items()}
        self.address |= {name: memory.put(np.full(shape, 0xFFFF, np.uint16)) for name, shape in self.shapes.items()}
        self.address["row_weight"] = memory.put(self.weight)
        self.address["dw_parts"] = memory.put(np.full((1, total), np.nan, np.float32))

    def pool(self, name):
        return wide(self.memory.get(self.address[name], self.shapes[name], np.uint16))


@pytest.fixture(scope="module")
def products(library):
    with Products(library, HIDDEN, INNER, ROWS) as made:
        yield made


@pytest.fixture(scope="module")
def operands(memory, products):
    made = Operands(memory, products.first_rows)
    products.bind(**made.address)
    return made


def segments(products):
    """Of the experts with rows."""
    return [(e, slice(first, first + count)) for e, (first, count) in enumerate(zip(products.first_rows, ROWS)) if count]


def test_segments_begin_at_blocks(products):
    assert products.first_rows == [0, 128, 128, 384]


def test_forward(products, operands):
    products.run("gate_up_keep")
    products.run("down")
    gate_up, h, out = (operands.pool(name) for name in ("gate_up", "h", "out"))
    for e, rows in segments(products):
        close(gate_up[rows], operands.host["x"][rows] @ operands.host["w13"][e].T, BF16)
        gate, up = gate_up[rows, :INNER], gate_up[rows, INNER:]
        close(h[rows], gate * sigmoid(gate) * up, BF16)
        close(out[rows], operands.weight[rows, None] * (h[rows] @ operands.host["w2"][e].T), BF16)


def test_gate_and_up_are_kept_only_when_asked(products, operands):
    before = operands.pool("gate_up")
    products.bind(x=operands.address["dy"])
    products.run("gate_up")
    products.bind(x=operands.address["x"])
    assert np.array_equal(operands.pool("gate_up"), before)


def test_backward(products, operands):
    products.run("gate_up_keep")
    products.run("dgate_up")
    products.run("dx")
    total = products.first_rows[-1]
    gate_up, h, dgrad, out = (operands.pool(name) for name in ("gate_up", "h", "dgrad", "out"))
    dw = operands.memory.get(operands.address["dw_parts"], (1, total), np.float32)[0]
    for e, rows in segments(products):
        gate, up = gate_up[rows, :INNER], gate_up[rows, INNER:]
        weight, silu = operands.weight[rows, None], gate * sigmoid(gate)
        da = operands.host["dy"][rows] @ operands.host["w2"][e]
        close(h[rows], weight * silu * up, BF16)
        close(dw[rows], (rounded(silu * up) * da).sum(1), 1e-4)
        close(dgrad[rows, :INNER], weight * da * up * sigmoid(gate) * (1 + gate * (1 - sigmoid(gate))), BF16)
        close(dgrad[rows, INNER:], weight * da * silu, BF16)
        close(out[rows], dgrad[rows] @ operands.host["w13"][e], BF16)


@pytest.mark.parametrize("is_wide", [False, True])
@pytest.mark.parametrize("name, shape", [("dw2", (EXPERTS, HIDDEN, INNER)), ("dw13", (EXPERTS, 2 * INNER, HIDDEN))])
def test_gradients(products, operands, name, shape, is_wide):
    nan = np.full(shape, np.nan, np.float32) if is_wide else np.full(shape, 0xFFFF, np.uint16)
    address = operands.memory.put(nan)
    products.bind(**{name: address})
    products.run(name, wide=is_wide)
    products.run(name, wide=is_wide, accumulate=True)
    found = operands.memory.get(address, shape, nan.dtype)
    found = found if is_wide else wide(found)
    assert not found[1].any()
    for e, rows in segments(products):
        left, right = ((operands.host["dy"], operands.pool("h")) if name == "dw2"
                       else (operands.pool("dgrad"), operands.host["x"]))
        close(found[e], 2 * left[rows].T @ right[rows], FP32 if is_wide else BF16)


def test_unknown_names_are_refused(products):
    with pytest.raises(Failure, match="product is \"up\", expected"):
        products.run("up")
    with pytest.raises(Failure, match="operand is \"weights\", expected"):
        products.bind(weights=0)


def test_a_layer_that_is_not_supported_is_refused(library):
    with pytest.raises(Failure, match="hidden is 72, expected a multiple of 64"):
        Products(library, 72, INNER, ROWS)


TOKENS, TOP_K = 9, 2


@pytest.fixture(scope="module")
def group(library):
    with Group(library, HIDDEN, EXPERTS, TOP_K, TOKENS) as made:
        yield made


@pytest.mark.parametrize("keep, capacity", [(KEEP_PLAN, 0), (KEEP_ROWS, 0), (KEEP_PLAN, TOKENS * TOP_K)])
def test_layer(group, memory, keep, capacity):
    tokens, top_k = TOKENS, TOP_K
    random = np.random.default_rng(6)
    x, dy = (rounded(random.standard_normal((tokens, HIDDEN))) for _ in range(2))
    w13 = rounded(random.standard_normal((EXPERTS, 2 * INNER, HIDDEN)) / HIDDEN**0.5)
    w2 = rounded(random.standard_normal((EXPERTS, HIDDEN, INNER)) / INNER**0.5)
    ids = random.integers(0, EXPERTS, (tokens, top_k))
    weights = random.random((tokens, top_k)).astype(np.float32)
    address = {name: memory.put(narrow(value)) for name, value in
               {"x": x, "dy": dy, "w13": w13, "w2": w2, "y": x, "dx": x, "dw13": w13, "dw2": w2}.items()}
    address |= {"ids": memory.put(ids), "weights": memory.put(weights), "dweights": memory.put(weights)}
    expected, gradient = np.zeros_like(x), np.zeros_like(w2)
    for t in range(tokens):
        for k in range(top_k):
            gate, up = np.split(w13[ids[t, k]] @ x[t], 2)
            h = gate * sigmoid(gate) * up
            expected[t] += weights[t, k] * (w2[ids[t, k]] @ h)
            gradient[ids[t, k]] += weights[t, k] * np.outer(dy[t], h)
    with Layer(group, HIDDEN, INNER, EXPERTS, top_k, keep, capacity) as layer:
        layer.bind(**address)
        layer.forward(tokens, timed=True)
        assert all(layer.seconds(phase) > 0 for phase in ("plan", "dispatch", "gate_up", "down", "combine", "total"))
        assert layer.count("rows") == tokens * top_k and layer.count("padded_rows") == 128 * len(np.unique(ids))
        assert layer.count("bytes_pulled") == 0 and layer.count("bytes_pushed") == 0 and layer.count("nothing") < 0
        layer.backward(tokens, timed=True)
        assert layer.seconds("dgrad") > 0 and layer.seconds("wgrad") > 0 and layer.seconds("nothing") < 0
        close(wide(memory.get(address["y"], x.shape, np.uint16)), expected, 5.5e-3)
        close(wide(memory.get(address["dw2"], w2.shape, np.uint16)), gradient, 5.5e-3)


def test_more_rows_than_the_capacity_are_refused(group, memory):
    ids = memory.put(np.zeros((TOKENS, TOP_K), dtype=np.int64))
    values = memory.put(np.zeros(EXPERTS * 2 * INNER * HIDDEN, dtype=np.uint16))
    y = memory.put(np.zeros((TOKENS, HIDDEN), dtype=np.uint16))
    weights = memory.put(np.ones((TOKENS, TOP_K), dtype=np.float32))
    with Layer(group, HIDDEN, INNER, EXPERTS, TOP_K, KEEP_PLAN, TOKENS * TOP_K - 1) as layer:
        layer.bind(x=values, ids=ids, weights=weights, w13=values, w2=values, y=y)
        with pytest.raises(Failure, match="capacity"):
            layer.forward(TOKENS, timed=True)


def test_a_world_of_several_is_that_of_the_environment(library, monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with pytest.raises(Failure, match="WORLD_SIZE is not set"):
        Group(library, HIDDEN, EXPERTS, TOP_K, TOKENS, world=3)
    for name, value in {"WORLD_SIZE": "1", "RANK": "0", "MASTER_ADDR": "here", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(Failure, match="world is 3, expected 1 as in the environment"):
        Group(library, HIDDEN, EXPERTS, TOP_K, TOKENS, world=3)
