"""The whole layer on one GPU beside the unfused layer in PyTorch and dense cuBLAS of the same FLOPs."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

import measure
import routing
from library import KEEP_PLAN, KEEP_ROWS, Group, Layer
from measure import Variant, Wrong, relative_error

TOKENS, TOP_K = 16384, 8
SHAPES = [(2048, 768), (4096, 1536)]  # hidden, intermediate: of Qwen3-30B-A3B and Qwen3-235B-A22B
PHASES = ("exchange", "plan", "fused", "dispatch", "gate_up", "down", "dgrad", "wgrad", "combine", "total")


@dataclass
class Case:
    hidden: int
    intermediate: int
    experts: int
    routing: str


def cases(quick):
    every = [Case(*shape, experts, routing) for shape in SHAPES for experts in (128, 32)
             for routing in ("uniform", "zipf")]
    return every[:1] if quick else every


# ---- Data


class Data:
    def __init__(self, case):
        torch.manual_seed(11)
        hidden, inner, experts = case.hidden, case.intermediate, case.experts
        self.case = case
        self.x, self.dy = (torch.randn(TOKENS, hidden, device="cuda").bfloat16() for _ in range(2))
        self.w13 = torch.randn(experts, 2 * inner, hidden, device="cuda", dtype=torch.bfloat16) * hidden**-0.5
        self.w2 = torch.randn(experts, hidden, inner, device="cuda", dtype=torch.bfloat16) * inner**-0.5
        self.ids = routing.draw(routing.popularity(experts, case.routing), TOKENS, TOP_K)
        self.weights = routing.router_weights(TOKENS, TOP_K)

    def flop(self, units):
        return 2.0 * units * TOKENS * TOP_K * self.case.hidden * self.case.intermediate


FORWARD_UNITS, BACKWARD_UNITS = 3, 6


# ---- The unfused layer


def unfused(x, ids, weights, w13, w2):
    """Sort, grouped products, weighted sum."""
    flat = ids.reshape(-1)
    order = torch.argsort(flat, stable=True)
    token = order // TOP_K
    ends = torch.cumsum(torch.bincount(flat, minlength=w13.shape[0]), 0).to(torch.int32)
    gate, up = torch._grouped_mm(x.index_select(0, token), w13.transpose(1, 2), offs=ends).chunk(2, -1)
    rows = torch._grouped_mm(F.silu(gate) * up, w2.transpose(1, 2), offs=ends)
    weighted = rows.float() * weights.reshape(-1)[order][:, None]
    return torch.zeros_like(x, dtype=torch.float32).index_add(0, token, weighted).to(x.dtype)


class Unfused:
    def __init__(self, data):
        self.ids, self.dy = data.ids, data.dy
        self.leaves = [tensor.detach().requires_grad_() for tensor in (data.x, data.weights, data.w13, data.w2)]

    def output(self):
        x, weights, w13, w2 = self.leaves
        return unfused(x, self.ids, weights, w13, w2)

    def forward(self):
        with torch.no_grad():
            return self.output()

    def both(self):
        for leaf in self.leaves:
            leaf.grad = None
        self.output().backward(self.dy)


# ---- Ours


def outputs(data):
    """Tensors for every result, gradients of weights in bf16 as autograd makes them."""
    return {"y": torch.empty_like(data.x), "dx": torch.empty_like(data.x), "dweights": torch.empty_like(data.weights),
            "dw13": torch.empty_like(data.w13), "dw2": torch.empty_like(data.w2)}


class Ours:
    def __init__(self, group, data, results, keep):
        case = data.case
        self.layer = Layer(group, case.hidden, case.intermediate, case.experts, TOP_K, keep)
        self.layer.bind(x=data.x, ids=data.ids, weights=data.weights, w13=data.w13, w2=data.w2, dy=data.dy, **results)

    def forward(self, timed=False):
        self.layer.forward(TOKENS, timed, torch.cuda.current_stream().cuda_stream)

    def backward(self, timed=False):
        self.layer.backward(TOKENS, timed=timed, stream=torch.cuda.current_stream().cuda_stream)

    def both(self):
        self.forward()
        self.backward()

    def phases(self, calls=5):
        """Median milliseconds of the phases of a forward and of a backward."""
        found = {}
        for name, call in (("forward", self.forward), ("backward", self.backward)):
            reports = []
            for _ in range(calls):
                if name == "backward":
                    self.forward()
                torch.cuda.synchronize()  # "total" is time of the host
                call(timed=True)
                reports.append([1e3 * self.layer.seconds(phase) for phase in PHASES])
            medians = torch.tensor(reports).median(0).values.tolist()
            found[name] = {phase: round(value, 4) for phase, value in zip(PHASES, medians)}
        return found


BOUND = 1e-2  # between two pipelines in bf16, each within 5.5e-3 of the exact result


def check(mine, rival, results):
    """Both must compute the same layer."""
    mine.both()
    y = rival.forward()
    rival.both()
    expected = {"y": y, **dict(zip(("dx", "dweights", "dw13", "dw2"), (leaf.grad for leaf in rival.leaves)))}
    for name, value in expected.items():
        error = relative_error(results[name], value)
        if not error <= BOUND:
            raise Wrong(f"{name}: relative difference {error:.2e} to the unfused layer, expected at most {BOUND}")


def dense(data):
    """Forward and backward as eight products of cuBLAS with one weight for all rows."""
    rows, case = TOKENS * TOP_K, data.case

    def noise(*shape):
        return torch.empty(shape, device="cuda", dtype=torch.bfloat16).uniform_(-1, 1)
    x, h, dz = noise(rows, case.hidden), noise(rows, case.intermediate), noise(rows, 2 * case.intermediate)
    w13, w2 = data.w13[0], data.w2[0]

    def forward():
        torch.mm(x, w13.t())
        torch.mm(h, w2.t())

    def backward():
        torch.mm(x, w2)
        torch.mm(dz, w13)
        torch.mm(x.t(), h)
        torch.mm(dz.t(), x)
    return [Variant("dense forward", data.flop(FORWARD_UNITS), forward),
            Variant("dense backward", data.flop(BACKWARD_UNITS), backward)]


# ---- Records


def summary(variants, forward, both):
    """Milliseconds of a forward, a backward as the difference, and the two together."""
    first, second = variants[forward].median, variants[both].median
    return {"forward": round(first, 4), "backward": round(second - first, 4), "both": round(second, 4)}


def time_case(group, data, rounds):
    """Variants by name, and the phases of ours."""
    results, rival = outputs(data), Unfused(data)
    rows, plan = (Ours(group, data, results, keep) for keep in (KEEP_ROWS, KEEP_PLAN))
    with rows.layer, plan.layer:
        check(rows, rival, results)
        check(plan, rival, results)
        one, all_units = data.flop(FORWARD_UNITS), data.flop(FORWARD_UNITS + BACKWARD_UNITS)
        variants = dense(data) + [
            Variant("forward, rows kept", one, rows.forward), Variant("both, rows kept", all_units, rows.both),
            Variant("forward, plan kept", one, plan.forward), Variant("both, plan kept", all_units, plan.both),
            Variant("unfused forward", one, rival.forward), Variant("unfused both", all_units, rival.both)]
        measure.in_turn(variants, rounds)
        phases = {"rows": rows.phases(), "plan": plan.phases()}
        torch.cuda.synchronize()
    return {variant.name: variant for variant in variants}, phases


def measure_case(library, case, rounds):
    with Group(library, case.hidden, case.experts, TOP_K, TOKENS) as group:
        by_name, phases = time_case(group, Data(case), rounds)
    dense_forward, dense_backward = (by_name[f"dense {call}"].median for call in ("forward", "backward"))
    return {
        "hidden": case.hidden, "intermediate": case.intermediate, "experts": case.experts, "top_k": TOP_K,
        "tokens": TOKENS, "routing": case.routing, "gradients": "bf16",
        "rows": summary(by_name, "forward, rows kept", "both, rows kept"),
        "plan": summary(by_name, "forward, plan kept", "both, plan kept"),
        "unfused": summary(by_name, "unfused forward", "unfused both"),
        "dense": {"forward": round(dense_forward, 4), "backward": round(dense_backward, 4),
                  "both": round(dense_forward + dense_backward, 4)},
        "phases": phases,
        "variants": {name: variant.record() for name, variant in by_name.items()},
    }


def measure_all(library, rounds, quick, say):
    """The record, again after each case."""
    record = {**measure.circumstances(), "rounds": rounds, "cases": []}
    for case in cases(quick):
        say(f"layer: {case.hidden}/{case.intermediate}, {case.experts} experts, {case.routing}")
        record["cases"].append(measure_case(library, case, rounds))
        torch.cuda.empty_cache()
        yield record
