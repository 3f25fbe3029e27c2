"""The library behind the GPU benchmarks, against NumPy: every product and the layer on the simulated GPU, and the
layer over two processes on the CPU."""

import ctypes
import os
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(os.environ["MMOE_SOURCE"]) / "bench/gpu"))

import ranks  # noqa: E402
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


class Whole:
    """Random inputs of a layer, y and the gradient of w2."""

    def __init__(self, experts, tokens):
        random = np.random.default_rng(6)
        self.x, self.dy = (rounded(random.standard_normal((tokens, HIDDEN))) for _ in range(2))
        self.w13 = rounded(random.standard_normal((experts, 2 * INNER, HIDDEN)) / HIDDEN**0.5)
        self.w2 = rounded(random.standard_normal((experts, HIDDEN, INNER)) / INNER**0.5)
        self.ids = random.integers(0, experts, (tokens, TOP_K))
        self.weights = random.random((tokens, TOP_K)).astype(np.float32)
        self.y, self.dw2 = np.zeros_like(self.x), np.zeros_like(self.w2)
        for t, k in np.ndindex(self.ids.shape):
            expert, weight = self.ids[t, k], self.weights[t, k]
            gate, up = np.split(self.w13[expert] @ self.x[t], 2)
            h = gate * sigmoid(gate) * up
            self.y[t] += weight * (self.w2[expert] @ h)
            self.dw2[expert] += weight * np.outer(self.dy[t], h)


@pytest.fixture(scope="module")
def group(library):
    with Group(library, HIDDEN, EXPERTS, TOP_K, TOKENS) as made:
        yield made


@pytest.mark.parametrize("keep, capacity", [(KEEP_PLAN, 0), (KEEP_ROWS, 0), (KEEP_PLAN, TOKENS * TOP_K)])
def test_layer(group, memory, keep, capacity):
    whole = Whole(EXPERTS, TOKENS)
    outputs = {"y": whole.x, "dx": whole.x, "dw13": whole.w13, "dw2": whole.w2}
    address = {name: memory.put(np.full(like.shape, 0xFFFF, np.uint16)) for name, like in outputs.items()}
    address |= {name: memory.put(narrow(getattr(whole, name))) for name in ("x", "dy", "w13", "w2")}
    address |= {name: memory.put(getattr(whole, name)) for name in ("ids", "weights")}
    address["dweights"] = memory.put(np.full_like(whole.weights, np.nan))
    with Layer(group, HIDDEN, INNER, EXPERTS, TOP_K, keep, capacity) as layer:
        layer.bind(**address)
        layer.forward(TOKENS, timed=True)
        assert all(layer.seconds(phase) > 0 for phase in ("plan", "fused", "total"))
        assert layer.count("rows") == TOKENS * TOP_K and layer.count("padded_rows") == 128 * len(np.unique(whole.ids))
        assert layer.count("bytes_pulled") == 0 and layer.count("bytes_pushed") == 0 and layer.count("nothing") < 0
        layer.backward(TOKENS, timed=True)
        assert layer.seconds("fused") > 0 and layer.seconds("wgrad") > 0 and layer.seconds("nothing") < 0
        close(wide(memory.get(address["y"], whole.y.shape, np.uint16)), whole.y, 5.5e-3)
        close(wide(memory.get(address["dw2"], whole.dw2.shape, np.uint16)), whole.dw2, 5.5e-3)
        # A layer's last forward serves any number of backwards.
        sums = {name: memory.put(np.full(getattr(whole, like).shape, np.nan, np.float32))
                for name, like in (("dw13", "w13"), ("dw2", "dw2"))}
        layer.bind(**sums)
        layer.backward(TOKENS, wide=True)
        layer.backward(TOKENS, wide=True, accumulate=True)
        close(memory.get(sums["dw2"], whole.dw2.shape, np.float32), 2 * whole.dw2, 5.5e-3)


def rank_of_layer(rank, path, grouped):
    """A rank on the CPU with its share of the tokens and experts: y, the rows computed and the bytes pulled and
    pushed."""
    whole = Whole(2 * rank.world, TOKENS * rank.world)
    tokens = slice(rank.number * TOKENS, (rank.number + 1) * TOKENS)
    experts = slice(rank.number * 2, rank.number * 2 + 2)
    arrays = {"x": narrow(whole.x[tokens]), "ids": whole.ids[tokens].copy(), "weights": whole.weights[tokens].copy(),
              "w13": narrow(whole.w13[experts]), "w2": narrow(whole.w2[experts]),
              "y": np.full((TOKENS, HIDDEN), 0xFFFF, np.uint16)}
    sizes = (HIDDEN, 2 * rank.world, TOP_K)
    with Group(Library(path), *sizes, TOKENS, world=rank.world, name="bench", backend="cpu") as group:
        with Layer(group, HIDDEN, INNER, *sizes[1:], KEEP_PLAN, grouped=grouped) as layer:
            layer.bind(**{name: array.ctypes.data for name, array in arrays.items()})
            layer.forward(TOKENS, timed=True)
            yield wide(arrays["y"]), layer.count("rows"), layer.count("bytes_pulled"), layer.count("bytes_pushed")


@pytest.mark.parametrize("grouped", [False, True])
def test_layer_over_two_processes(grouped):
    whole = Whole(4, 2 * TOKENS)
    (found,) = ranks.run(rank_of_layer, 2, (os.environ["MMOE_BENCH_LIBRARY"], grouped), 60)
    close(np.concatenate([one[0] for one in found]), whole.y, 5.5e-3)
    owner, source = whole.ids // 2, np.arange(2 * TOKENS) // TOKENS
    for number, (_, rows, pulled, pushed) in enumerate(found):
        wanted = (owner == number).any(1) & (source != number)
        assert rows == (owner == number).sum() and pulled == 2 * HIDDEN * wanted.sum()
        owed = wanted if grouped else (owner == number) & (source != number)[:, None]
        assert pushed == 2 * HIDDEN * owed.sum() + TOKENS * TOP_K * 8  # and ids and weights


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
