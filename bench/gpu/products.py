"""The six grouped products beside dense cuBLAS of the same FLOPs and torch._grouped_mm with its elementwise kernels."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

import measure
from layer import SHAPES
from library import Products
from measure import Variant, Wrong, relative_error

ROWS = 131072
BLOCK = 128  # rows that a segment is padded to
DW_COLUMNS = 256  # columns that a part of dw sums

# What is asked for on one H200 with even routing: the least share of dense, for (hidden, experts).
EXPERTS = [64, 16]
TARGETS = {
    "gate_up and down": {(hidden, experts): 0.95 for hidden, _ in SHAPES for experts in EXPERTS},
    "dgate_up": {(2048, 64): 0.80, (2048, 16): 0.80, (4096, 64): 0.86, (4096, 16): 0.86},
    "dx": {(hidden, experts): 0.96 for hidden, _ in SHAPES for experts in EXPERTS},
}
for gradient in ("dw2", "dw13"):
    TARGETS[f"{gradient} bf16"] = {(h, e): 0.90 if e == 64 else 0.94 for h, _ in SHAPES for e in EXPERTS}
    TARGETS[f"{gradient} fp32"] = {(h, e): 0.84 if e == 64 else 0.91 for h, _ in SHAPES for e in EXPERTS}


@dataclass
class Case:
    hidden: int
    intermediate: int
    experts: int
    routing: str

    def rows(self):
        """Rows of each expert, ROWS in all."""
        if self.routing == "even":
            return [ROWS // self.experts] * self.experts
        generator = torch.Generator().manual_seed(7)
        if self.routing == "random":  # each row anywhere
            share = torch.ones(self.experts)
        else:  # "skewed": like 1 / (e + 1)
            share = 1 / torch.arange(1, self.experts + 1)
        choice = torch.multinomial(share, ROWS, replacement=True, generator=generator)
        return torch.bincount(choice, minlength=self.experts).tolist()


def cases(quick):
    shapes = SHAPES[:1] if quick else SHAPES
    even = [Case(*shape, experts, "even") for shape in shapes for experts in EXPERTS]
    uneven = [Case(*shape, EXPERTS[0], routing) for shape in shapes for routing in ("random", "skewed")]
    return even[:1] if quick else even + uneven


# ---- Data


def noise(*shape, scale=1.0):
    return torch.empty(shape, device="cuda", dtype=torch.bfloat16).uniform_(-scale, scale)


def blank(*shape, dtype=torch.bfloat16):
    return torch.full(shape, float("nan"), device="cuda", dtype=dtype)


class Data:
    """All operands of one case. Pads of what is read are zero, as in the layer."""

    def __init__(self, case, rows, first_rows):
        hidden, inner, experts, total = case.hidden, case.intermediate, case.experts, first_rows[-1]
        self.case, self.rows, self.first_rows = case, rows, first_rows
        used = torch.zeros(total, dtype=torch.bool)
        for first, count in zip(first_rows, rows):
            used[first:first + count] = True
        used = used.cuda()
        self.x = noise(total, hidden) * used[:, None]
        self.dy = noise(total, hidden) * used[:, None]
        self.row_weight = torch.rand(total, device="cuda") * used
        self.w13 = noise(experts, 2 * inner, hidden, scale=3 / hidden**0.5)
        self.w2 = noise(experts, hidden, inner, scale=3 / inner**0.5)
        self.gate_up, self.dgrad = blank(total, 2 * inner), blank(total, 2 * inner)
        self.h, self.out = blank(total, inner), blank(total, hidden)
        self.dw_parts = blank(-(-inner // DW_COLUMNS), total, dtype=torch.float32)
        self.gradients = {
            (name, wide): blank(*weight.shape, dtype=torch.float32 if wide else torch.bfloat16)
            for name, weight in (("dw13", self.w13), ("dw2", self.w2)) for wide in (False, True)
        }
        self.ends = torch.tensor(first_rows[1:], dtype=torch.int32, device="cuda")

    def pools(self):
        names = ("x", "dy", "out", "gate_up", "dgrad", "h", "row_weight", "dw_parts", "w13", "w2")
        return {name: getattr(self, name) for name in names}

    def flop(self, product):
        units = {"gate_up": 2, "dx": 2, "dw13": 2}.get(product, 1)
        return 2.0 * units * ROWS * self.case.hidden * self.case.intermediate


def launch(products, data, product, wide=False, accumulate=False):
    """A function that queues one product of the library on the current stream."""
    def run():
        if product in ("dw2", "dw13"):
            products.bind(**{product: data.gradients[product, wide]})
        products.run(product, wide, accumulate, torch.cuda.current_stream().cuda_stream)
    return run


# ---- Right before fast

BOUND_BF16, BOUND_DW, BOUND_F32 = 4e-3, 1e-3, 1e-4


def compare(name, value, expected, bound):
    error = relative_error(value, expected)
    if not error <= bound:
        raise Wrong(f"{name}: relative error {error:.2e}, expected at most {bound:.0e}; nothing was timed")


def check_expert(data, expert, wide):
    """One expert's rows and gradients against fp32 products of PyTorch, each from the operands that it was given."""
    first, inner = data.first_rows[expert], data.case.intermediate
    rows = slice(first, first + data.rows[expert])
    x, dy, weight = data.x[rows].float(), data.dy[rows].float(), data.row_weight[rows, None]
    w13, w2 = data.w13[expert].float(), data.w2[expert].float()
    gate_up = data.gate_up[rows].float()
    compare("gate and up", gate_up, x @ w13.t(), BOUND_BF16)
    gate, up = gate_up[:, :inner], gate_up[:, inner:]
    sigmoid, da = torch.sigmoid(gate), dy @ w2
    h = (gate * sigmoid * up).bfloat16().float()
    compare("w*h", data.h[rows], weight * h, BOUND_BF16)
    compare("dw", data.dw_parts.sum(0)[rows], (h * da).sum(1), BOUND_DW)
    da *= weight
    compare("dgate", data.dgrad[rows, :inner], da * up * sigmoid * (1 + gate * (1 - sigmoid)), BOUND_BF16)
    compare("dup", data.dgrad[rows, inner:], da * gate * sigmoid, BOUND_BF16)
    dgrad, bound = data.dgrad[rows].float(), BOUND_F32 if wide else BOUND_BF16
    compare("dx", data.out[rows], dgrad @ w13, BOUND_BF16)
    compare("dw13", data.gradients["dw13", wide][expert], dgrad.t() @ x, bound)
    compare("dw2", data.gradients["dw2", wide][expert], dy.t() @ data.h[rows].float(), bound)


def check_forward(data, expert):
    first = data.first_rows[expert]
    rows = slice(first, first + data.rows[expert])
    gate, up = data.gate_up[rows].float().chunk(2, -1)
    compare("h", data.h[rows], gate * torch.sigmoid(gate) * up, BOUND_BF16)
    expected = data.row_weight[rows, None] * (data.h[rows].float() @ data.w2[expert].float().t())
    compare("y", data.out[rows], expected, BOUND_BF16)


def check(products, data):
    """Runs every product once; the results stay, as operands of what is timed."""
    torch.backends.cuda.matmul.allow_tf32 = False
    used = [expert for expert, count in enumerate(data.rows) if count > 0]
    looked_at = {used[0], used[len(used) // 2], used[-1]}
    for product in ("gate_up_keep", "down"):
        launch(products, data, product)()
    for expert in looked_at:
        check_forward(data, expert)
    for wide in (False, True):
        for product in ("dgate_up", "dx", "dw2", "dw13"):
            launch(products, data, product, wide)()
        for expert in looked_at:
            check_expert(data, expert, wide)


# ---- What is timed


def ours(products, data):
    def variant(name, product, **how):
        base = product.removesuffix("_keep")
        return Variant(name, data.flop(base), launch(products, data, product, **how))
    names = [variant("gate_up", "gate_up"), variant("gate_up, kept", "gate_up_keep"), variant("down", "down"),
             variant("dgate_up", "dgate_up"), variant("dx", "dx")]
    for product in ("dw2", "dw13"):
        names += [variant(f"{product} bf16", product), variant(f"{product} bf16, added", product, accumulate=True),
                  variant(f"{product} fp32", product, wide=True),
                  variant(f"{product} fp32, added", product, wide=True, accumulate=True)]
    return names


def dense(data):
    """cuBLAS with one weight for all rows."""
    x, dy, h, dgrad = (tensor[:ROWS] for tensor in (data.x, data.dy, data.h, data.dgrad))
    w13, w2 = data.w13[0], data.w2[0]
    outs = [torch.empty(ROWS, width, device="cuda", dtype=torch.bfloat16)
            for width in (2 * data.case.intermediate, data.case.hidden, data.case.intermediate)]
    runs = {
        "gate_up": lambda: torch.mm(x, w13.t(), out=outs[0]),
        "down": lambda: torch.mm(h, w2.t(), out=outs[1]),
        "dgate_up": lambda: torch.mm(dy, w2, out=outs[2]),
        "dx": lambda: torch.mm(dgrad, w13, out=outs[1]),
        "dw2": lambda: torch.mm(dy.t(), h),
        "dw13": lambda: torch.mm(dgrad.t(), x),
    }
    return [Variant(f"dense {name}", data.flop(name), run) for name, run in runs.items()]


def grouped(data):
    """What a trainer without fused kernels runs: grouped products of PyTorch and elementwise kernels between them."""
    weight = data.row_weight.bfloat16()[:, None]
    gate, up = data.gate_up.chunk(2, -1)

    def product(a, b):
        return torch._grouped_mm(a, b, offs=data.ends)

    def gate_up():
        first, second = product(data.x, data.w13.transpose(1, 2)).chunk(2, -1)
        return F.silu(first) * second

    def down():
        return product(data.h, data.w2.transpose(1, 2)).mul_(weight)

    def dgate_up():
        da, silu = product(data.dy, data.w2), F.silu(gate)
        h = silu * up
        dw = (h * da).sum(-1, dtype=torch.float32)
        da *= weight
        return dw, h.mul_(weight), torch.ops.aten.silu_backward(da * up, gate), da.mul_(silu)

    def gradient(name, wide, accumulate):
        a, b = (data.dy, data.h) if name == "dw2" else (data.dgrad, data.x)
        if not wide and not accumulate:
            return lambda: product(a.t(), b)
        into = data.gradients[name, wide]
        if accumulate:
            return lambda: into.add_(product(a.t(), b))
        return lambda: into.copy_(product(a.t(), b))

    runs = {"gate_up": gate_up, "down": down, "dgate_up": dgate_up, "dx": lambda: product(data.dgrad, data.w13)}
    for name in ("dw2", "dw13"):
        for kind, wide, accumulate in (("bf16", False, False), ("bf16, added", False, True), ("fp32", True, False),
                                       ("fp32, added", True, True)):
            runs[f"{name} {kind}"] = gradient(name, wide, accumulate)
    return [Variant(f"grouped {name}", data.flop(name.split()[0]), run) for name, run in runs.items()]


# ---- Records


def together(name, first, second):
    """Two variants that run one after the other, as numbers."""
    return {"name": name, "milliseconds": round(first.median + second.median, 5),
            "tflops": round((first.flop + second.flop) / (first.median + second.median) * 1e-9, 1)}


def entry(case, name, mine, base, rival):
    """Of three records: ours, dense, grouped (None: not run)."""
    target = TARGETS.get(name, {}).get((case.hidden, case.experts)) if case.routing == "even" else None
    share = round(base["milliseconds"] / mine["milliseconds"], 4)
    ahead = None if rival is None else round(rival["milliseconds"] / mine["milliseconds"], 3)
    return {"name": name, "ours": mine, "dense": base, "grouped": rival, "share": share, "target": target,
            "met": None if target is None else share >= target, "ahead_of_grouped": ahead}


def entries(case, variants):
    by_name = {variant.name: variant for variant in variants}

    def find(name):
        return by_name[name].record() if name in by_name else None

    def sum_of(name, prefix, first):
        return together(name, by_name[f"{prefix}{first}"], by_name[f"{prefix}down"])

    rows = [entry(case, "gate_up and down", sum_of("ours", "", "gate_up"), sum_of("dense", "dense ", "gate_up"),
                  sum_of("grouped", "grouped ", "gate_up"))]
    for variant in variants:
        if variant.name.startswith(("dense ", "grouped ")):
            continue
        base = variant.name.replace(",", " ").split()[0]
        rival = "gate_up" if base == "gate_up" else variant.name
        rows.append(entry(case, variant.name, variant.record(), find(f"dense {base}"), find(f"grouped {rival}")))
    return rows


def measure_case(library, case, rounds):
    rows = case.rows()
    with Products(library, case.hidden, case.intermediate, rows) as products:
        data = Data(case, rows, products.first_rows)
        products.bind(**data.pools())
        check(products, data)
        variants = dense(data) + ours(products, data) + grouped(data)
        measure.in_turn(variants, rounds)
        torch.cuda.synchronize()
    return {"hidden": case.hidden, "intermediate": case.intermediate, "experts": case.experts, "rows": ROWS,
            "routing": case.routing, "most_rows": max(rows), "least_rows": min(rows), "products": entries(case, variants)}


def measure_all(library, rounds, quick, say):
    """The record, again after each case."""
    record = {**measure.circumstances(), "rounds": rounds, "cases": []}
    for case in cases(quick):
        say(f"products: {case.hidden}/{case.intermediate}, {case.experts} experts, {case.routing}")
        record["cases"].append(measure_case(library, case, rounds))
        torch.cuda.empty_cache()
        yield record
