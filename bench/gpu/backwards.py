"""The backward over the ranks: ours with rows kept and with gate and up computed again, under both capacity policies,
with gradients in bf16, in fp32 and added to fp32, with all rows local, and as part of a step; the unfused layer in
PyTorch over NCCL, and dense cuBLAS of the same FLOPs. One forward leaves what all backwards of a way are timed on."""

import contextlib

import torch

import in_step
import layer
import merged_backward as names
import unfused
from dense import Dense
from in_step import line_up
from layer import BOUND
from library import KEEP_PLAN, KEEP_ROWS
from measure import Wrong, relative_error
from setting import reports_of

MAIN = (names.KEPT, names.DENSE)  # what is timed after rest in every case
RESTED = (names.KEPT, names.REDONE, names.LOCAL, names.UNFUSED, names.DENSE, names.DENSE_REDONE)  # in a headline case

INPUTS = ("x", "weights", "w13", "w2")
DW_BYTES = 4  # that come with each row of dx


# ---- Ours


class Results:
    """Tensors for everything that ours write at a place; gradients of weights may be those of other results."""

    def __init__(self, operands, gradients):
        self.by_token = {"y": torch.empty_like(operands["x"]), "dx": torch.empty_like(operands["x"]),
                         "dweights": torch.empty_like(operands["weights"])}
        self.gradients = gradients  # by type


def gradients_of(data, types):
    return {dtype: {f"d{name}": torch.empty_like(getattr(data, name), dtype=dtype) for name in ("w13", "w2")}
            for dtype in types}


class Way:
    """A way to run the backward."""

    def __init__(self, ours, results, dtype=torch.bfloat16, accumulate=False):
        self.ours, self.by_token, self.accumulate = ours, results.by_token, accumulate
        self.gradients = results.gradients[dtype]

    def __call__(self, timed=False):
        self.ours.backward(self.gradients, self.accumulate, timed)

    def differences(self, expected):
        """Of each gradient to the expected one, relative, from a forward on."""
        for tensor in (*self.by_token.values(), *self.gradients.values()):
            tensor.fill_(float("nan"))
        if self.accumulate:
            for name, tensor in self.gradients.items():
                tensor.copy_(expected[name])
        self.ours.forward()
        self()
        times = 2 if self.accumulate else 1
        return {**{name: relative_error(self.by_token[name], expected[name]) for name in ("dx", "dweights")},
                **{name: relative_error_of_stack(tensor, expected[name], times)
                   for name, tensor in self.gradients.items()}}


def relative_error_of_stack(value, expected, times):
    """To so many times the expected, one matrix after another: all in double precision would not fit."""
    def squares(own, other):
        other = times * other.double()
        return torch.stack([(own.double() - other).square().sum(), other.square().sum()])
    off, whole = torch.stack([squares(*pair) for pair in zip(value, expected)]).sum(0).sqrt().tolist()
    return off / whole


def make_ways(stack, setting):
    """By name, and the layer whose forward keeps its inputs alone, if one is made."""
    bf16, f32 = torch.bfloat16, torch.float32
    gradients = gradients_of(setting.data, (bf16, f32) if setting.case.headline else (bf16,))
    together = Results(setting.together.operands, gradients)

    def over_ranks(keep, grows=False):
        return setting.together.ours(stack, together.by_token, keep, grows)
    kept, plain = over_ranks(KEEP_ROWS), None
    ways = {names.KEPT: Way(kept, together)}
    if setting.case.headline:
        plain = over_ranks(KEEP_PLAN)
        ways |= {names.KEPT_GROWS: Way(over_ranks(KEEP_ROWS, grows=True), together),
                 names.REDONE: Way(plain, together),
                 names.REDONE_GROWS: Way(over_ranks(KEEP_PLAN, grows=True), together),
                 names.WIDE: Way(kept, together, f32), names.ADDED: Way(kept, together, f32, accumulate=True)}
    if setting.alone is not None:
        alone = Results(setting.alone.operands, gradients)
        ways[names.LOCAL] = Way(setting.alone.ours(stack, alone.by_token, KEEP_ROWS), alone)
    return ways, plain


# ---- The unfused layer


def rival_over_ranks(setting, sum_name):
    ids, world, add = setting.data.ids, setting.case.world, unfused.SUMS[sum_name]
    return rival_of(setting.together.operands, lambda x, weights, w13, w2: unfused.forward(
        x, ids, weights, w13, w2, add, world))


def rival_alone(operands):
    return rival_of(operands, lambda x, weights, w13, w2: layer.unfused(x, operands["ids"], weights, w13, w2))


def rival_of(operands, function):
    return unfused.Differentiated(function, [operands[name] for name in INPUTS], operands["dy"])


def gradients_by_name(rival):
    rival.keep()
    return dict(zip((f"d{name}" for name in INPUTS), rival.backward()))


# ---- Right before fast


def check(setting, ways, rival):
    """The differences of each of ours to the unfused layer. NCCL and ours never run at once."""
    expected, found = gradients_by_name(rival), {}
    expected_alone = gradients_by_name(rival_alone(setting.alone.operands)) if setting.alone is not None else None
    for name, way in ways.items():
        line_up(setting.rank)
        found[name] = way.differences(expected_alone if name == names.LOCAL else expected)
        for what, value in found[name].items():
            if not value <= BOUND:
                raise Wrong(f"{name}: {what}: relative difference {value:.2e} to the unfused layer, expected at most "
                            f"{BOUND}")
    line_up(setting.rank)
    return found


# ---- What is timed


def runs_of(setting, ways, plain, rival):
    """By name."""
    dense, kept = Dense(setting.data), ways[names.KEPT]
    runs = {names.DENSE: dense.backward, **ways, names.UNFUSED: rival.backward}
    if not setting.case.headline:
        return runs

    def step():
        plain.forward()
        kept.ours.forward()
        kept()
    return {**runs, names.DENSE_REDONE: dense.backward_redone, names.DENSE_STEP: dense.step, names.STEP: step,
            names.UNFUSED_STEP: rival.step}


def measure(setting, effort):
    """What this rank has to say of a case."""
    rank, data, case = setting.rank, setting.data, setting.case
    if case.world > 1:
        sum_name = unfused.faster_sum(rank, data.x, data.ids, data.weights, data.dy)
        rival = rival_over_ranks(setting, sum_name)
    else:
        sum_name, rival = "index_add", rival_alone(setting.together.operands)
    # Closed after success alone, as in the forward.
    stack = contextlib.ExitStack()
    ways, plain = make_ways(stack, setting)
    differences = check(setting, ways, rival)
    runs = runs_of(setting, ways, plain, rival)
    times = in_step.times_of(rank, runs, effort.rested(case, RESTED, MAIN), effort, case)
    reports = reports_of(rank, {name: (way.ours, way) for name, way in ways.items()})
    stack.close()
    return {"rows": data.rows,
            "least_bytes": {"kept": data.least_bytes(1, DW_BYTES), "redone": data.least_bytes(2, DW_BYTES)},
            "differences": differences, "times": times, "reports": reports, "unfused_sum": sum_name}
