"""Timing on a GPU that sits at its power limit: variants in turn, sustained, medians.

A GPU that has rested runs faster for a second than it does for an hour. So all variants together first run for HEAT
milliseconds; then they take turns over several rounds, and in its turn a variant runs WARM milliseconds before it is
timed for TIMED milliseconds. What ran before still tells in the clock then, so each round has another order. Shares are
taken between medians of one run.
"""

import datetime
import os
import statistics
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import torch

import summary

HEAT, WARM, TIMED = 1200.0, 80.0, 40.0  # milliseconds
ROOT = Path(__file__).resolve().parent.parent.parent


class Wrong(Exception):
    """A result that is not what it should be, so that its time means nothing."""


def relative_error(value, expected):
    return float((value.double() - expected.double()).norm() / expected.double().norm())


@dataclass
class Variant:
    """Something that queues work on the current stream."""

    name: str
    flop: float
    run: object
    milliseconds: list = field(default_factory=list)  # of every timed run
    rounds: list = field(default_factory=list)  # median, clock and power of each round

    @property
    def median(self):
        return statistics.median(self.milliseconds)

    def record(self):
        return {**summary.of_runs(self.milliseconds, self.flop), "rounds": self.rounds}


def reading(function):
    """A number of NVML; None where that is not to be had."""
    try:
        return function()
    except Exception:  # whatever a missing or failing NVML raises
        return None


def clock_and_power():
    power = reading(torch.cuda.power_draw)
    return {"mhz": reading(torch.cuda.clock_rate), "watts": None if power is None else round(power / 1000)}


def events(count):
    return [torch.cuda.Event(enable_timing=True) for _ in range(count)]


def typical(run):
    """Milliseconds of a run, roughly."""
    first, second, third = events(3)
    first.record()
    run()
    second.record()
    run()
    third.record()
    third.synchronize()
    return max(second.elapsed_time(third), 0.005)


def keep_busy(run, milliseconds):
    for _ in range(int(milliseconds / typical(run)) + 1):
        run()


def sample(run):
    """Milliseconds of each timed run; clock and power are read while they run."""
    each = typical(run)
    keep_busy(run, WARM)
    marks = events(max(int(TIMED / each) + 1, 3) + 1)
    marks[0].record()
    for mark in marks[1:]:
        run()
        mark.record()
    marks[len(marks) // 2].synchronize()
    state = clock_and_power()
    marks[-1].synchronize()
    return [before.elapsed_time(after) for before, after in zip(marks, marks[1:])], state


def orders(variants, rounds):
    """An order of the variants for each round: over as many rounds as there are variants (for an odd number twice as
    many) each one follows each other one equally often, as in the Latin squares of E. J. Williams (1949)."""
    count = len(variants)
    zigzag = [(place + 1) // 2 if place % 2 else -(place // 2) for place in range(count)]  # 0, 1, -1, 2, -2, ...
    for number in range(rounds):
        order = [variants[(step + number) % count] for step in zigzag]
        yield order[::-1] if count % 2 and number % 2 else order


def in_turn(variants, rounds):
    """Times all variants `rounds` times."""
    for variant in variants:
        keep_busy(variant.run, HEAT / len(variants))
    for order in orders(variants, rounds):
        for variant in order:
            times, state = sample(variant.run)
            variant.milliseconds += times
            variant.rounds.append({"milliseconds": round(statistics.median(times), 5), **state})


# ---- What was measured where


def said_by(*command):
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=20, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def commit():
    return os.environ.get("MMOE_COMMIT") or said_by("git", "describe", "--always", "--dirty") or "unknown"


def gpu():
    """What is said of this machine's GPU."""
    properties = torch.cuda.get_device_properties(0)
    driver = said_by("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    return {
        "gpu": properties.name,
        "multiprocessors": properties.multi_processor_count,
        "memory": properties.total_memory,
        "driver": driver.splitlines()[0] if driver else None,
        "cuda": torch.version.cuda,
        "torch": torch.__version__,
    }


def circumstances(machine=gpu):
    """What every record begins with."""
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": commit(),
        "machine": machine(),
        "method": {"heat_ms": HEAT, "warm_ms": WARM, "timed_ms": TIMED},
    }
