"""Timing on several GPUs, all ranks in step: every rank runs the same variant at the same time, and its runs are timed
on its own stream.

Sustained as measure.py has it. After rest: all GPUs idle for REST milliseconds, then RESTED_WARM calls go by and
RESTED_TIMED are timed. Before a block the streams are empty and the hosts meet; right before its timed calls the
streams meet, in an all-reduce that is outside of what is timed and alone on the device.
"""

import statistics
import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

import measure

REST = 1500.0  # milliseconds
RESTED_WARM, RESTED_TIMED = 3, 8  # calls


@dataclass
class Effort:
    """How often what is timed."""

    rounds: int  # sustained; in a headline case twice as many
    rests: int  # in a headline case
    rests_elsewhere: int
    main_alone: bool  # after rest, also in a headline case

    def rounds_of(self, case):
        return 2 * self.rounds if case.headline else self.rounds

    def rests_of(self, case):
        return self.rests if case.headline else self.rests_elsewhere

    def rested(self, case, every, main):
        """Names of what is timed after rest."""
        return every if case.headline and not self.main_alone else main


@dataclass
class Times:
    """Of one rank."""

    milliseconds: list = field(default_factory=list)
    rounds: list = field(default_factory=list)

    def add(self, milliseconds, state):
        self.milliseconds += milliseconds
        self.rounds.append({"milliseconds": round(statistics.median(milliseconds), 5), **state})


@dataclass
class Variant:
    """Something that all ranks queue on their current streams; `rested`: also timed after rest."""

    name: str
    run: object
    rested: bool
    sustained: Times = field(default_factory=Times)
    idle: Times = field(default_factory=Times)


def line_up(rank):
    """No work is left on any GPU, and all hosts are here."""
    torch.cuda.synchronize()
    rank.meet()


def streams_meet():
    dist.all_reduce(torch.zeros(1, device="cuda"))


def block(rank, run, warm, timed):
    """Milliseconds of each timed call on this rank, clock and power while they run."""
    marks = measure.events(timed + 1)
    line_up(rank)
    for _ in range(warm):
        run()
    streams_meet()
    marks[0].record()
    for mark in marks[1:]:
        run()
        mark.record()
    marks[len(marks) // 2].synchronize()
    state = measure.clock_and_power()
    marks[-1].synchronize()
    return [before.elapsed_time(after) for before, after in zip(marks, marks[1:])], state


def agreed(rank, run):
    """Milliseconds of a call, roughly: equal on all ranks, so that they make as many calls."""
    line_up(rank)
    return rank.most(measure.typical(run))


def calls_for(milliseconds, each):
    return int(milliseconds / each) + 1


def time_sustained(rank, variants, rounds):
    each = {}
    for variant in variants:
        each[variant.name] = agreed(rank, variant.run)
        for _ in range(calls_for(measure.HEAT / len(variants), each[variant.name])):
            variant.run()
    for order in measure.orders(variants, rounds):
        for variant in order:
            took = each[variant.name]
            timed = max(calls_for(measure.TIMED, took), 3)
            variant.sustained.add(*block(rank, variant.run, calls_for(measure.WARM, took), timed))


def time_rested(rank, variants, rounds):
    rested = [variant for variant in variants if variant.rested]
    for order in measure.orders(rested, rounds):
        for variant in order:
            line_up(rank)
            time.sleep(REST / 1000)
            variant.idle.add(*block(rank, variant.run, RESTED_WARM, RESTED_TIMED))


def times_of(rank, runs, rested, effort, case):
    """`runs`: functions by name; `rested`: names of those that are also timed after rest."""
    variants = [Variant(name, run, name in rested) for name, run in runs.items()]
    time_sustained(rank, variants, effort.rounds_of(case))
    time_rested(rank, variants, effort.rests_of(case))
    return {one.name: {"sustained": vars(one.sustained), "idle": vars(one.idle)} for one in variants}
