"""The forward over the ranks: ours under both capacity policies, with rows kept and in one case with a grouped combine,
ours with all rows local, the unfused layer in PyTorch over NCCL, and dense cuBLAS of the same FLOPs."""

import contextlib

import torch

import in_step
import layer
import merged
import unfused
from dense import Dense
from in_step import line_up
from layer import BOUND
from library import KEEP_PLAN, KEEP_ROWS
from measure import Wrong, relative_error
from setting import reports_of

GROUPED_HIDDEN = 2048  # where rows over NVLink take longest beside the products
MAIN = (merged.FIXED, merged.DENSE)  # what is timed after rest in every case


def results_at(place):
    return {"y": torch.empty_like(place.operands["x"])}


def make_ours(stack, setting):
    """By name, and where each writes."""
    together, alone = results_at(setting.together), results_at(setting.alone)
    made = {merged.FIXED: setting.together.ours(stack, together, KEEP_PLAN),
            merged.GROW: setting.together.ours(stack, together, KEEP_PLAN, grows=True),
            merged.KEPT: setting.together.ours(stack, together, KEEP_ROWS),
            merged.LOCAL: setting.alone.ours(stack, alone, KEEP_PLAN)}
    if setting.case.headline and setting.case.hidden == GROUPED_HIDDEN:
        made[merged.GROUPED] = setting.together.ours(stack, together, KEEP_PLAN, grouped=True)
    return made, {name: alone["y"] if name == merged.LOCAL else together["y"] for name in made}


def difference(name, one, y, expected):
    """To the output of the unfused layer, relative."""
    y.fill_(float("nan"))
    one.forward()
    found = relative_error(y, expected)
    if not found <= BOUND:
        raise Wrong(f"{name}: relative difference {found:.2e} to the unfused layer, expected at most {BOUND}")
    return found


def check(setting, ours, outputs, run_unfused):
    """The difference of each of ours to the unfused layer. NCCL and ours never run at once."""
    expected, alone = run_unfused(), setting.alone.operands
    expected_alone = layer.unfused(*(alone[key] for key in ("x", "ids", "weights", "w13", "w2")))
    found = {}
    for name, one in ours.items():
        line_up(setting.rank)
        found[name] = difference(name, one, outputs[name], expected_alone if name == merged.LOCAL else expected)
    line_up(setting.rank)
    return found


def measure(setting, effort):
    """What this rank has to say of a case."""
    rank, data = setting.rank, setting.data
    sum_name = unfused.faster_sum(rank, data.x, data.ids, data.weights)

    def run_unfused():
        return unfused.forward(data.x, data.ids, data.weights, data.w13, data.w2, unfused.SUMS[sum_name], rank.world)
    # Closed after success alone: freeing can wait for work that never ends, and a rank that fails is to say so at once.
    stack = contextlib.ExitStack()
    ours, outputs = make_ours(stack, setting)
    differences = check(setting, ours, outputs, run_unfused)
    runs = {merged.DENSE: Dense(data).forward, **{name: one.forward for name, one in ours.items()},
            merged.UNFUSED: run_unfused}
    times = in_step.times_of(rank, runs, effort.rested(setting.case, runs, MAIN), effort, setting.case)
    reports = reports_of(rank, {name: (one, one.forward) for name, one in ours.items()})
    stack.close()
    return {"rows": data.rows, "least_bytes": data.least_bytes(), "differences": differences, "times": times,
            "reports": reports, "unfused_sum": sum_name}
